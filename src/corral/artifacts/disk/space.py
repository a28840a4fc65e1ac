"""Disk space reservations, made before a download and shared between concurrent installs."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.artifacts.errors import DiskFull
from corral.core.sizes import format_bytes

LOW_INODES = 1000


def _nothing_to_reclaim(_: int) -> None:
    return None


class SpaceReservations:
    """Space reserved by running installs. Two installs cannot reserve the same bytes."""

    def __init__(self, root: Path, reserve_bytes: int) -> None:
        self._root = root
        self._reserve_bytes = reserve_bytes
        self._lock = threading.Lock()
        self._reserved = 0

    def free_bytes(self) -> int:
        return shutil.disk_usage(self._root).free

    @contextmanager
    def reserve(self, needed: int, what: str, reclaim: Callable[[int], None] = _nothing_to_reclaim) -> Iterator[None]:
        """Reserves `needed` bytes for the block. Calls `reclaim` for more space before it fails."""
        with self._lock:
            missing = needed + self._reserve_bytes + self._reserved - self.free_bytes()
        if missing > 0:
            reclaim(missing)
        with self._lock:
            free = self.free_bytes()
            if needed + self._reserve_bytes + self._reserved > free:
                raise DiskFull(
                    f"{what} needs about {format_bytes(needed)}; {self._root} has {format_bytes(free)} free, and"
                    f" {format_bytes(self._reserve_bytes + self._reserved)} are reserved for other work. Free some"
                    f" space, for example with `corral artifacts --data-dir {self._root} prune`, and try again."
                )
            if os.statvfs(self._root).f_files and os.statvfs(self._root).f_favail < LOW_INODES:
                raise DiskFull(f"{what} cannot be unpacked: {self._root} has almost no inodes left.")
            self._reserved += needed
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= needed
