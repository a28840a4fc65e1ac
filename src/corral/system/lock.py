"""Locks of data directories: one process of a kind per directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corral.core.errors import Conflict, Unavailable


def is_locked(directory: Path, what: str) -> bool:
    """Whether a process of this kind uses the directory."""
    try:
        handle = os.open(directory / f"{what}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def lock_directory(directory: Path, what: str) -> Iterator[int]:
    """Holds the lock while the block runs, and gives its descriptor. The kernel releases it when the process ends for
    any reason."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(directory / f"{what}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(
            f"cannot use the data directory {directory}: {error.strerror}. Choose a writable one with --data-dir."
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            raise Conflict(
                f"a Corral {what} (process {holder}) already uses {directory}."
                " Stop it first, or use another --data-dir."
            ) from None
        with suppress(OSError):  # on a full disk the lock is held without the process id
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield handle
    finally:
        os.close(handle)
