"""Picks the replica for a request. Random numbers are arguments."""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from corral.core.replicas.routing import RoutePolicy


class LoadedReplica(Protocol):
    @property
    def outstanding(self) -> int: ...

    @property
    def hash_key(self) -> bytes: ...

    @property
    def weight(self) -> int: ...


T = TypeVar("T", bound=LoadedReplica)


def pick_two(candidates: Sequence[T], draw: Callable[[], float]) -> tuple[T, T]:
    """The power of two choices: two replicas at random, the less busy first, so that frontends do not all pick the same
    one. A single replica is returned twice."""
    count = len(candidates)
    if count == 1:
        return candidates[0], candidates[0]
    first = int(draw() * count)
    second = int(draw() * (count - 1))
    if second >= first:
        second += 1
    one, other = candidates[first], candidates[second]
    return (other, one) if other.outstanding < one.outstanding else (one, other)


def pick_two_weighted(candidates: Sequence[T], draw: Callable[[], float]) -> tuple[T, T]:
    """As `pick_two`, for replicas with different weights. Each is drawn as often as its weight says, and may have as
    many more requests. Of two that are equally busy, the first draw decides."""
    if len(candidates) == 1:
        return candidates[0], candidates[0]
    first = _draw_by_weight(candidates, draw())
    one = candidates[first]
    others = [candidate for at, candidate in enumerate(candidates) if at != first]
    other = others[_draw_by_weight(others, draw())]
    return (other, one) if other.outstanding * one.weight < one.outstanding * other.weight else (one, other)


def _draw_by_weight(candidates: Sequence[LoadedReplica], drawn: float) -> int:
    rest = drawn * sum(candidate.weight for candidate in candidates)
    for at, candidate in enumerate(candidates):
        rest -= candidate.weight
        if rest < 0:
            return at
    return len(candidates) - 1


def _hash_score(candidate: LoadedReplica, hint: bytes) -> float:
    """Rendezvous hashing: the highest score of all candidates wins, as often as the weights say."""
    part = (zlib.crc32(hint + candidate.hash_key) + 1) / (2**32 + 1)
    return -candidate.weight / math.log(part)


def pick_by_hint(candidates: Sequence[T], hint: bytes, policy: RoutePolicy, *, is_weighted: bool = False) -> T | None:
    """The replica that all frontends pick for `hint`; None when it is too busy."""
    if is_weighted:
        hinted = max(candidates, key=lambda candidate: _hash_score(candidate, hint))
    else:
        hinted = max(candidates, key=lambda candidate: zlib.crc32(hint + candidate.hash_key))
    least = min(candidate.outstanding for candidate in candidates)
    allowed = max(least + policy.balance_abs_threshold, int(least * policy.balance_rel_threshold))
    return hinted if hinted.outstanding <= allowed else None
