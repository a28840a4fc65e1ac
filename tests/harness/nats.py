"""A real nats-server, with Corral's own keys, restartable on the same port."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from corral.bus.client import BusOptions, Credentials
from corral.bus.credentials import KeyPair, Permissions, make_key, read_key, user_jwt
from corral.bus.embedded import BusFiles, prepare_bus
from corral.system import SystemClock, SystemDisk, SystemIds
from harness.ports import free_port
from harness.waiting import is_listening, wait_until

NATS_SERVER = Path(sys.executable).parent / "nats-server"


class Nats:
    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self.port = port or free_port()
        self.directory = directory
        self._ids = SystemIds()
        self.files: BusFiles = prepare_bus(
            directory, host="127.0.0.1", port=self.port, clock=SystemClock(), ids=self._ids, disk=SystemDisk()
        )
        self.account: KeyPair = read_key("account", self.files.account_seed.read_text().strip(), setting="test")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with (self.directory / "nats.log").open("ab") as log:
            self._process = subprocess.Popen([str(NATS_SERVER), "-c", str(self.files.config)], stdout=log, stderr=log)
        wait_until(self._is_up, what="nats-server listens")

    def _is_up(self) -> bool:
        """That somebody listens is not enough: another's server would take our keys for forged."""
        assert self._process is not None
        if self._process.poll() is not None:
            pytest.fail(f"nats-server ended: {(self.directory / 'nats.log').read_text()[-2000:]}")
        return is_listening(self.port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        if threads.exists():  # the signal is only sent so far; a thread may still answer
            wait_until(
                lambda: all(") T " in (thread / "stat").read_text() for thread in threads.iterdir()),
                what="nats-server stands still",
                every_s=0.005,
            )

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def credentials(self, permissions: Permissions | None, *, expires_in_s: int | None = None) -> Credentials:
        key = make_key("user", self._ids.seed())
        now_s = SystemClock().now_ms() // 1000
        expires_s = now_s + expires_in_s if expires_in_s is not None else None
        jwt = user_jwt(self.account, key.public, name="test", permissions=permissions, now_s=now_s, expires_s=expires_s)
        return Credentials(jwt, key)

    def options(self, credentials: Credentials | None, *, inbox: str) -> BusOptions:
        return BusOptions(
            servers=(self.url,),
            name="test",
            inbox=inbox,
            inbox_for=lambda _subject: inbox,
            credentials=lambda: credentials,
        )

    def system_options(self) -> BusOptions:
        """For asking the server about itself."""
        system = read_key("account", self.files.system_seed.read_text().strip(), setting="test")
        key = make_key("user", self._ids.seed())
        now_s = SystemClock().now_ms() // 1000
        jwt = user_jwt(system, key.public, name="test-system", permissions=None, now_s=now_s, expires_s=now_s + 60)
        return replace(self.options(Credentials(jwt, key), inbox=f"_INBOX.{key.public}"), name="test-system")

    def secrets(self) -> dict[str, str]:
        """Environment with which a frontend may use this bus."""
        return {
            "CORRAL_BUS": self.url,
            "CORRAL_BUS_ACCOUNT_SEED_FILE": str(self.files.account_seed),
            "CORRAL_BUS_OPERATOR_SEED_FILE": str(self.files.operator_seed),
            "CORRAL_BUS_SYSTEM_SEED_FILE": str(self.files.system_seed),
        }


class OpenNats:
    """A nats-server without credentials, as the clusters of LocalAI's workers from before 2026-06-03 have one."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        with (directory / "nats.log").open("ab") as log:
            command = [str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(self.port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: is_listening(self.port), what="nats-server listens")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def secrets(self) -> dict[str, str]:
        """Environment with which a frontend uses this bus."""
        return {"CORRAL_BUS": self.url, "CORRAL_INSECURE_ANONYMOUS_BUS": "true"}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)
