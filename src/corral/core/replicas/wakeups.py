"""Wakes loads that wait for capacity as soon as new capacity appears. A node that flaps wakes them once per pause."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

Offer = Hashable
"""A healthy node and all its properties that placement uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityWakeups:
    """State from one check to the next."""

    offers: frozenset[Offer] = frozenset()
    woken_s: Mapping[Offer, float] = field(default_factory=dict)
    """When each offer last woke waiting loads."""
    deferred: frozenset[Offer] = frozenset()
    """They returned within the pause, and count when it is over."""


def plan_wake(
    state: CapacityWakeups, offers: frozenset[Offer], *, now_s: float, pause_s: float
) -> tuple[bool, CapacityWakeups]:
    """Whether to wake waiting loads now, and the state for the next check."""

    def is_due(offer: Offer) -> bool:
        last_s = state.woken_s.get(offer)
        return last_s is None or now_s - last_s >= pause_s

    candidates = (offers - state.offers) | (state.deferred & offers)
    due = frozenset(offer for offer in candidates if is_due(offer))
    recent = {offer: at_s for offer, at_s in state.woken_s.items() if now_s - at_s < pause_s}
    left = CapacityWakeups(offers=offers, woken_s={**recent, **dict.fromkeys(due, now_s)}, deferred=candidates - due)
    return bool(due), left


def first_check(offers: frozenset[Offer], *, now_s: float) -> CapacityWakeups:
    """Capacity that exists at the start is not new."""
    return CapacityWakeups(offers=offers, woken_s=dict.fromkeys(offers, now_s))
