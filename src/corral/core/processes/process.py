"""Processes of a worker: their specification, state and errors."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NewType

from corral.core.causes import LAST_OUTPUT
from corral.core.errors import Conflict, CorralError, InvalidInput

SMOKE_TEST = "smoke_test"
"""The label of a process that only shows that its version starts."""
ENDED_WELL = "it ended with exit code 0"
"""The reason of a stopped process that was to end."""
ProcessKey = NewType("ProcessKey", str)  # "<model>#<slot>": stays the same when the process is restarted


@dataclass(frozen=True, slots=True)
class Fill:
    """A template with {port}, {host} or {token}. Plain strings are never filled in: a path may contain braces."""

    template: str

    def text(self, *, host: str, port: int, token: str) -> str:
        filled = self.template.replace("{port}", str(port)).replace("{host}", host)
        return filled.replace("{token}", token)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReadiness:
    """How a process shows that it is ready, and how long that may take.

    Loading takes longer for larger weights, so the limit that matters is `quiet_within_s`: how long it may neither
    compute nor write a line. `within_s` bounds a process that is busy without end.
    """

    kind: Literal["listening", "http", "grpc", "exits"]  # exits: it does its work and ends with exit code 0
    path: str = "/health"  # http only
    refuses_wrong_token: bool = False  # then it must reject a wrong token before it counts as our process
    within_s: float = 1800.0
    quiet_within_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not self.path.isprintable() or " " in self.path or not self.path.isascii():
            raise InvalidInput(f"{self.path!r} is not a valid readiness path.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    key: ProcessKey
    backend: str
    version_digest: str
    command: tuple[str | Fill, ...]
    readiness: ProcessReadiness
    environment: Mapping[str, str | Fill] = field(default_factory=dict)
    directory: str | None = None  # working directory; None means a private, empty one
    host: str = "127.0.0.1"  # the address it listens on
    user: str | None = None  # run as this user; needs root
    reads: tuple[str, ...] = ()  # files and directories of its model
    exchange: tuple[str, ...] = ()  # directories for request files that it may read and write
    labels: Mapping[str, str] = field(default_factory=dict)  # values that the caller gets back after a restart
    generation: int | None = field(default=None, compare=False)  # of the last request for exactly this process

    def __post_init__(self) -> None:
        if not self.command:
            raise InvalidInput(f"{self.key}: the command is empty.")
        if any(isinstance(part, Fill) and "{token}" in part.template for part in self.command):
            raise InvalidInput(f"{self.key}: a token in the command line is visible to every user of the machine.")
        texts = [
            part.template if isinstance(part, Fill) else part for part in (*self.command, *self.environment.values())
        ]
        if any("\0" in text for text in (*texts, *self.environment)):
            raise InvalidInput(f"{self.key}: the command or the environment contains a NUL byte.")

    @property
    def own_host(self) -> str:
        """The address for probes from this machine: loopback for a process that listens on all addresses."""
        return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)


class DesiredRun(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A launch as it is stored on disk, so that the next worker can adopt the process."""

    spec: ProcessSpec
    marker: str
    token: str = field(repr=False)
    port: int
    boot_id: str
    launched_ms: int
    group: str | None = None  # the directory of its control group
    directory_id: tuple[int, int] | None = None  # device and inode of the directory it was started from
    reads_ids: tuple[tuple[int, int] | None, ...] | None = None  # the same for the files that its spec lets it read
    desired: DesiredRun = DesiredRun.RUNNING
    reason: str = ""
    was_ready: bool = False
    counted: bool = False  # its crash is in `crashes_s` already
    restarts: int = 0
    crashes_s: tuple[float, ...] = ()  # on the monotonic clock of the boot with that id


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended. Without any of the three it ended unobserved."""

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
        return "exit status unknown"


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

    @property
    def is_smoke_test(self) -> bool:
        """Nobody routes to it, so it is not reported."""
        return SMOKE_TEST in self.spec.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeUsage:
    """Usage of a process and its descendants. GPU memory is None where the driver does not report it per process."""

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

    def __init__(self, key: ProcessKey, *, running: ProcessSpec, requested: ProcessSpec) -> None:
        if running.version_digest != requested.version_digest:
            difference = f"from version {running.version_digest}, not {requested.version_digest}"
        elif running != requested:
            difference = "with a different command"
        else:
            difference = "from a directory that has been replaced since"
        super().__init__(f"{key} is already running {difference}. Stop it first.")


@dataclass(frozen=True, slots=True)
class Stuck:
    """Processes that survived a stop."""

    pids: tuple[int, ...]
    problem: str | None = None  # why they could not be killed or listed; None: they were killed, and still exist


class StopFailed(CorralError):
    """A process in a system call cannot be killed until the call returns; without file descriptors a worker cannot list
    processes."""

    code = "stop_failed"
    retryable = True

    def __init__(self, key: ProcessKey, stuck: Stuck, *, within_s: float) -> None:
        pids = ", ".join(map(str, stuck.pids))
        super().__init__(
            f"{key} was killed, but {len(stuck.pids)} of its processes ({pids}) did not end within"
            f" {within_s:.0f} s: they wait in the kernel, often for a disk or a GPU driver. The stop is retried."
            if stuck.problem is None
            else f"{key} could not be stopped, and process {pids} may still run: {stuck.problem}. The stop is retried."
        )
