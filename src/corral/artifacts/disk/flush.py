"""Flushing to disk, so that data survives a power loss."""

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from corral.artifacts.cancel import SLICE_S, CancelToken
from corral.artifacts.errors import disk_errors

_SYNC_FILE_RANGE_WRITE = 2
_AT_FDCWD = -100
RENAME_EXCHANGE = 2


def start_writeback(descriptor: int) -> None:
    """Starts writing a large file to disk while the rest is still being unpacked, so that `settle` waits for less."""
    if sys.platform == "linux":
        _libc().sync_file_range(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)  # a hint: errors show in `settle`


@contextmanager
def settling(path: Path) -> Iterator[Callable[[CancelToken | None], None]]:
    """Yields `settle`, which waits until everything written under `path` survives a power loss: one call for a tree of
    100,000 files. Enter it before the first file is written, because the kernel reports a failed write once, and only
    to descriptors that were open at that time. With a token, a cancel that discards everything does not wait for a slow
    disk. Callers that keep the files pass no token."""
    with disk_errors(f"opening {path}"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def settle(cancel: CancelToken | None) -> None:
        with disk_errors(f"flushing {path}"):
            if cancel is None:
                _flush(descriptor)
            else:
                _flush_unless_discarded(descriptor, cancel)

    try:
        yield settle
    finally:
        os.close(descriptor)


def _flush(descriptor: int) -> None:
    if sys.platform != "linux":
        os.sync()
    elif _libc().syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _flush_unless_discarded(descriptor: int, cancel: CancelToken) -> None:
    """A flush cannot be interrupted, so after a cancel it finishes in the background."""
    own = os.dup(descriptor)
    flushed: Future[None] = Future()

    def run() -> None:
        try:
            _flush(own)
        except BaseException as error:  # noqa: BLE001  it is raised again where the flush is waited for
            flushed.set_exception(error)
        else:
            flushed.set_result(None)
        finally:
            os.close(own)

    threading.Thread(target=run, name="flush", daemon=True).start()
    while not flushed.done() and not cancel.discards:
        wait((flushed,), timeout=SLICE_S)
    if not flushed.done():
        cancel.check()
    flushed.result()


def exchange(one: Path, other: Path, *, flags: int = RENAME_EXCHANGE) -> None:
    """Exchanges two directories atomically; where the system cannot, `one` replaces `other` in two steps."""
    if sys.platform == "linux" and hasattr(_libc(), "renameat2"):
        names = (os.fsencode(one), os.fsencode(other))
        if _libc().renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flags) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    aside = one.with_name(f"{one.name}.old")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return libc


def settle_directory(path: Path) -> None:
    """Makes a rename or unlink in `path` survive a power loss."""
    with disk_errors(f"flushing {path}"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
