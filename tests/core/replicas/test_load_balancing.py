import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from corral.core.replicas.fair_queue import FairQueue
from corral.core.replicas.load_balancing import pick_by_hint, pick_two, pick_two_weighted
from corral.core.replicas.routing import RoutePolicy
from corral.core.suggestions import near_names


@dataclass
class Busy:
    outstanding: int
    hash_key: bytes = b""
    weight: int = 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.floats(0, 0.999), st.floats(0, 0.999))
def test_of_two_different_ones_the_less_busy_is_picked(loads: list[int], first: float, second: float) -> None:
    draws = iter([first, second])
    candidates = [Busy(load) for load in loads]
    picked, other = pick_two(candidates, lambda: next(draws))
    assert picked.outstanding <= other.outstanding
    if len(loads) > 1:
        assert picked.outstanding < max(loads) or loads.count(max(loads)) > 1


def test_equal_replicas_share_load() -> None:
    chance = random.Random(1)
    replicas = [Busy(0) for _ in range(7)]
    given_to: Counter[int] = Counter()
    for number in range(7000):
        picked, _ = pick_two(replicas, chance.random)
        picked.outstanding += 1
        given_to[id(picked)] += 1
        if number % 5 == 4:
            for replica in replicas:
                replica.outstanding = max(0, replica.outstanding - 1)
    assert max(given_to.values()) < 2 * 1000


def test_idle_replicas_are_picked_as_often_as_their_weights_say() -> None:
    chance = random.Random(1)
    replicas = [Busy(0, weight=3), Busy(0, weight=1)]
    given_to = Counter(id(pick_two_weighted(replicas, chance.random)[0]) for _ in range(4000))
    assert 2800 < given_to[id(replicas[0])] < 3200


def test_busy_replicas_hold_as_many_requests_as_their_weights_say() -> None:
    chance = random.Random(1)
    replicas = [Busy(0, weight=weight) for weight in (1, 2, 5)]
    for _ in range(800):
        pick_two_weighted(replicas, chance.random)[0].outstanding += 1
    assert [round(replica.outstanding / 100) for replica in replicas] == [1, 2, 5]


def test_sessions_are_shared_as_the_weights_say() -> None:
    replicas = [Busy(0, b"one", weight=4), Busy(0, b"two", weight=1)]
    hints = [f"session-{number}".encode() for number in range(2000)]
    found = Counter(id(pick_by_hint(replicas, hint, RoutePolicy(), is_weighted=True)) for hint in hints)
    assert 1500 < found[id(replicas[0])] < 1700


def test_a_hint_keeps_its_replica_when_others_come_and_go_and_loses_it_when_too_busy() -> None:
    replicas = [Busy(0, bytes([number])) for number in range(8)]
    policy = RoutePolicy(balance_abs_threshold=2)
    chosen = {hint: pick_by_hint(replicas, bytes([hint]), policy) for hint in range(50)}
    fewer = replicas[:-1]
    moved = [hint for hint, was in chosen.items() if pick_by_hint(fewer, bytes([hint]), policy) is not was]
    assert all(chosen[hint] is replicas[-1] for hint in moved)
    for hint, replica in chosen.items():
        assert replica is not None
        replica.outstanding = 3
        assert pick_by_hint(replicas, bytes([hint]), policy) is None
        replica.outstanding = 2
        assert pick_by_hint(replicas, bytes([hint]), policy) is replica
        replica.outstanding = 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_lines_take_turns_and_nothing_is_lost(steps: list[tuple[str, bool]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    waiting: list[tuple[str, int]] = []
    for number, (caller, takes) in enumerate(steps):
        if takes and waiting:
            item = queue.take()
            assert item in waiting
            assert item == min((each for each in waiting if each[0] == item[0]), key=lambda each: each[1])
            waiting.remove(item)
        else:
            position = queue.put(caller, (caller, number))
            waiting.append((caller, number))
            assert 0 <= position < len(waiting)
        assert len(queue) == len(waiting)
        assert sorted(queue) == sorted(waiting)
    for item in waiting:
        assert queue.remove(item[0], item)
    assert queue.take() is None


def test_who_sends_much_does_not_keep_others_waiting() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.put("greedy", f"greedy {number}")
    assert queue.put("modest", "modest") == 1
    assert [queue.take() for _ in range(3)] == ["greedy 0", "modest", "greedy 1"]


def test_near_names() -> None:
    known = ["smollm2", "qwen3-4b", "Llama-3.1-8B"]
    assert near_names("smolm2", known) == ["smollm2"]
    assert near_names("llama-3.1-8b", known) == ["Llama-3.1-8B"]
    assert near_names("zzzzzz", known) == []
    too_long = "a" * 301
    assert near_names(too_long, [too_long]) == [], "what nobody would name so is not compared at all"
