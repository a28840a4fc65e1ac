"""One real worker process on a real bus, commanded as a frontend would."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from corral.bus.client import Bus, BusOptions, connect_bus
from corral.bus.subjects import frontend_inbox
from corral.worker.processes.tree import find_marked
from harness.nats import Nats
from harness.ports import take_ports
from harness.programs import Program, clean_environment
from harness.registrar import NODE, TOKEN, Registrar
from harness.waiting import is_listening, wait_until, wait_until_async


class SingleWorker:
    def __init__(
        self,
        directory: Path,
        nats: Nats,
        *flags: str,
        corral: bool = True,
        node: str = NODE,
        inside: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """`inside`: words to put before the command."""
        self.inside = inside
        self.nats, self.directory, self._corral, self._node = nats, directory, corral, node
        self.data_dir = directory / "worker"
        self.registrar = Registrar(nats, corral=corral, node=node)
        self.port = take_ports(100)
        # One port for HTTP, the rest of the hundred for backends.
        self._flags = ("--backend-ports", f"{self.port + 1}-{self.port + 99}", *flags)
        self._environment = environment
        self.program = self._start()

    def _start(self) -> Program:
        bus = () if self._corral else ("--bus", self.nats.url)
        return Program(
            "worker", "--join", self.registrar.url, "--token", TOKEN, "--name", "worker-1", *bus,
            "--data-dir", str(self.data_dir), "--port", str(self.port), "--trusted-hosts", "127.0.0.1",
            "--plain-http-hosts", "127.0.0.1", "--heartbeat-interval", "0.5", *self._flags,
            log=self.directory / "worker.log", environment=clean_environment(**self._environment), inside=self.inside,
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        """After a kill or a stop; the data directory is the same."""
        self.program = self._start()

    @asynccontextmanager
    async def frontend(self) -> AsyncIterator["Commander"]:
        """A bus connection with a frontend's rights, once the worker listens."""
        prefix = "_INBOX.fe.*.test" if self._corral else "_INBOX.localai"
        options = BusOptions(
            servers=(self.nats.url,),
            name="test-frontend",
            inbox=prefix,
            inbox_for=lambda subject: frontend_inbox("test", subject) if self._corral else prefix,
            credentials=lambda: self._credentials,
        )
        self._credentials = self.nats.credentials(None)
        async with connect_bus(options) as bus:
            commander = Commander(bus, self._node)
            await commander.until_there(self.program)
            yield commander

    def close(self) -> list[int]:
        """Ends everything; answers which backends were still there."""
        with contextlib.suppress(Exception):
            self.program.stop(20)
        self.registrar.close()
        return end_marked(self.data_dir)


def end_marked(data_dir: Path) -> list[int]:
    """Ends every backend of the worker whose data are there."""
    root = data_dir / "run" / "processes"
    markers = [path.name for path in root.iterdir()] if root.is_dir() else []
    left = [pid for marker in markers for pid in find_marked(marker)]
    for pid in left:
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()
    wait_until(lambda: not any(map(psutil.pid_exists, left)) or None, what="the backends are gone")
    return left


class Commander:
    def __init__(self, bus: Bus, node: str) -> None:
        self.bus, self._node = bus, node

    async def ask(self, verb: str, within_s: float = 120.0, **fields: Any) -> Any:
        data = json.dumps(fields).encode()
        return json.loads(await self.bus.request(f"nodes.{self._node}.{verb}", data, within_s=within_s))

    async def tell(self, verb: str, **fields: Any) -> None:
        await self.bus.publish(f"nodes.{self._node}.{verb}", json.dumps(fields).encode())

    async def until_there(self, program: Program) -> None:
        async with asyncio.timeout(120):
            while True:
                assert program.process.poll() is None, program.output()
                try:
                    # The last one the worker begins to listen on.
                    await self.ask("corral.logs", within_s=1, process_key="none")
                    return
                except Exception:
                    await asyncio.sleep(0.05)

    @asynccontextmanager
    async def listening(self, subject: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Every message on a subject of the node while the block runs."""
        heard: list[dict[str, Any]] = []

        async def hear(message: Any) -> None:
            heard.append(json.loads(message.data))

        await self.bus.serve(f"nodes.{self._node}.{subject}", hear, concurrency=1)
        yield heard

    async def wait_for_log(self, process_key: str, text: str) -> list[str]:
        """All lines, once one begins like this. A process may be ready before it says so, and what it says reaches
        its log a moment later."""

        async def look() -> list[str] | None:
            reply = await self.ask("corral.logs", process_key=process_key)
            lines = [line["text"] for line in reply["lines"] or ()]
            return lines if any(line.startswith(text) for line in lines) else None

        return await wait_until_async(look, what=f"{process_key} says {text!r}")

    async def processes(self) -> dict[str, dict[str, Any]]:
        report = await self.ask("corral.report.now")
        return {process["process_key"]: process for process in report["processes"]}


def is_serving(address: str) -> bool:
    return is_listening(int(address.rpartition(":")[2]))
