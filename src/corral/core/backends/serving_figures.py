"""How a version serves: requests, errors, times to the first token, and speed, as sums that can be added up over nodes,
minutes and frontends."""

from dataclasses import dataclass
from typing import NamedTuple

FIRST_TOKEN_BOUNDS_S = tuple(round(0.001 * 10 ** (step / 10), 6) for step in range(52))
"""The upper ends of the buckets for the time to the first token: ten to a decade, from 1 ms to 126 s."""
BUCKETS = len(FIRST_TOKEN_BOUNDS_S) + 1
"""The last one is for longer times."""


class VersionKey(NamedTuple):
    """One version as it serves one model on one node."""

    model: str
    node_id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFigures:
    requests: int = 0
    errors: int = 0
    """Answers of the class 5xx, failed attempts, and answers that broke off. Not those whose client left."""
    first_token: tuple[int, ...] = (0,) * BUCKETS
    """Streams by the time from sending the request to their first token, in the buckets of `FIRST_TOKEN_BOUNDS_S`."""
    tokens_out: int = 0
    answer_ms: int = 0
    """The time from sending the request to the end of its answer, over all answers with tokens."""

    def __add__(self, other: "ServingFigures") -> "ServingFigures":
        return ServingFigures(
            requests=self.requests + other.requests,
            errors=self.errors + other.errors,
            first_token=tuple(map(int.__add__, self.first_token, other.first_token)),
            tokens_out=self.tokens_out + other.tokens_out,
            answer_ms=self.answer_ms + other.answer_ms,
        )

    @property
    def streams(self) -> int:
        return sum(self.first_token)

    @property
    def error_rate(self) -> float | None:
        return self.errors / self.requests if self.requests else None

    @property
    def tokens_per_s(self) -> float | None:
        """Of one answer, on average: the sum over simultaneous ones is higher."""
        return self.tokens_out * 1000 / self.answer_ms if self.tokens_out and self.answer_ms else None

    def first_token_s(self, share: float = 0.5) -> float | None:
        """The time that this share of the streams did not exceed, 0.5 for the median. Within a bucket, times count as
        evenly spread."""
        if not self.streams:
            return None
        rank, below = share * self.streams, 0
        for bucket, count in enumerate(self.first_token):
            if count and below + count >= rank:
                low = FIRST_TOKEN_BOUNDS_S[bucket - 1] if bucket else 0.0
                high = FIRST_TOKEN_BOUNDS_S[min(bucket, BUCKETS - 2)]
                return low + (high - low) * (rank - below) / count
            below += count
        return FIRST_TOKEN_BOUNDS_S[-1]
