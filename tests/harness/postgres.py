"""A private PostgreSQL: made once per run on a directory of its own, one database per test."""

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness import leaks
from harness.ports import free_port
from harness.waiting import is_listening, wait_until

LOCK_WITHIN_MS = 10_000
FLAGS = ("fsync=off", "full_page_writes=off", "max_connections=200")


def find_binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class Postgres:
    """PostgreSQL refuses to run as root, so root starts it as the first unprivileged user there is."""

    def __init__(self, directory: Path) -> None:
        binaries = find_binaries()
        if binaries is None:
            pytest.skip("PostgreSQL is not installed")
        self._binaries = binaries
        self._data = directory / "data"
        leaks.expect_server(self._data)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = self._unprivileged() if os.geteuid() == 0 else None
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "log"
        if self._user is not None:
            os.chown(directory, self._user, -1)
        self._run("initdb", "-D", str(self._data), "-U", "corral", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    @staticmethod
    def _unprivileged() -> int:
        for name in ("postgres", "nobody"):
            try:
                return pwd.getpwnam(name).pw_uid
            except KeyError:
                continue
        pytest.skip("PostgreSQL does not run as root, and there is no other user")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments], user=self._user, capture_output=True, text=True, cwd="/"
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        flags = [part for flag in FLAGS for part in ("-c", flag)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port),
                    "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", *flags,
                ],
                user=self._user, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        wait_until(lambda: is_listening(self.port) and self._answers(), what="PostgreSQL answers")

    def _answers(self) -> bool:
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "corral"]
        return subprocess.call(ready) == 0

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT is a fast shutdown, SIGQUIT an immediate one."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def create(self, name: str) -> str:
        """A new empty database; its address."""
        self.run_sql("postgres", f'CREATE DATABASE "{name}"')
        return f"postgresql://corral@127.0.0.1:{self.port}/{name}"

    def run_sql(self, database: str, sql: str, *, schema: str = "public") -> str:
        psql = [str(self._binaries / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "corral", "-d", database]
        # Called on the event loop, it would wait for ever for a row that a task of the same loop has locked.
        environment = {**os.environ, "PGOPTIONS": f"-c search_path={schema} -c lock_timeout={LOCK_WITHIN_MS}"}
        done = subprocess.run(
            [*psql, "-v", "ON_ERROR_STOP=1", "-Atqc", sql], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dump(self, database: str, *, schema: str) -> bytes:
        """Every row of every table, as text."""
        arguments = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "corral", "--inserts", "-n", schema, database]
        done = subprocess.run([str(self._binaries / "pg_dump"), *arguments], capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def give(self, directory: Path) -> None:
        """To the user the server runs as."""
        if self._user is not None:
            os.chown(directory, self._user, -1)
