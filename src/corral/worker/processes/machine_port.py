"""The interface between the supervisor and the machine. `local` implements it; tests can simulate it."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from corral.core.processes.process import Exit, ProcessRecord, ProcessSpec, TreeUsage
from corral.worker.processes.logs import ProcessLogs


class Listener(Enum):
    """Who listens on a process's port."""

    OURS = "ours"
    FOREIGN = "foreign"
    NOBODY = "nobody"
    UNKNOWN = "unknown"  # descriptors of other users are not visible


class Process(Protocol):
    """One process, started or adopted. Dropping this object does not stop the process."""

    @property
    def record(self) -> ProcessRecord: ...
    @property
    def pid(self) -> int | None: ...
    def is_alive(self) -> bool:
        """Checked with the kernel; cheap."""
        ...

    def has_shim(self) -> bool:
        """Whether its shim still runs, so that it can be adopted."""
        ...

    def is_current(self) -> bool:
        """False if the directory it was started from has been replaced since."""
        ...

    def reads_current_files(self) -> bool:
        """False if a file it may read has been added or replaced since."""
        ...

    async def wait(self) -> Exit: ...
    async def update(self, record: ProcessRecord) -> None:
        """Durable on return."""
        ...

    async def stop_tree(self, *, grace_s: float, within_s: float) -> tuple[int, ...]:
        """Sends TERM, waits up to `grace_s`, then sends KILL. Returns the pids that the kernel did not end."""
        ...

    async def forget(self) -> None:
        """Removes its record. Call it when no process is left."""
        ...

    async def find_listener(self) -> Listener: ...
    async def activity(self) -> tuple[float, int]:
        """A value that changes while the process computes or writes."""
        ...

    async def last_output(self) -> tuple[str, ...]: ...

    def read_usage(self, gpu_memory: Mapping[int, int] | None) -> TreeUsage:
        """Blocks for some milliseconds. `gpu_memory` is by pid, or None if unknown."""
        ...


class Processes(Protocol):
    @property
    def logs(self) -> ProcessLogs: ...
    async def launch(self, spec: ProcessSpec, *, port: int, restarts: int, crashes_s: Sequence[float]) -> Process:
        """Returns when the program runs or has failed to start, in which case `wait` returns at once. Raises
        Unavailable if a later retry may succeed."""
        ...

    async def survivors(self) -> Sequence[Process]:
        """Processes left by an earlier worker, running or ended."""
        ...

    async def sample(self, processes: Sequence[Process]) -> list[TreeUsage]: ...
