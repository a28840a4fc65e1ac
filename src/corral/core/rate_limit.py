"""So much at once, and so much more as time goes on; for each of a bounded number of keys."""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenBucket:
    most: float
    """What a key may take that has not been seen for a while."""
    per_s: float
    """How fast what was taken comes back."""


class RateLimiter:
    """Of more keys than it has room for, it forgets the one that took least recently."""

    def __init__(self, allowance: TokenBucket, *, keys_most: int) -> None:
        self._allowance = allowance
        self._keys_most = keys_most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What was left, and when."""

    def __len__(self) -> int:
        return len(self._left)

    def wait_s(self, key: str, now_s: float) -> float:
        """Until `key` may take again; 0 when it may now."""
        return max(0.0, 1.0 - self._left_now(key, now_s)) / self._allowance.per_s

    def take(self, key: str, now_s: float) -> bool:
        """False, and nothing is taken, when there is nothing left."""
        left = self._left_now(key, now_s)
        if left < 1.0:
            return False
        self._left[key] = (left - 1.0, now_s)
        self._left.move_to_end(key)
        if len(self._left) > self._keys_most:
            self._left.popitem(last=False)
        return True

    def _left_now(self, key: str, now_s: float) -> float:
        left, at_s = self._left.get(key, (self._allowance.most, now_s))
        return min(self._allowance.most, left + (now_s - at_s) * self._allowance.per_s)
