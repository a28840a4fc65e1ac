"""Checks, before every heartbeat, for conditions that prevent new work on this node."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.processes.ports import NoPortLeft
from corral.core.sizes import format_bytes
from corral.system import Clock, Disk
from corral.worker.membership.identity import IDENTITY_FILE

PROBE_EVERY_S = 30.0
PROBE_FILE = ".write-probe"


class Conditions:
    """Blocking work runs in a thread, so that a hanging disk does not block the event loop."""

    def __init__(
        self,
        data_dir: Path,
        *,
        disk: Disk,
        clock: Clock,
        headroom_bytes: int,
        ports_left: Callable[[], NoPortLeft | None],
    ) -> None:
        self._data_dir, self._disk, self._clock = data_dir, disk, clock
        self._headroom_bytes, self._ports_left = headroom_bytes, ports_left
        self._probe_s = float("-inf")
        self._unwritable: OSError | None = None

    async def read(self) -> list[Condition]:
        found = await asyncio.to_thread(self._read_disk)
        no_port = self._ports_left()
        if no_port is not None:
            found.append(
                Condition(
                    kind=ConditionKind.PORTS_EXHAUSTED,
                    reason=no_port.reason,
                    remedy="Stop a process, or widen the range with CORRAL_BACKEND_PORTS.",
                )
            )
        return found

    def _read_disk(self) -> list[Condition]:
        try:
            if self._disk.read(self._data_dir / IDENTITY_FILE) is None:
                return [_data_directory(f"{self._data_dir} was removed or replaced while the worker was running")]
            self._probe()
        except OSError as error:
            return [_data_directory(f"{self._data_dir} cannot be read: {error.strerror}")]
        if self._unwritable is not None and self._unwritable.errno not in (errno.ENOSPC, errno.EDQUOT):
            return [_data_directory(f"{self._data_dir} cannot be written: {self._unwritable.strerror}")]
        free = self._disk.free_bytes(self._data_dir)
        if free >= self._headroom_bytes and self._unwritable is None:
            return []
        return [
            Condition(
                kind=ConditionKind.DISK_PRESSURE,
                reason=f"its disk has {format_bytes(free)} free, less than the required headroom of"
                f" {format_bytes(self._headroom_bytes)}",
                remedy=f"Delete unused backends or models, or free space on the file system of {self._data_dir}.",
            )
        ]

    def _probe(self) -> None:
        """Writes a file from time to time, to detect a read-only or full file system."""
        now_s = self._clock.monotonic_s()
        if now_s < self._probe_s and self._unwritable is None:
            return
        self._probe_s = now_s + PROBE_EVERY_S
        try:
            self._disk.write(self._data_dir / PROBE_FILE, b"")
            self._disk.remove(self._data_dir / PROBE_FILE)
            self._unwritable = None
        except OSError as error:
            self._unwritable = error


def _data_directory(reason: str) -> Condition:
    return Condition(
        kind=ConditionKind.DATA_DIRECTORY,
        reason=reason,
        remedy="Restore the directory (or make it writable) and start the worker again.",
    )
