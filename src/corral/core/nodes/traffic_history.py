"""The fleet's pulse: what was answered lately, in short slots of time, over the last hour."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

SLOT_S = 10.0
SLOTS = 360


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSample:
    """What happened within one slot. Two frontends' beats add up."""

    requests: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    first_byte: tuple[int, ...] = ()
    """Answers by the time to their first byte, in the buckets of the meters."""

    def __add__(self, other: "TrafficSample") -> "TrafficSample":
        return TrafficSample(
            requests=self.requests + other.requests,
            failed=self.failed + other.failed,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            first_byte=_add(self.first_byte, other.first_byte),
        )


def _add(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    if not one or not other:
        return tuple(one or other)
    return tuple(a + b for a, b in zip(one, other, strict=True))


def sample_between(before: TrafficSample, after: TrafficSample) -> TrafficSample:
    """What was added between two readings of counters that only grow."""
    earlier = before.first_byte or (0,) * len(after.first_byte)
    return TrafficSample(
        requests=after.requests - before.requests,
        failed=after.failed - before.failed,
        tokens_in=after.tokens_in - before.tokens_in,
        tokens_out=after.tokens_out - before.tokens_out,
        first_byte=tuple(now - then for then, now in zip(earlier, after.first_byte, strict=True)),
    )


def estimate_quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Within the bucket where it lies, evenly spread; None without a single value. `counts` has one bucket more, for
    what lies above all bounds, of which only the lowest value is known."""
    total = sum(counts)
    if total == 0:
        return None
    rank, below, lower = share * total, 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return lower


class TrafficHistory:
    """The last hour, one beat for each slot of a clock that never goes back."""

    def __init__(self, *, now_s: float) -> None:
        self._began = _slot(now_s)
        self._beats: deque[tuple[int, TrafficSample]] = deque()

    def add(self, beat: TrafficSample, *, now_s: float) -> None:
        slot = _slot(now_s)
        if self._beats and self._beats[-1][0] == slot:
            beat = self._beats.pop()[1] + beat
        self._beats.append((slot, beat))
        while self._beats[0][0] <= slot - SLOTS:
            self._beats.popleft()

    def read(self, *, now_s: float) -> list[tuple[float, TrafficSample]]:
        """Oldest first: how long ago each complete slot ended, and its beat. Nothing before this began to count."""
        current = _slot(now_s)
        found = dict(self._beats)
        first = max(self._began + 1, current - SLOTS + 1)
        return [(now_s - (slot + 1) * SLOT_S, found.get(slot, TrafficSample())) for slot in range(first, current)]


def _slot(now_s: float) -> int:
    return int(now_s // SLOT_S)
