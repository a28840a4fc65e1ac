"""Processes a worker runs: what is asked for, what became of it."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NewType

from corral.core.causes import LAST_OUTPUT
from corral.core.errors import Conflict, CorralError, InvalidInput

ProcessKey = NewType("ProcessKey", str)  # "<model>#<slot>": what it serves, not which process serves it


@dataclass(frozen=True, slots=True)
class Fill:
    """Text with {port}, {host} or {token} in it. Plain strings are never filled in: a path may contain braces."""

    template: str

    def text(self, *, host: str, port: int, token: str) -> str:
        filled = self.template.replace("{port}", str(port)).replace("{host}", host)
        return filled.replace("{token}", token)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReadiness:
    """How a process shows that it can work, and how long it may take.

    Loading takes as long as the weights are large, so the limit that matters is `quiet_within_s`: how long it may
    neither compute nor write a line. `within_s` only bounds what never ends.
    """

    kind: Literal["listening", "http", "grpc"]
    path: str = "/health"  # http only
    refuses_wrong_token: bool = False  # then a wrong token must be refused before we believe it is ours
    within_s: float = 1800.0
    quiet_within_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not self.path.isprintable() or " " in self.path or not self.path.isascii():
            raise InvalidInput(f"{self.path!r} is not a path a process can be asked for its readiness under.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    key: ProcessKey
    backend: str
    version_digest: str
    command: tuple[str | Fill, ...]
    readiness: ProcessReadiness
    environment: Mapping[str, str | Fill] = field(default_factory=dict)
    directory: str | None = None  # where it starts; None means a private, empty one
    host: str = "127.0.0.1"  # where it is told to listen
    user: str | None = None  # run as this user; needs root
    reads: tuple[str, ...] = ()  # files and directories of its model
    exchange: tuple[str, ...] = ()  # directories with files it is told the names of, to read or to write
    labels: Mapping[str, str] = field(default_factory=dict)  # facts the caller wants back after a restart
    generation: int | None = field(default=None, compare=False)  # of the last order that wanted exactly this process

    def __post_init__(self) -> None:
        if not self.command:
            raise InvalidInput(f"{self.key}: there is no command to run.")
        if any(isinstance(part, Fill) and "{token}" in part.template for part in self.command):
            raise InvalidInput(f"{self.key}: a token in the command line is readable by every user of the machine.")
        texts = [
            part.template if isinstance(part, Fill) else part for part in (*self.command, *self.environment.values())
        ]
        if any("\0" in text for text in (*texts, *self.environment)):
            raise InvalidInput(f"{self.key}: a zero byte in the command or environment.")

    @property
    def own_host(self) -> str:
        """Where this machine reaches it. Told to listen everywhere, it is asked on loopback."""
        return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)


class DesiredRun(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """What is on disk about a launch, so that a worker that was killed is continued by the next."""

    spec: ProcessSpec
    marker: str
    token: str = field(repr=False)
    port: int
    boot_id: str
    launched_ms: int
    group: str | None = None  # the directory of its control group
    directory_id: tuple[int, int] | None = None  # device and inode of the directory it was started from
    reads_ids: tuple[tuple[int, int] | None, ...] | None = None  # the same of what its spec lets it read
    desired: DesiredRun = DesiredRun.RUNNING
    reason: str = ""
    was_ready: bool = False
    counted: bool = False  # its crash is in `crashes_s` already
    restarts: int = 0
    crashes_s: tuple[float, ...] = ()  # on the machine's monotonic clock, which the boot id belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended. None of the three means that nobody was there to see it."""

    code: int | None = None
    signal: int | None = None
    problem: str | None = None  # it could not be started, or its shim was lost

    def describe(self) -> str:
        if self.problem is not None:
            return self.problem
        if self.signal is not None:
            hint = "; it may have run out of memory" if self.signal == signal.SIGKILL else ""
            return f"killed by {_signal_name(self.signal)}{hint}"
        if self.code is not None:
            return f"exit code {self.code}"
        return "ended unseen"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarting:
    attempt: int  # 0 for the first start, n for the n-th restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    port: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingOff:
    delay_s: float
    attempt: int
    last: Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStopped:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    reason: str
    last: Exit
    stderr_tail: tuple[str, ...] = ()


ProcessState = ProcessStarting | Ready | BackingOff | Stopping | ProcessStopped | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    spec: ProcessSpec
    state: ProcessState
    pid: int | None = None
    port: int | None = None
    restarts: int = 0

    @property
    def key(self) -> ProcessKey:
        return self.spec.key


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeUsage:
    """What a process and all it started use. GPU memory is None where the driver does not tell by process."""

    processes: int
    memory_bytes: int
    cpu_s: float
    gpu_memory_bytes: int | None = None


class StartFailed(CorralError):
    code = "start_failed"

    def __init__(self, key: ProcessKey, failed: Failed) -> None:
        tail = "".join(f"\n    {line}" for line in failed.stderr_tail)
        said = f" {LAST_OUTPUT}{tail}" if tail else "" if failed.last.problem else " It wrote nothing."
        super().__init__(f"{key} did not start: {failed.reason.rstrip('.')}.{said}")
        self.failed = failed


class AlreadyRunning(Conflict):
    code = "already_running"

    def __init__(self, key: ProcessKey, *, running: ProcessSpec, wanted: ProcessSpec) -> None:
        if running.version_digest != wanted.version_digest:
            difference = f"from version {running.version_digest}, not {wanted.version_digest}"
        elif running != wanted:
            difference = "with another command"
        else:
            difference = "from a directory that has been replaced since"
        super().__init__(f"{key} already runs {difference}. Stop it first.")


@dataclass(frozen=True, slots=True)
class Stuck:
    """What a stop left alive."""

    pids: tuple[int, ...]
    problem: str | None = None  # why it could not be ended, or looked at; None: it was killed, and stays all the same


class StopFailed(CorralError):
    """A process inside the kernel cannot be killed until its system call returns; a machine out of descriptors cannot
    tell who is left."""

    code = "stop_failed"
    retryable = True

    def __init__(self, key: ProcessKey, stuck: Stuck, *, within_s: float) -> None:
        pids = ", ".join(map(str, stuck.pids))
        super().__init__(
            f"{key} was killed, but {len(stuck.pids)} of its processes ({pids}) did not go within"
            f" {within_s:.0f} s: they wait inside the kernel, often for a disk or a GPU driver. It is tried again."
            if stuck.problem is None
            else f"{key} could not be stopped, and its process {pids} may still run: {stuck.problem}. Tried again soon."
        )
