"""Traffic history: requests of the last hour, in slots of ten seconds."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

SLOT_S = 10.0
SLOTS = 360


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSample:
    """Requests within one slot. Samples of several frontends can be added."""

    requests: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    first_byte: tuple[int, ...] = ()
    """Responses by the time to their first byte, in the buckets of the metrics."""

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
    """The difference of two readings of increasing counters."""
    earlier = before.first_byte or (0,) * len(after.first_byte)
    return TrafficSample(
        requests=after.requests - before.requests,
        failed=after.failed - before.failed,
        tokens_in=after.tokens_in - before.tokens_in,
        tokens_out=after.tokens_out - before.tokens_out,
        first_byte=tuple(now - then for then, now in zip(earlier, after.first_byte, strict=True)),
    )


def estimate_quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Interpolated linearly within its bucket; None without values. `counts` has one bucket more than `bounds`, for
    values above the last bound; a quantile in it is the last bound."""
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
    """The last hour, one sample for each slot of a monotonic clock."""

    def __init__(self, *, now_s: float) -> None:
        self._began = _slot(now_s)
        self._samples: deque[tuple[int, TrafficSample]] = deque()

    def add(self, sample: TrafficSample, *, now_s: float) -> None:
        slot = _slot(now_s)
        if self._samples and self._samples[-1][0] == slot:
            sample = self._samples.pop()[1] + sample
        self._samples.append((slot, sample))
        while self._samples[0][0] <= slot - SLOTS:
            self._samples.popleft()

    def read(self, *, now_s: float) -> list[tuple[float, TrafficSample]]:
        """Oldest first: how long ago each complete slot ended, and its sample. Begins when counting began."""
        current = _slot(now_s)
        found = dict(self._samples)
        first = max(self._began + 1, current - SLOTS + 1)
        return [(now_s - (slot + 1) * SLOT_S, found.get(slot, TrafficSample())) for slot in range(first, current)]


def _slot(now_s: float) -> int:
    return int(now_s // SLOT_S)
