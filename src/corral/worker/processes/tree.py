"""All processes that belong to one backend, whatever they did to hide: its group, its descendants, its marker."""

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
    """The keeper is the root and no member: it goes by itself once the others have gone."""

    marker: str
    started: StartRecord | None = None  # None: a worker was killed before the keeper had noted anything
    group: Group | None = None
    group_is_proven: bool = False  # the main process was seen in it; nothing leaves a control group

    def members(self, *, search: bool = True) -> list[psutil.Process]:
        """Living members. Without a group the process table is read; `search` looks at the environment of every
        process of the machine as well: helpers that left the tree keep their marker there."""
        candidates = [*self._grouped()]
        if not self.group_is_proven:
            candidates += self._descendants()
            candidates += self._marked() if search else ()
        keeper_pid = self.started.keeper_pid if self.started else None
        found = {process.pid: process for process in candidates if process.pid != keeper_pid}
        return [process for process in found.values() if _is_alive(process)]

    def terminate(self) -> None:
        """TERM to the main process and its process group, as a terminal would. Helpers elsewhere hear it from them."""
        if self.main_is_alive and self.started is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.started.main_pid, signal.SIGTERM)

    def kill(self) -> list[int]:
        """One round of KILL; answers who was alive. Repeated by the caller until nobody is."""
        if self.group is not None:
            with contextlib.suppress(FileNotFoundError, PermissionError):  # then they are signalled one by one, below
                self.group.kill()
        members = self.members()
        for process in members:
            with contextlib.suppress(psutil.Error):  # gone meanwhile; psutil refuses a pid that was given anew
                process.kill()
        return [process.pid for process in members]

    def kill_keeper(self) -> None:
        if self.keeper_is_alive and self.started is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.started.keeper_pid, signal.SIGKILL)

    @property
    def keeper_is_alive(self) -> bool:
        return self.started is not None and is_still(self.started.keeper_pid, self.started.keeper_ticks)

    @property
    def main_is_alive(self) -> bool:
        return self.started is not None and is_still(self.started.main_pid, self.started.main_ticks)

    def _grouped(self) -> Iterable[psutil.Process]:
        return _processes(self.group.members()) if self.group is not None else ()

    def _descendants(self) -> Iterable[psutil.Process]:
        # Pids alone are not believed: after its death a process's number is given to a stranger.
        if self.started is None:
            return
        # The main process is a root of its own only once its keeper is gone.
        if self.keeper_is_alive:
            root_pid = self.started.keeper_pid
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
    """Every process that a worker with this directory has started, at once: as if the machine had lost its power."""
    markers = [path.name for path in state.glob("processes/*")]
    killed = [pid for marker in markers for pid in find_marked(marker)]
    for process in _processes(killed):
        with contextlib.suppress(psutil.Error):
            process.kill()
    return killed


def has_marker(pid: int, marker: str) -> bool:
    wanted = f"{MARKER_VARIABLE}={marker}".encode()
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, another user's, or a system without /proc
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
