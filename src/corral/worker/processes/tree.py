"""Finds all processes of one backend: by control group, by descent and by an environment marker."""

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from corral.worker.processes.cgroups import Group
from corral.worker.processes.records import StartRecord, is_still

MARKER_VARIABLE = "CORRAL_PROCESS"


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """The shim is the root but not a member: it ends when all members have ended."""

    marker: str
    started: StartRecord | None = None  # None if the shim has written nothing yet
    group: Group | None = None
    group_is_proven: bool = False  # the main process was seen in it, and no process leaves a group

    def members(self, *, search: bool = True) -> list[psutil.Process]:
        """Running members. Without a group, reads the process table; `search` also reads the environment of every
        process, to find helpers that left the tree by their marker."""
        candidates = [*self._grouped()]
        if not self.group_is_proven:
            candidates += self._descendants()
            candidates += self._marked() if search else ()
        shim_pid = self.started.shim_pid if self.started else None
        found = {process.pid: process for process in candidates if process.pid != shim_pid}
        return [process for process in found.values() if _is_alive(process)]

    def terminate(self) -> None:
        """Sends TERM to the main process and its process group, like a terminal."""
        if self.main_is_alive and self.started is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.started.main_pid, signal.SIGTERM)

    def kill(self) -> list[int]:
        """Sends KILL once and returns the pids that were alive. The caller repeats it until none is."""
        if self.group is not None:
            with contextlib.suppress(FileNotFoundError, PermissionError):  # the members are then signalled individually
                self.group.kill()
        members = self.members()
        for process in members:
            with contextlib.suppress(psutil.Error):  # ended meanwhile; psutil rejects a reused pid
                process.kill()
        return [process.pid for process in members]

    def kill_shim(self) -> None:
        if self.shim_is_alive and self.started is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.started.shim_pid, signal.SIGKILL)

    @property
    def shim_is_alive(self) -> bool:
        return self.started is not None and is_still(self.started.shim_pid, self.started.shim_ticks)

    @property
    def main_is_alive(self) -> bool:
        return self.started is not None and is_still(self.started.main_pid, self.started.main_ticks)

    def _grouped(self) -> Iterable[psutil.Process]:
        return _processes(self.group.members()) if self.group is not None else ()

    def _descendants(self) -> Iterable[psutil.Process]:
        # A pid alone is not sufficient: the kernel reuses the pids of ended processes.
        if self.started is None:
            return
        # The main process is the root only after its shim has ended.
        if self.shim_is_alive:
            root_pid = self.started.shim_pid
        elif self.main_is_alive:
            root_pid = self.started.main_pid
        else:
            return
        for root in _processes([root_pid]):
            yield root
            with contextlib.suppress(psutil.Error):
                yield from root.children(recursive=True)

    def _marked(self) -> Iterable[psutil.Process]:
        return _processes(find_marked(self.marker))


def find_marked(marker: str) -> list[int]:
    return [pid for pid in psutil.pids() if has_marker(pid, marker)]


def kill_marked(state: Path) -> list[int]:
    """Kills every process that a worker with this state directory has started. Simulates a power failure."""
    markers = [path.name for path in state.glob("processes/*")]
    killed = [pid for marker in markers for pid in find_marked(marker)]
    for process in _processes(killed):
        with contextlib.suppress(psutil.Error):
            process.kill()
    return killed


def has_marker(pid: int, marker: str) -> bool:
    entry = f"{MARKER_VARIABLE}={marker}".encode()
    try:
        return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # ended, owned by another user, or no /proc
        return False


def _processes(pids: Iterable[int]) -> Iterable[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            yield psutil.Process(pid)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
