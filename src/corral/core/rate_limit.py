"""Rate limiting: a token bucket for each of a bounded number of keys."""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenBucket:
    capacity: float
    """How many tokens a full bucket has."""
    per_s: float
    """How many tokens are added per second."""


class RateLimiter:
    """One bucket for each key. Beyond `max_keys`, the least recently used key is forgotten."""

    def __init__(self, bucket: TokenBucket, *, max_keys: int) -> None:
        self._bucket = bucket
        self._max_keys = max_keys
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By key: the tokens left, and when that was."""

    def __len__(self) -> int:
        return len(self._left)

    def wait_s(self, key: str, now_s: float) -> float:
        """Seconds until `key` may take a token; 0 if it may now."""
        return max(0.0, 1.0 - self._left_now(key, now_s)) / self._bucket.per_s

    def take(self, key: str, now_s: float) -> bool:
        """Takes one token; False if there is none left."""
        left = self._left_now(key, now_s)
        if left < 1.0:
            return False
        self._left[key] = (left - 1.0, now_s)
        self._left.move_to_end(key)
        if len(self._left) > self._max_keys:
            self._left.popitem(last=False)
        return True

    def _left_now(self, key: str, now_s: float) -> float:
        left, at_s = self._left.get(key, (self._bucket.capacity, now_s))
        return min(self._bucket.capacity, left + (now_s - at_s) * self._bucket.per_s)
