"""Progress of one artifact over all its layers. It never decreases."""

import threading
from collections import deque
from collections.abc import Callable
from enum import IntEnum

from corral.core.transfer import TransferProgress
from corral.system import Clock


class Phase(IntEnum):
    """In order. An artifact is in the earliest phase of any of its layers."""

    RESOLVING = 0
    DOWNLOADING = 1
    VERIFYING = 2
    EXTRACTING = 3
    READY = 4

    @property
    def label(self) -> str:
        return self.name.lower()


def later_phase(one: str, other: str) -> str:
    """The later of two phases."""
    return max(one, other, key=lambda label: Phase[label.upper()])


OnProgress = Callable[[TransferProgress], None]

RATE_WINDOW_S = 5.0


class ProgressMeter:
    """Adds up what parallel layers report and passes it on, at most every `every_s`, plus each change of phase."""

    def __init__(self, report: OnProgress | None, clock: Clock, *, every_s: float = 0.1) -> None:
        self._report = report
        self._clock = clock
        self._every_s = every_s
        self._lock = threading.Lock()
        self._phase = Phase.RESOLVING
        self._file = ""
        self._total: int | None = None
        self._file_index: int | None = None
        self._total_files: int | None = None
        self._done = 0
        self._percentage = 0.0
        self._moved: deque[tuple[float, int]] = deque()
        self._moved_bytes = 0
        self._last_report_s = float("-inf")

    def expect(self, total: int | None) -> None:
        with self._lock:
            self._total = total

    def begin_file(self, index: int, *, of: int) -> None:
        with self._lock:
            self._file_index, self._total_files = index, of
            self._send(force=False)

    def enter(self, phase: Phase, file: str = "") -> None:
        with self._lock:
            changed = phase > self._phase or self._last_report_s == float("-inf")
            self._phase = max(phase, self._phase)
            self._file = file or self._file
            if changed:
                self._send(force=True)

    def cached(self, count: int) -> None:
        """Counts bytes that need no transfer. They do not count towards the rate."""
        with self._lock:
            self._done += count
            self._send(force=self._all_here())

    def moved(self, count: int, file: str = "") -> None:
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._done += count
            self._file = file or self._file
            self._moved.append((now_s, count))
            self._moved_bytes += count
            while self._moved and now_s - self._moved[0][0] > RATE_WINDOW_S:
                self._moved_bytes -= self._moved.popleft()[1]
            self._send(force=self._all_here())

    def _all_here(self) -> bool:
        """Whether the last byte has arrived. Only hashing and unpacking remain then."""
        if self._phase is not Phase.DOWNLOADING or self._total is None or self._done < self._total:
            return False
        self._phase = Phase.VERIFYING
        return True

    def taken_back(self, count: int) -> None:
        """Subtracts bytes that have to be fetched again. The percentage stays until they have arrived."""
        with self._lock:
            self._done -= count

    def finish(self) -> None:
        with self._lock:
            self._phase = Phase.READY
            if self._total is not None:
                self._done = self._total
            self._send(force=True)

    def _send(self, *, force: bool) -> None:
        if self._report is None:
            return
        now_s = self._clock.monotonic_s()
        if not force and now_s - self._last_report_s < self._every_s:
            return
        self._last_report_s = now_s
        self._report(self._snapshot(now_s))

    def _snapshot(self, now_s: float) -> TransferProgress:
        done, total = max(0, self._done), self._total
        if total is not None:
            done = min(done, total)
        span_s = max(0.25, now_s - self._moved[0][0]) if self._moved else 1.0
        rate = self._moved_bytes / span_s
        if self._phase is Phase.READY:
            self._percentage = 100.0
        elif total:
            # 100 is for ready alone: all bytes here is not yet a backend that can start.
            self._percentage = max(self._percentage, min(99.0, 100.0 * done / total))
        return TransferProgress(
            phase=self._phase.label,
            file_name=self._file,
            bytes_done=done,
            bytes_total=total,
            percentage=round(self._percentage, 1),
            rate_bytes_per_s=round(rate, 1),
            eta_s=round((total - done) / rate, 1) if total is not None and rate > 0 else None,
            file_index=self._file_index,
            total_files=self._total_files,
        )
