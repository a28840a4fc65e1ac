"""When loads that wait for room are tried before their time: on new capacity, which a machine that comes and goes is
only once in a while."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

Offer = Hashable
"""A healthy machine and all about it that placement looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityWakeups:
    """What one look leaves for the next."""

    there: frozenset[Offer] = frozenset()
    woken_s: Mapping[Offer, float] = field(default_factory=dict)
    """When each last woke those who wait."""
    owed: frozenset[Offer] = frozenset()
    """They came back too soon, and count when the pause is over."""


def plan_wake(
    wakes: CapacityWakeups, there: frozenset[Offer], *, now_s: float, pause_s: float
) -> tuple[bool, CapacityWakeups]:
    """Whether to wake now. What was there at the first look is no news."""

    def is_due(offer: Offer) -> bool:
        last_s = wakes.woken_s.get(offer)
        return last_s is None or now_s - last_s >= pause_s

    candidates = (there - wakes.there) | (wakes.owed & there)
    due = frozenset(offer for offer in candidates if is_due(offer))
    recent = {offer: at_s for offer, at_s in wakes.woken_s.items() if now_s - at_s < pause_s}
    left = CapacityWakeups(there=there, woken_s={**recent, **dict.fromkeys(due, now_s)}, owed=candidates - due)
    return bool(due), left


def first_look(there: frozenset[Offer], *, now_s: float) -> CapacityWakeups:
    return CapacityWakeups(there=there, woken_s=dict.fromkeys(there, now_s))
