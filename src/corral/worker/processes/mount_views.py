"""Plans mounts for users that cannot traverse a directory on the path to their files.

The data directory may be below /root or a home directory, which other users cannot traverse. In the mount namespace of
the process an empty directory replaces the closed one, and the allowed files are mounted in it under the same names.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...]

    def has(self, status: os.stat_result, bits: int) -> bool:
        """`bits` as in the mode for others: 1 to traverse, 4 to read."""
        if status.st_uid == self.uid:
            return bool(status.st_mode & (bits << 6) == bits << 6)
        if status.st_gid in (self.gid, *self.groups):
            return bool(status.st_mode & (bits << 3) == bits << 3)
        return bool(status.st_mode & bits == bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    hidden: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def steps(self) -> list[str]:
        return [
            *(f"hide {path}" for path in self.hidden),
            *(f"link {path}" for path in self.links),
            *(f"show {path}" for path in self.shown),
        ]


def plan_view(paths: Iterable[str], user: User) -> View:
    """Empty if the user can reach all paths. Missing paths are skipped."""
    found = [way for path in paths if (way := _walk(path)) is not None]
    closed = {place for way in found for place in way.directories if not user.has(os.stat(place), 1)}
    hidden = tuple(_topmost(closed))
    shown = tuple(_topmost({way.end for way in found if _below_any(way.end, hidden)}))
    links = {link for way in found for link in way.links if _below_any(link, hidden) and not _below_any(link, shown)}
    return View(hidden=hidden, links=tuple(sorted(links)), shown=shown)


@dataclass(frozen=True, slots=True)
class _Way:
    directories: tuple[str, ...]
    links: tuple[str, ...]
    end: str


_MOST_LINKS = 40


def _walk(path: str) -> _Way | None:
    """Resolves a path like the kernel: component by component, following links."""
    ahead = [part for part in reversed(path.split("/")) if part]
    here = "/"
    directories: list[str] = []
    links: list[str] = []
    while ahead:
        name = ahead.pop()
        directories.append(here)
        if name in (".", ".."):
            here = os.path.dirname(here) if name == ".." else here
            continue
        place = os.path.join(here, name)
        try:
            status = os.lstat(place)
        except OSError:
            return None
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links.append(place)
        if len(links) > _MOST_LINKS:
            return None
        target = os.readlink(place)
        here = "/" if target.startswith("/") else here
        ahead += [part for part in reversed(target.split("/")) if part]
    return _Way(tuple(directories), tuple(links), here)


def _topmost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(paths):
        if not (kept and _below_any(path, kept)):
            kept.append(path)
    return kept


def _below_any(path: str, others: Iterable[str]) -> bool:
    return any(path == other or path.startswith(other.rstrip("/") + "/") for other in others)


def open_to_read(path: str, user: User) -> None:
    """Makes weights readable that a worker with a strict umask wrote. Their directory still protects them."""
    for place in _tree(path):
        status = os.lstat(place)
        needed = 5 if stat.S_ISDIR(status.st_mode) else 4
        if not stat.S_ISLNK(status.st_mode) and not user.has(status, needed):
            os.chmod(place, stat.S_IMODE(status.st_mode) | needed | needed << 3)


def _tree(path: str) -> Iterable[str]:
    yield path
    for directory, names, files in os.walk(path):
        yield from (os.path.join(directory, name) for name in (*names, *files))
