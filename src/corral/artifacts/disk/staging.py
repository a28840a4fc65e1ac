"""Work in progress. Every process has its own directory, locked while the process lives, so that the sweep at start can
tell the directories of dead processes from those in use."""

import errno
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import structlog

from corral.artifacts.disk.locks import try_lock
from corral.system import Ids

log = structlog.get_logger()


class Staging:
    def __init__(self, root: Path, ids: Ids) -> None:
        self._root = root
        self._ids = ids
        root.mkdir(parents=True, exist_ok=True)
        self._home = root / ids.uuid()
        self._home.mkdir()
        self._lock = try_lock(self._home / ".lock")
        self._remover = ThreadPoolExecutor(1, thread_name_prefix="remove")
        self._removals: set[Future[None]] = set()

    def new_path(self) -> Path:
        """A path that does not exist yet, on the same filesystem as the stores."""
        return self._home / self._ids.uuid()

    def discard(self, path: Path, *, behind: bool = False) -> None:
        """Moves `path` away atomically, then removes it. With `behind` the removal runs after returning, because
        removing a hundred thousand files takes many seconds."""
        hidden = self.new_path()
        try:
            path.rename(hidden)
        except FileNotFoundError:
            return
        if not behind:
            remove_tree(hidden)
            return
        removal = self._remover.submit(_remove_behind, hidden)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def await_removals(self) -> None:
        """Waits until the space of everything discarded so far is free."""
        wait(tuple(self._removals))

    def sweep(self) -> int:
        """Removes the directories of dead processes. Returns how many were removed."""
        cleared = 0
        for corner in sorted(self._root.iterdir()):
            if corner == self._home or not corner.is_dir():
                continue
            lock = try_lock(corner / ".lock")
            if lock is None:
                continue
            try:
                remove_tree(corner)
                cleared += 1
            finally:
                os.close(lock)
        return cleared

    def close(self) -> None:
        self._remover.shutdown()
        remove_tree(self._home)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_behind(path: Path) -> None:
    try:
        remove_tree(path)
    except OSError as error:
        log.warning("artifact.not_cleaned_up", error=str(error))


def remove_tree(path: Path) -> None:
    """Removes a tree without following links. Missing files are not an error."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
        return
    for last_try in (False, True):
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
            return
        except OSError as error:
            # The child of a process that was just killed may have been in the middle of creating one more file.
            if last_try or error.errno != errno.ENOTEMPTY:
                raise
