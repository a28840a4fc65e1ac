"""What the supervisor needs of a machine. The real one is `local`; a simulated one has the same shape."""

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
    UNKNOWN = "unknown"  # another user's descriptors are hidden from us


class Process(Protocol):
    """One process, started by us or found. Leaving it alone leaves it running."""

    @property
    def record(self) -> ProcessRecord: ...
    @property
    def pid(self) -> int | None: ...
    def is_alive(self) -> bool:
        """From the kernel, now, and cheap."""
        ...

    def is_kept(self) -> bool:
        """It, or what watches over it, is still there: adopting it makes sense."""
        ...

    def is_current(self) -> bool:
        """False when the directory it was started from has been replaced since."""
        ...

    def reads_current_files(self) -> bool:
        """False when a file it may read has come or been replaced since."""
        ...

    async def wait(self) -> Exit: ...
    async def update(self, record: ProcessRecord) -> None:
        """Durable on return, so that it can be acted upon."""
        ...

    async def stop_tree(self, *, grace_s: float, within_s: float) -> tuple[int, ...]:
        """TERM, a bounded wait, KILL. Answers who is left; nobody, unless the kernel holds them."""
        ...

    async def forget(self) -> None:
        """Nothing of it runs any more: its record goes."""
        ...

    async def find_listener(self) -> Listener: ...
    async def activity(self) -> tuple[float, int]:
        """Changes while the process computes or writes."""
        ...

    async def last_words(self) -> tuple[str, ...]: ...

    def read_usage(self, gpu_memory: Mapping[int, int] | None) -> TreeUsage:
        """Blocks for some milliseconds. `gpu_memory` is by pid, or None when unknown."""
        ...


class Processes(Protocol):
    @property
    def logs(self) -> ProcessLogs: ...
    async def launch(self, spec: ProcessSpec, *, port: int, restarts: int, crashes_s: Sequence[float]) -> Process:
        """Answers when the program runs, or has failed to: then `wait` tells at once. Raises Unavailable when trying
        again later may help."""
        ...

    async def survivors(self) -> Sequence[Process]:
        """What an earlier worker left, alive or ended."""
        ...

    async def sample(self, processes: Sequence[Process]) -> list[TreeUsage]: ...
