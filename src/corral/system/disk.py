"""Disk access of the roles. Downloads and unpacking have their own adapters."""

import errno
import os
import shutil
import stat
from contextlib import AbstractContextManager, suppress
from glob import escape
from pathlib import Path
from typing import Protocol

import psutil

from corral.system.lock import is_locked, lock_directory


class Disk(Protocol):
    """Blocking, short operations. Raise OSError on failure."""

    def read(self, path: Path) -> bytes | None:
        """None if the file does not exist."""
        ...

    def read_head(self, path: Path, most_bytes: int) -> tuple[bytes, int] | None:
        """The first bytes of a file and its size. None if there is no such file."""
        ...

    def write(self, path: Path, content: bytes) -> None:
        """Replaces the file atomically, readable only by its owner, and synced to disk on return."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file, if it exists."""
        ...

    def make_directory(self, path: Path, *, private: bool = True) -> None: ...

    def list(self, path: Path) -> list[Path]:
        """Sorted; empty if the directory does not exist."""
        ...

    def make_executable(self, path: Path) -> None:
        """For all users who may read it. Does nothing if the file does not exist or is a link."""
        ...

    def let_through(self, directory: Path) -> None:
        """Lets other users traverse the directory, but not list it."""
        ...

    def free_bytes(self, path: Path) -> int:
        """On the file system of `path`, or of its nearest existing parent."""
        ...

    def used_bytes(self, directory: Path) -> int:
        """Of all files below it; hard links count once."""
        ...

    def hold(self, directory: Path, what: str) -> AbstractContextManager[int]:
        """Locks the directory for one process of a kind; gives the lock's descriptor. Raises Conflict if another
        process holds it, Unavailable if it cannot be used."""
        ...

    def is_held(self, directory: Path, what: str) -> bool: ...


class SystemDisk:
    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: Path, content: bytes) -> None:
        self.make_directory(path.parent)
        _clear_drafts(path)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:  # an interrupt must not leave a part behind
            part.unlink(missing_ok=True)
            raise
        _flush_directory(path.parent)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def read_head(self, path: Path, most_bytes: int) -> tuple[bytes, int] | None:
        try:
            with path.open("rb") as file:
                return file.read(most_bytes), os.fstat(file.fileno()).st_size
        except (FileNotFoundError, IsADirectoryError):
            return None

    def make_directory(self, path: Path, *, private: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o755)

    def list(self, path: Path) -> list[Path]:
        try:
            return sorted(path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_executable(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return
            raise
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if not mode & 0o100:
                os.fchmod(descriptor, mode | (mode & 0o444) >> 2)
        finally:
            os.close(descriptor)

    def let_through(self, directory: Path) -> None:
        directory.chmod(0o711)

    def free_bytes(self, path: Path) -> int:
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free

    def used_bytes(self, directory: Path) -> int:
        sizes: dict[tuple[int, int], int] = {}
        for found in directory.rglob("*"):
            with suppress(FileNotFoundError):
                status = found.lstat()
                sizes[status.st_dev, status.st_ino] = status.st_size
        return sum(sizes.values())

    def hold(self, directory: Path, what: str) -> AbstractContextManager[int]:
        return lock_directory(directory, what)

    def is_held(self, directory: Path, what: str) -> bool:
        return is_locked(directory, what)


def _clear_drafts(path: Path) -> None:
    """Removes partial files of killed writers."""
    for draft in path.parent.glob(f".{escape(path.name)}.*"):
        writer = draft.name.rpartition(".")[2]
        if writer.isdecimal() and not psutil.pid_exists(int(writer)):
            draft.unlink(missing_ok=True)


def _flush_directory(path: Path) -> None:
    """A rename is durable only after its directory was synced."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
