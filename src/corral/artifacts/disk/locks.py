"""Locks between processes that share a data directory, such as the worker and `corral artifacts`.

The kernel releases them when a process dies, so a killed install blocks nothing.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import disk_errors

POLL_S = 0.05


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock until it is closed, or None when another process has the lock."""
    with disk_errors("taking a lock"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:  # an interrupt must not leave the descriptor open
        os.close(descriptor)
        raise
    return descriptor


def sweep_locks(directory: Path) -> None:
    """Removes lock files that nobody holds. Only while no install runs: removing a file that somebody waits for would
    let two in."""
    for path in directory.glob("*.lock"):
        descriptor = try_lock(path)
        if descriptor is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)


@contextmanager
def held(directory: Path, name: str, cancel: CancelToken, *, shared: bool = False) -> Iterator[None]:
    """Waits for the lock `name`. Two threads of one process exclude each other too."""
    directory.mkdir(parents=True, exist_ok=True)
    while (descriptor := try_lock(directory / f"{name}.lock", shared=shared)) is None:
        cancel.wait(POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)
