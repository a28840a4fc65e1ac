import random
from collections import Counter

import pytest

from corral.core.errors import InvalidInput
from corral.core.replicas.public_routes import (
    PublicRoute,
    RouteTarget,
    TargetState,
    check_public_route,
    find_skipped,
    order_targets,
    pick_target,
)

FREE, BUSY, AWAY, FAILED, UNSUITED = TargetState


@pytest.mark.parametrize(
    ("states", "chosen"),
    [
        pytest.param([FREE, FREE], 0, id="the-first-choice-where-it-can-serve"),
        pytest.param([BUSY, FREE], 1, id="the-fallback-while-the-first-is-busy"),
        pytest.param([AWAY, FREE], 1, id="the-fallback-while-the-first-is-away"),
        pytest.param([FAILED, FREE], 1, id="the-fallback-after-the-first-failed"),
        pytest.param([BUSY, BUSY], 0, id="it-waits-at-the-first-if-all-are-busy"),
        pytest.param([AWAY, BUSY], 1, id="a-busy-one-answers-sooner-than-one-that-must-be-loaded"),
        pytest.param([AWAY, FAILED], 0, id="a-load-is-better-than-one-that-failed"),
        pytest.param([AWAY, AWAY], 0, id="the-first-is-loaded"),
        pytest.param([UNSUITED, BUSY], 1, id="one-without-the-path-is-never-waited-for"),
        pytest.param([UNSUITED, FAILED], 1, id="not-even-instead-of-one-that-failed"),
        pytest.param([UNSUITED], 0, id="without-any-other-it-says-why"),
    ],
)
def test_the_model_of_a_route_that_gets_a_request(states: list[TargetState], chosen: int) -> None:
    assert pick_target(states) == chosen


def test_only_a_later_tier_is_a_fallback() -> None:
    assert find_skipped([0, 0, 1], 1) == []
    assert find_skipped([0, 0, 1], 2) == [0, 1]
    assert find_skipped([0, 1, 2], 1) == [0]


def test_tiers_keep_their_order_and_targets_of_one_tier_are_first_as_often_as_their_weights_say() -> None:
    draw = random.Random(3).random
    firsts: Counter[int] = Counter()
    for _ in range(4000):
        order = order_targets([[3, 1], [1]], draw=draw)
        assert [tier for tier, _ in order] == [0, 0, 1]
        assert sorted(at for _, at in order) == [0, 1, 2]
        firsts[order[0][1]] += 1
    assert 2800 < firsts[0] < 3200


def test_a_session_always_gets_the_same_order_and_sessions_are_shared_by_weight() -> None:
    names = [b"one", b"two"]

    def first(session: str) -> int:
        return order_targets([[3, 1]], draw=lambda: 0.5, hint=session.encode(), names=names)[0][1]

    sessions = [f"session-{number}" for number in range(2000)]
    found = Counter(map(first, sessions))
    assert [first(session) for session in sessions] == [first(session) for session in sessions]
    assert 1400 < found[0] < 1600


def route(*tiers: tuple[RouteTarget, ...], name: str = "chat") -> PublicRoute:
    return PublicRoute(name=name, tiers=tiers)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (route(), "leads nowhere"),
        (route((RouteTarget("a"),), ()), "leads nowhere"),
        (route((RouteTarget("a"), RouteTarget("a"))), "more than once"),
        (route((RouteTarget("a"),), (RouteTarget("a"),)), "more than once"),
        (route((RouteTarget("a", 0),)), "weight"),
        (route((RouteTarget("a", 9999),)), "weight"),
        (route((RouteTarget("a"),), name="x?y"), "not a valid"),
        (route(*((RouteTarget(str(number)),) for number in range(9))), "at most"),
        (route(tuple(RouteTarget(str(number)) for number in range(33))), "at most"),
    ],
)
def test_a_route_that_cannot_be_followed_is_refused(wrong: PublicRoute, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_public_route(wrong)


def test_a_usual_route_is_accepted() -> None:
    check_public_route(route((RouteTarget("a", 3), RouteTarget("b")), (RouteTarget("c"),)))
