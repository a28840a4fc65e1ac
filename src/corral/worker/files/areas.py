"""Directories that strangers name files in. Everything below one is reached through descriptors, one name at a time,
and no link is followed on the way: a path that was checked as text could be changed before it is opened."""

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from corral.core.errors import InvalidInput, NotFound

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64
_SHARED_DIRECTORY = stat.S_ISGID | stat.S_ISVTX | 0o730  # a group may put and open files there, and list none
_SHARED_FILE = 0o660
MOST_LISTED = 100_000


class OutsideArea(InvalidInput):
    code = "outside_area"


def split_key(key: str) -> list[str]:
    """The names a key consists of. Doubled slashes are one, as in a path."""
    parts = [part for part in key.split("/") if part]
    if not parts or len(parts) > _DEEPEST:
        raise OutsideArea(f"{key[:200]!r} is not the name of a file")
    for part in parts:
        if part in (".", "..") or "\0" in part or len(os.fsencode(part)) > 255:
            raise OutsideArea(f"{key[:200]!r} is not a path inside the area")
    return parts


class Area:
    """Blocking; call it in a thread."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o755)
        self.root = root.resolve()
        self._fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._fd)

    def share_with(self, group: int) -> None:
        """Backends that run as users of their own have this group: they may read and write the files they are told the
        names of. What is made below inherits it."""
        os.fchown(self._fd, -1, group)
        os.fchmod(self._fd, _SHARED_DIRECTORY)

    def path(self, key: str) -> Path:
        """For telling where a file is, never for opening it."""
        return self.root.joinpath(*split_key(key))

    def relative(self, path: str) -> str | None:
        """The key of an absolute path in this area; None for a path elsewhere."""
        try:
            return str(Path(os.path.normpath(path)).relative_to(self.root))
        except ValueError:
            return None

    @contextmanager
    def parent(self, key: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory the file is in, and its name there."""
        *directories, name = split_key(key)
        fd = os.dup(self._fd)
        try:
            for part in directories:
                inner = _open_directory(part, fd, create=create)
                os.close(fd)
                fd = inner
            yield fd, name
        finally:
            os.close(fd)

    def open(self, key: str, flags: int) -> FileIO:
        """A regular file. Raises NotFound, or OutsideArea for links and directories."""
        with self.parent(key, create=bool(flags & os.O_CREAT)) as (directory, name):
            return open_regular(directory, name, flags)

    def look(self, key: str) -> os.stat_result | None:
        """Of the file or directory of that name; None where there is none, or only a link."""
        try:
            with self.parent(key) as (directory, name):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (NotFound, OutsideArea, OSError):
            return None
        return None if stat.S_ISLNK(status.st_mode) else status

    def read_names(self, key: str) -> list[str]:
        """Regular files below a directory, as paths relative to it."""
        if not [part for part in key.split("/") if part]:
            return sorted(_walk(os.dup(self._fd), "", most=MOST_LISTED))
        with self.parent(key) as (directory, name):
            return sorted(_walk(_open_directory(name, directory, create=False), "", most=MOST_LISTED))

    def used_bytes(self) -> int:
        """Of regular files."""
        return _measure(os.dup(self._fd))

    def remove(self, key: str) -> bool:
        """A directory with all in it, or a file with the files named after it. False when there is nothing."""
        try:
            with self.parent(key) as (directory, name):
                try:
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    return False
                if stat.S_ISDIR(found.st_mode):
                    shutil.rmtree(name, dir_fd=directory)
                    return True
                os.unlink(name, dir_fd=directory)
                for other in [other for other in os.listdir(directory) if other.startswith(f"{name}.")]:
                    with contextlib.suppress(IsADirectoryError):  # another model's
                        os.unlink(other, dir_fd=directory)
                return True
        except NotFound:
            return False

    def remove_older(self, names: re.Pattern[str], *, before_s: float) -> int:
        """Regular files of such names that were last written before that time. How many went."""
        removed = 0
        for name in filter(names.fullmatch, _walk(os.dup(self._fd), "", most=None)):
            with contextlib.suppress(NotFound, FileNotFoundError), self.parent(name) as (directory, last):
                if os.stat(last, dir_fd=directory, follow_symlinks=False).st_mtime < before_s:
                    os.unlink(last, dir_fd=directory)
                    removed += 1
        return removed


def open_regular(directory: int, name: str, flags: int) -> FileIO:
    try:
        # Without O_NONBLOCK a pipe somebody put there would hold us for ever.
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o644, dir_fd=directory)
    except FileNotFoundError:
        raise NotFound(f"there is no file {name!r}") from None
    except OSError as error:
        raise _refused(name, error) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OutsideArea(f"{name!r} is not a file")
    if flags & os.O_CREAT and _is_shared(directory):
        os.fchmod(fd, _SHARED_FILE)
    return FileIO(fd, "r+" if flags & os.O_RDWR else "w" if flags & os.O_WRONLY else "r")


def _open_directory(name: str, inside: int, *, create: bool) -> int:
    try:
        if create:
            with contextlib.suppress(FileExistsError):  # a directory, or something the next line refuses
                os.mkdir(name, 0o755, dir_fd=inside)
        fd = os.open(name, _DIRECTORY, dir_fd=inside)
        if create and _is_shared(inside) and not _is_shared(fd, as_in=inside):
            os.fchown(fd, -1, os.fstat(inside).st_gid)
            os.fchmod(fd, _SHARED_DIRECTORY)
        return fd
    except FileNotFoundError:
        raise NotFound(f"there is no directory {name!r}") from None
    except OSError as error:
        raise _refused(name, error) from error


def _is_shared(directory: int, *, as_in: int | None = None) -> bool:
    """`as_in`: with the same group as that directory, and by the same rights."""
    status = os.fstat(directory)
    if as_in is None:
        return bool(status.st_mode & stat.S_ISGID)
    return (stat.S_IMODE(status.st_mode), status.st_gid) == (_SHARED_DIRECTORY, os.fstat(as_in).st_gid)


def _refused(name: str, error: OSError) -> Exception:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
        return OutsideArea(f"{name!r} is a link, or has the wrong type (file or directory)")
    return error


def _measure(fd: int) -> int:
    """Closes `fd`."""
    total = 0
    try:
        for entry in os.scandir(fd):
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                if entry.is_dir(follow_symlinks=False):
                    total += _measure(os.open(entry.name, _DIRECTORY, dir_fd=fd))
                elif entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
    finally:
        os.close(fd)
    return total


def _walk(fd: int, prefix: str, *, most: int | None) -> list[str]:
    """Closes `fd`. Links are not followed and not listed."""
    found: list[str] = []
    try:
        for entry in os.scandir(fd):
            if entry.is_dir(follow_symlinks=False):
                found += _walk(os.open(entry.name, _DIRECTORY, dir_fd=fd), f"{prefix}{entry.name}/", most=most)
            elif entry.is_file(follow_symlinks=False):
                found.append(prefix + entry.name)
            if most is not None and len(found) > most:
                raise InvalidInput(f"there are more than {most} files, the limit of a listing")
    finally:
        os.close(fd)
    return found
