"""Public routes: one name for clients that leads to several models, with weights and an order of fallbacks."""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corral.core.errors import InvalidInput
from corral.core.models.config import check_model_name

TIERS_MAX = 8
TARGETS_MAX = 32
WEIGHT_MAX = 1000


@dataclass(frozen=True, slots=True)
class RouteTarget:
    model: str
    weight: int = 1
    """Its share of the requests, relative to the other targets of its tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicRoute:
    name: str
    tiers: tuple[tuple[RouteTarget, ...], ...]
    """The first is preferred. Each next one is the fallback for the tiers before it."""
    is_sticky: bool = False
    """Requests of one session go to the same target of a tier, as long as it serves."""

    @property
    def targets(self) -> tuple[RouteTarget, ...]:
        return tuple(target for tier in self.tiers for target in tier)

    @property
    def models(self) -> frozenset[str]:
        return frozenset(target.model for target in self.targets)


def check_public_route(route: PublicRoute) -> None:
    """Raises InvalidInput."""
    check_model_name(route.name, what="the name of a route")
    if not route.tiers or not all(route.tiers):
        raise InvalidInput(f"the route {route.name!r} leads nowhere; name at least one model for each step")
    if len(route.tiers) > TIERS_MAX or len(route.targets) > TARGETS_MAX:
        raise InvalidInput(f"a route has at most {TIERS_MAX} steps and {TARGETS_MAX} models")
    for target in route.targets:
        if not 1 <= target.weight <= WEIGHT_MAX:
            raise InvalidInput(f"the weight of {target.model!r} must be from 1 to {WEIGHT_MAX}")
    names = [target.model for target in route.targets]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"the route {route.name!r} names {', '.join(repeated)} more than once")


class TargetState(StrEnum):
    """What a target can do for one request now."""

    FREE = "free"
    BUSY = "busy"
    """All its replicas are at their limit, or are avoided after failures."""
    AWAY = "away"
    """It has no replica."""
    FAILED = "failed"
    """All its replicas have failed this request, or it cannot be loaded."""
    UNSUITED = "unsuited"
    """None of its replicas has the path of the request."""


_WAITED_FOR = (TargetState.FREE, TargetState.BUSY, TargetState.AWAY, TargetState.FAILED)


def order_targets(
    tiers: Sequence[Sequence[int]], *, draw: Callable[[], float], hint: bytes = b"", names: Sequence[bytes] = ()
) -> list[tuple[int, int]]:
    """The order in which targets are tried, as (tier, position among all targets). `tiers`: their weights. With `hint`,
    the order within a tier is that which all frontends find for it, by the `names` of the targets."""
    found: list[tuple[int, int]] = []
    first = 0
    for tier, weights in enumerate(tiers):
        # By chance too, the highest score decides: each is first as often as its weight says.
        scores = [
            weight / -math.log(_part_of(hint, names[first + at]) if hint else max(draw(), 1e-12))
            for at, weight in enumerate(weights)
        ]
        found += [(tier, first + at) for at in sorted(range(len(weights)), key=lambda at: -scores[at])]
        first += len(weights)
    return found


def _part_of(hint: bytes, name: bytes) -> float:
    return (zlib.crc32(hint + b"\0" + name) + 1) / (2**32 + 1)


def pick_target(states: Sequence[TargetState]) -> int:
    """Which of the targets, in the order of preference, gets the request. One that can serve now is better than any
    that must be waited for; of those, one that is busy is better than one that must be loaded."""
    for wanted in _WAITED_FOR:
        if wanted in states:
            return states.index(wanted)
    return 0


def find_skipped(tiers: Sequence[int], chosen: int) -> list[int]:
    """The targets of earlier tiers, in whose place the chosen one gets the request. Without any it is no fallback."""
    return [at for at, tier in enumerate(tiers) if tier < tiers[chosen]]
