"""Who waits for room is tried again on new capacity, and not at every twitch of a machine that comes and goes."""

from itertools import pairwise

from corral.core.replicas.wakeups import CapacityWakeups, first_check, plan_wake

PAUSE_S = 30.0
A, B = "a", "b"


def look(wakes: CapacityWakeups, *there: str, at_s: float) -> tuple[bool, CapacityWakeups]:
    return plan_wake(wakes, frozenset(there), now_s=at_s, pause_s=PAUSE_S)


def test_a_new_machine_wakes_at_once() -> None:
    woke, after = look(first_check(frozenset({A}), now_s=0), A, B, at_s=1)
    assert woke
    assert look(after, A, B, at_s=2)[0] is False, "once"


def test_a_machine_that_flaps_wakes_once_in_a_pause_and_is_not_forgotten() -> None:
    wakes = first_check(frozenset({A}), now_s=0)
    tries = []
    for second in range(300):
        there = (A,) if second % 2 else ()
        woke, wakes = look(wakes, *there, at_s=second)
        if woke:
            tries.append(second)
    assert 8 <= len(tries) <= 10, "a try each pause, however often it comes and goes"
    assert all(later - sooner >= PAUSE_S for sooner, later in pairwise(tries))


def test_what_came_back_too_soon_counts_when_the_pause_is_over() -> None:
    _, wakes = look(first_check(frozenset({A}), now_s=0), at_s=1)
    woke, wakes = look(wakes, A, at_s=2)
    assert not woke
    assert next(second for second in range(3, 40) if look(wakes, A, at_s=second)[0]) == PAUSE_S


def test_nothing_is_kept_of_machines_that_left_long_ago() -> None:
    wakes = first_check(frozenset({A}), now_s=0)
    _, wakes = look(wakes, at_s=1)
    _, wakes = look(wakes, at_s=100)
    assert wakes == CapacityWakeups()
