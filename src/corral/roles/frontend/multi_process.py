"""`--processes N`: several frontends on one port. This process starts them, watches them and restarts those that end.

Each is a complete frontend on the same store; the kernel distributes connections among them."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from corral.core.backoff import PROCESS_RESTARTS
from corral.core.errors import Unavailable
from corral.settings.roles import FrontendSettings
from corral.settings.values import split_host_port
from corral.system import Clock, Disk, Ids
from corral.system.children import Child, python_command, spawn_child
from corral.system.listen import bind_socket

log = structlog.get_logger()

PROCESS = "_CORRAL_FRONTEND_PROCESS"
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 12.0
"""After its open requests have ended."""
STEADY_AFTER_S = 20.0


@dataclass(frozen=True, slots=True)
class ProcessSlot:
    """The place of one process among those of a frontend."""

    index: int
    count: int

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def name(self, what: str) -> str:
        """`what` for the first or only process, so that a frontend of one process uses the plain name."""
        return what if self.is_first else f"{what}-{self.index}"

    def siblings(self) -> list["ProcessSlot"]:
        return [ProcessSlot(index, self.count) for index in range(self.count) if index != self.index]


def read_place(settings: FrontendSettings, environ: Mapping[str, str] = os.environ) -> ProcessSlot | None:
    """None for the parent of several processes."""
    if PROCESS in environ:
        return ProcessSlot(int(environ[PROCESS]), settings.processes)
    return ProcessSlot(0, 1) if settings.processes == 1 else None


async def run_processes(settings: FrontendSettings, *, clock: Clock, ids: Ids, disk: Disk) -> None:
    with disk.hold(settings.data_dir, "processes"):
        # A shared socket does not show that another program listens here, so bind it exclusively once.
        host, port = split_host_port(settings.listen)
        bind_socket(host, port, setting="--listen").close()
        disk.remove(settings.data_dir / "run.json")
        stop_within_s = settings.stop_wait_s + STOP_WITHIN_S
        processes = [
            ProcessWatcher(index, clock=clock, ids=ids, stop_within_s=stop_within_s)
            for index in range(settings.processes)
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(processes[0].run())
                # The first process creates keys and tables; the others use them.
                await _wait_until_started(settings, disk, clock)
                for process in processes[1:]:
                    tasks.create_task(process.run())
        finally:
            async with asyncio.TaskGroup() as stops:
                for process in processes:
                    stops.create_task(process.stop())


async def _wait_until_started(settings: FrontendSettings, disk: Disk, clock: Clock) -> None:
    """The first process writes its address when it is ready."""
    deadline_s = clock.monotonic_s() + READY_WITHIN_S
    while disk.read(settings.data_dir / "run.json") is None:
        if clock.monotonic_s() > deadline_s:
            raise Unavailable(
                f"the first process has not started within {READY_WITHIN_S:g} s; see its log for the reason"
            )
        await asyncio.sleep(0.1)


class ProcessWatcher:
    """Starts one process again and again."""

    def __init__(
        self,
        index: int,
        *,
        clock: Clock,
        ids: Ids,
        stop_within_s: float = STOP_WITHIN_S,
        command: Sequence[str] | None = None,
    ) -> None:
        self._index = index
        self._clock = clock
        self._ids = ids
        self._stop_within_s = stop_within_s
        self._command = command or python_command(*sys.argv[1:])
        self._child: Child | None = None

    async def run(self) -> None:
        failures = 0
        environment = {**os.environ, PROCESS: str(self._index)}
        while True:
            began_s = self._clock.monotonic_s()
            self._child = await spawn_child(self._command, environment=environment, log_path=None)
            code = await self._child.wait()
            if code in (2, 3) and failures == 0:
                raise Unavailable(f"process {self._index} of this frontend cannot start (exit code {code})")
            lasted_s = self._clock.monotonic_s() - began_s
            failures = 1 if lasted_s > STEADY_AFTER_S else failures + 1
            delay_s = PROCESS_RESTARTS.delay_s(failures, self._ids.draw())
            log.warning("process.ended", process=self._index, code=code, again_in_s=round(delay_s, 1))
            await asyncio.sleep(delay_s)

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop(within_s=self._stop_within_s)
