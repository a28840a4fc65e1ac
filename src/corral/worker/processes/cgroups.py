"""Control groups: a process cannot leave its group by fork or setsid, so killing the group kills the tree."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_PREFIX = "corral-"


class Group(Protocol):
    @property
    def directory(self) -> Path: ...
    def members(self) -> list[int]: ...
    def kill(self) -> None:
        """Sends KILL to every member, including processes forked meanwhile. Does not wait."""
        ...

    def remove(self) -> bool:
        """True if the group was removed; False while it has members."""
        ...


class Groups(Protocol):
    def make(self, name: str) -> Group: ...
    def open(self, directory: Path) -> Group: ...


@dataclass(frozen=True, slots=True)
class GroupV2:
    directory: Path

    def members(self) -> list[int]:
        return _members(self.directory)

    def kill(self) -> None:
        try:
            (self.directory / "cgroup.kill").write_text("1")
        except FileNotFoundError:  # before Linux 5.14, or the group is gone
            _signal_all(self.members())

    def remove(self) -> bool:
        return _remove(self.directory)


@dataclass(frozen=True, slots=True)
class GroupV1:
    directory: Path

    def members(self) -> list[int]:
        return _members(self.directory)

    def kill(self) -> None:
        # Frozen members cannot fork, so the list of members is complete. They end when thawed.
        self._freeze("FROZEN")
        try:
            _signal_all(self.members())
        finally:
            self._freeze("THAWED")

    def remove(self) -> bool:
        return _remove(self.directory)

    def _freeze(self, state: str) -> None:
        with contextlib.suppress(OSError):  # the group may be gone; its members are signalled in any case
            (self.directory / "freezer.state").write_text(state)


@dataclass(frozen=True, slots=True)
class GroupsV2:
    parent: Path

    def make(self, name: str) -> Group:
        return GroupV2(_make(self.parent, name))

    def open(self, directory: Path) -> Group:
        return GroupV2(directory)


@dataclass(frozen=True, slots=True)
class GroupsV1:
    parent: Path

    def make(self, name: str) -> Group:
        return GroupV1(_make(self.parent, name))

    def open(self, directory: Path) -> Group:
        return GroupV1(directory)


def find_groups(root: Path = Path("/")) -> Groups | None:
    """The best usable kind: version 2, else the freezer controller of version 1, else None."""
    own = dict(_own_groups(root))
    for kind, _, mount in _mounts(root):
        if kind == "cgroup2" and "" in own:
            parent = root / mount.lstrip("/") / own[""].lstrip("/")
            if _may_make(parent):
                return GroupsV2(parent)
    for kind, options, mount in _mounts(root):
        if kind == "cgroup" and "freezer" in options and "freezer" in own:
            parent = root / mount.lstrip("/") / own["freezer"].lstrip("/")
            if _may_make(parent):
                return GroupsV1(parent)
    return None


def open_group(directory: Path) -> Group:
    """Opens the group of a process record. Detects the version from its files."""
    return GroupV1(directory) if (directory / "freezer.state").exists() else GroupV2(directory)


def _own_groups(root: Path) -> Iterator[tuple[str, str]]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        for controller in controllers.split(","):
            yield controller, group


def _mounts(root: Path) -> Iterator[tuple[str, list[str], str]]:
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, source = line.partition(" - ")
        fields, details = mount.split(), source.split()
        if len(fields) > 4 and len(details) > 2:
            yield details[0], details[2].split(","), fields[4]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _may_make(parent: Path) -> bool:
    """Tries to create a group: permission bits do not reflect delegation and read-only mounts."""
    probe = parent / f"{_PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    try:
        return os.access(probe / "cgroup.procs", os.W_OK)
    finally:
        probe.rmdir()


def _make(parent: Path, name: str) -> Path:
    directory = parent / f"{_PREFIX}{name}"
    directory.mkdir(exist_ok=True)
    return directory


def _members(directory: Path) -> list[int]:
    """Members of the group and its subgroups. Raises if a group cannot be read, rather than reporting it empty."""
    pids: list[int] = []
    for place, _, _ in os.walk(directory, onerror=_raise_unless_gone):
        try:
            pids += [int(line) for line in (Path(place) / "cgroup.procs").read_text().split()]
        except OSError as problem:
            _raise_unless_gone(problem)
    return [pid for pid in pids if pid > 0]


def _raise_unless_gone(problem: OSError) -> None:
    """A group may be removed while it is read; the kernel then reports ENODEV."""
    if problem.errno not in (errno.ENOENT, errno.ENODEV):
        raise problem


def _signal_all(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _remove(directory: Path) -> bool:
    for place, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):  # busy: a member is still exiting
            Path(place).rmdir()
    with contextlib.suppress(OSError):  # without a free descriptor the walk above found nothing
        directory.rmdir()
    return not directory.exists()
