"""Picks the replica for a request. Random numbers are arguments."""

import zlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from corral.core.replicas.routing import RoutePolicy


class LoadedReplica(Protocol):
    @property
    def outstanding(self) -> int: ...

    @property
    def hash_key(self) -> bytes: ...


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


def pick_by_hint(candidates: Sequence[T], hint: bytes, policy: RoutePolicy) -> T | None:
    """The replica that all frontends pick for `hint`; None when it is too busy."""
    hinted = max(candidates, key=lambda candidate: zlib.crc32(hint + candidate.hash_key))
    least = min(candidate.outstanding for candidate in candidates)
    allowed = max(least + policy.balance_abs_threshold, int(least * policy.balance_rel_threshold))
    return hinted if hinted.outstanding <= allowed else None
