"""Limits on the unpacked size of one artifact. All layers share one budget, so that many small archive bombs count as
one."""

import threading

from corral.artifacts.errors import BudgetExceeded, UnpackedTooLarge
from corral.artifacts.settings import UnpackLimits
from corral.core.sizes import format_bytes
from corral.system import Clock


class UnpackBudget:
    def __init__(self, limits: UnpackLimits, clock: Clock, *, disk_bytes: int) -> None:
        self.limits = limits
        self._clock = clock
        self._until_s = clock.monotonic_s() + limits.seconds
        self._most_bytes = min(limits.total_bytes, disk_bytes)
        self._by_disk = disk_bytes < limits.total_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._members = 0

    def member(self, size: int) -> None:
        """Called before a member is written. The size in its header must fit, so that a false size costs nothing."""
        with self._lock:
            fits = self._bytes + size <= self._most_bytes
            self._members += 1
            self._bytes += size if fits else 0
        if self._members > self.limits.members:
            raise BudgetExceeded(f"The archive has more than {self.limits.members} members.")
        if size > self.limits.file_bytes:
            raise BudgetExceeded(f"A member has {size} bytes; the limit is {self.limits.file_bytes}.")
        if not fits:
            if self._by_disk:
                raise UnpackedTooLarge(
                    f"The archive needs more than {format_bytes(self._most_bytes)}, the free disk space."
                )
            raise BudgetExceeded(
                f"The archive unpacks to more than {format_bytes(self._most_bytes)}, the limit for one artifact."
            )

    def give_back(self, size: int, members: int) -> None:
        """Called when what was written is removed, because its packed bytes were wrong."""
        with self._lock:
            self._members -= members
            self._bytes -= size

    def time(self) -> None:
        if self._clock.monotonic_s() > self._until_s:
            raise BudgetExceeded(f"Unpacking took longer than {self.limits.seconds:g} s.")


class RatioGuard:
    """Compares the input of one decompressor with its output."""

    def __init__(self, budget: UnpackBudget) -> None:
        self._limits = budget.limits
        self._budget = budget
        self.packed = 0
        self.unpacked = 0

    def check(self) -> None:
        self._budget.time()
        if self.unpacked < self._limits.ratio_floor_bytes:
            return
        if self.unpacked > self.packed * self._limits.ratio:
            raise BudgetExceeded(
                f"{self.packed} compressed bytes expanded to {self.unpacked}: more than {self._limits.ratio} times"
                " as much."
            )
