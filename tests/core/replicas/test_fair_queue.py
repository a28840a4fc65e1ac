"""A fair queue: clients take turns, whatever each of them has queued."""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corral.core.access.answer_lengths import AnswerLengths
from corral.core.access.token_estimate import estimate_output
from corral.core.replicas.fair_queue import CARRY_MAX, FairQueue


def filled(items: str) -> FairQueue[str]:
    """Each item is a letter for its client and a number: `a1 a2 b1`."""
    queue: FairQueue[str] = FairQueue()
    for item in items.split():
        queue.put(item[0], item)
    return queue


def drained(queue: FairQueue[str]) -> str:
    return " ".join(iter(queue.take, None))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param("", "", id="an-empty-queue-has-nothing"),
        pytest.param("a1 a2 a3", "a1 a2 a3", id="one-client-in-order"),
        pytest.param("a1 a2 a3 b1", "a1 b1 a2 a3", id="a-late-client-does-not-wait-for-all-of-an-early-one"),
        pytest.param("a1 a2 b1 b2 c1", "a1 b1 c1 a2 b2", id="clients-take-turns"),
    ],
)
def test_the_order_in_which_items_are_taken(items: str, expected: str) -> None:
    assert drained(filled(items)) == expected


@pytest.mark.parametrize(
    ("items", "client", "expected"),
    [
        pytest.param("", "a", 0, id="the-first-is-next"),
        pytest.param("a1 a2", "a", 2, id="behind-ones-own"),
        pytest.param("a1 a2 a3", "b", 1, id="a-new-client-waits-for-one-of-each-other"),
        pytest.param("a1 a2 a3 b1", "b", 3, id="and-for-as-many-of-each-as-it-has-itself"),
    ],
)
def test_how_many_items_are_ahead(items: str, client: str, expected: int) -> None:
    assert filled(items).put(client, "new") == expected


@pytest.mark.parametrize(
    ("client", "item", "removed", "left"),
    [
        pytest.param("a", "a2", True, "a1 b1", id="an-item-that-waits"),
        pytest.param("b", "b1", True, "a1 a2", id="the-only-item-of-a-client"),
        pytest.param("a", "b1", False, "a1 b1 a2", id="not-under-the-name-of-another-client"),
        pytest.param("c", "c1", False, "a1 b1 a2", id="not-of-a-client-without-items"),
    ],
)
def test_removing_an_item(client: str, item: str, removed: bool, left: str) -> None:
    queue = filled("a1 a2 b1")
    assert queue.remove(client, item) is removed
    assert len(queue) == len(left.split())
    assert drained(queue) == left


def test_a_client_that_comes_back_goes_to_the_end() -> None:
    queue = filled("a1 b1 b2")
    assert queue.take() == "a1"
    queue.put("a", "a2")
    assert drained(queue) == "b1 a2 b2"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99))))
def test_nothing_is_lost_and_no_client_waits_for_two_of_another(puts: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for client, number in puts:
        queue.put(client, (client, number))
    assert (len(queue), sorted(queue)) == (len(puts), sorted(puts))
    taken = list(iter(queue.take, None))
    assert sorted(taken) == sorted(puts)
    assert (len(queue), queue.length) == (0, 0)
    for client in "abc":
        assert [item for item in taken if item[0] == client] == [item for item in puts if item[0] == client]
    waiting = {client: sum(item[0] == client for item in puts) for client in "abc"}
    for (first, _), (second, _) in pairwise(taken):
        waiting[first] -= 1
        assert first != second or not any(waiting[other] for other in "abc" if other != first)


@pytest.mark.parametrize(
    ("puts", "expected"),
    [
        pytest.param(
            "a:1000 a:1000 b:250 b:250 b:250 b:250 b:250", "b b b a b b a", id="clients-share-by-cost-not-by-items"
        ),
        pytest.param("a:5000 b:10", "b a", id="a-short-one-does-not-wait-for-a-long-one"),
        pytest.param("a:5000 a:5000 b:3000 b:3000 b:3000", "b a b b a", id="a-long-one-is-not-put-off-for-ever"),
    ],
)
def test_the_order_by_cost(puts: str, expected: str) -> None:
    queue: FairQueue[str] = FairQueue()
    for client, _, cost in (put.partition(":") for put in puts.split()):
        queue.put(client, client, cost=int(cost))
    assert drained(queue) == expected


def taken_from(queue: FairQueue[str], count: int) -> str:
    return "".join(queue.take() or "-" for _ in range(count))


def test_classes_share_by_weight_and_the_lowest_is_never_starved() -> None:
    queue: FairQueue[str] = FairQueue()
    for name, weight in (("l", 1), ("n", 4), ("h", 16)):
        for _ in range(100):
            queue.put(name, name, weight=weight)
    taken = taken_from(queue, 42)
    assert (taken.count("h"), taken.count("n"), taken.count("l")) == (32, 8, 2)


def test_a_class_that_was_empty_does_not_catch_up() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(40):
        queue.put("n", "n", weight=4)
    taken_from(queue, 20)
    for _ in range(20):
        queue.put("l", "l", weight=1)
    assert taken_from(queue, 10).count("l") == 2


def test_a_high_class_waits_for_at_most_one_of_a_lower_one() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(10):
        queue.put("l", "l", cost=50_000, weight=1)
    queue.take()
    assert queue.put("h", "h", cost=100, weight=16) <= 1
    assert "h" in taken_from(queue, 2)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5000)), min_size=1))
def test_clients_that_wait_get_the_same_within_one_item(puts: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for client, cost in puts:
        queue.put(client, (client, cost), cost=cost)
    got = dict.fromkeys("abc", 0)
    left = {client: sum(put[0] == client for put in puts) for client in "abc"}
    largest = max(cost for _, cost in puts)
    while (item := queue.take()) is not None:
        got[item[0]] += item[1]
        left[item[0]] -= 1
        waiting = [got[client] for client in "abc" if left[client]]
        assert not waiting or max(waiting) - min(waiting) <= 2 * largest


def test_a_newcomer_does_not_overtake_all_who_wait_after_an_expensive_item_was_removed() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("x", "head", cost=5000)
    queue.put("x", "x", cost=1)
    for _ in range(20):
        queue.put("a", "a", cost=400)
        queue.put("b", "b", cost=400)
    taken_from(queue, 20)
    queue.remove("x", "head")
    assert "x" in taken_from(queue, 2), "it has waited longest"
    for _ in range(10):
        queue.put("n", "n", cost=400)
    taken = taken_from(queue, 12)
    assert {taken.count(client) for client in "abn"} == {4}, taken


@pytest.mark.parametrize(
    ("items", "client", "weights", "expected"),
    [
        pytest.param("", "a", {}, None, id="nobody-makes-way-in-an-empty-queue"),
        pytest.param("a1 a2 a3", "b", {}, "a3", id="the-newest-of-the-longest-line"),
        pytest.param("a1 a2 a3", "a", {}, None, id="not-for-the-longest-line-itself"),
        pytest.param("a1 b1 c1", "d", {}, None, id="nobody-is-left-with-less-than-the-newcomer"),
        pytest.param("a1 a2 b1", "b", {}, None, id="not-where-it-would-only-swap-who-has-more"),
        pytest.param("a1 a2 b1 b2 b3", "c", {}, "b3", id="of-several-the-longest"),
        pytest.param("h1 h2 h3 h4 h5 l1 l2", "n", {"h": 16, "l": 1, "n": 4}, "l2", id="longest-for-its-weight"),
        pytest.param("h1 h2 h3", "l", {"h": 16, "l": 1}, None, id="a-low-one-does-not-displace-a-high-one"),
        pytest.param("l1 l2", "h", {"h": 16, "l": 1}, "l2", id="a-high-one-displaces-a-low-one"),
        pytest.param("!1 !2 a1 a2", "c", {}, "a2", id="items-that-may-not-leave-stay"),
    ],
)
def test_who_makes_way_in_a_full_queue(items: str, client: str, weights: dict[str, int], expected: str | None) -> None:
    queue: FairQueue[str] = FairQueue()
    for item in items.split():
        queue.put(item[0], item, weight=weights.get(item[0], 1))
    found = queue.find_surplus(client, weight=weights.get(client, 1), may_leave=lambda item: item[0] != "!")
    assert found == (None if expected is None else (expected[0], expected))


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(3, 12))
def test_a_full_queue_gives_each_client_its_share_of_places(puts: list[str], places: int) -> None:
    queue: FairQueue[str] = FairQueue()
    wanted = dict.fromkeys("abc", 0)
    for client in puts:
        wanted[client] += 1
        if len(queue) == places:
            found = queue.find_surplus(client)
            if found is None:
                continue
            assert queue.remove(*found)
        queue.put(client, client)
    has = {client: list(queue).count(client) for client in "abc"}
    assert len(queue) == min(places, len(puts))
    for client in "abc":
        assert has[client] >= min(wanted[client], places // 3), "however many the others want"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([], "a b a b a b a b", id="without-corrections-in-turns"),
        pytest.param([("a", 2000)], "b b a b a b a a", id="who-got-more-than-it-paid-for-waits-for-the-others"),
        pytest.param([("a", -2000)], "a a b a b a b b", id="who-got-less-is-next"),
        pytest.param([("a", 2000), ("a", -2000)], "a b a b a b a b", id="corrections-add-up"),
        pytest.param([("c", 10**6)], "a b a b a b a b", id="of-a-client-without-a-line"),
    ],
)
def test_the_order_after_corrections(changes: list[tuple[str, int]], expected: str) -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(5):
        for client in "ab":
            queue.put(client, client, cost=1000)
    assert taken_from(queue, 2) == "ab"
    for client, change in changes:
        queue.correct(client, change)
    assert drained(queue) == expected


@pytest.mark.parametrize(("change", "first"), [(10**9, "b" * 33), (-(10**9), "a" * 32)])
def test_a_correction_puts_a_client_behind_or_ahead_by_a_bounded_cost(change: int, first: str) -> None:
    assert CARRY_MAX // 1000 == 32
    queue: FairQueue[str] = FairQueue()
    for client in "ab":
        for _ in range(100):
            queue.put(client, client, cost=1000)
    assert taken_from(queue, 2) == "ab"
    for _ in range(3):
        queue.correct("a", change)
    taken = taken_from(queue, 60)
    assert taken.startswith(first)
    assert len(taken) - len(taken.lstrip(first[0])) <= len(first) + 1
    assert {"a", "b"} == set(taken)


def test_a_client_does_not_lose_its_debt_by_leaving_the_queue_and_not_its_credit_by_having_no_line() -> None:
    queue: FairQueue[str] = FairQueue()
    for client, change in (("a", 3000), ("c", -3000)):
        queue.put(client, client)
        assert queue.take() == client
        queue.correct(client, change)
    queue.put("a", "a")
    queue.remove("a", "a")
    for client in "aabbbbccc":
        queue.put(client, client)
    assert drained(queue).replace(" ", "") == "cccbbabab"


def test_a_debt_is_forgotten_once_the_others_got_as_much() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("a", "a")
    queue.take()
    queue.correct("a", 3000)
    for _ in range(3):
        queue.put("b", "b")
        queue.take()
    for client in "bbaa":
        queue.put(client, client)
    assert drained(queue) == "b a b a"


def test_a_class_pays_for_its_clients_and_is_never_starved() -> None:
    queue: FairQueue[str] = FairQueue()
    for name, weight in (("l", 1), ("h", 16)):
        for _ in range(600):
            queue.put(name, name, weight=weight)
    taken_from(queue, 17)
    queue.correct("l", 1000, weight=1)
    assert taken_from(queue, 33).count("l") == 1, "one of its two turns was paid for already"
    queue.correct("h", 10**9, weight=16)
    assert taken_from(queue, 60).index("h") <= CARRY_MAX // 1000 // 16 + 2


PARTS = {16: "high", 4: "normal", 1: "low"}


@dataclass(frozen=True)
class Key:
    """A key that always has requests in the queue."""

    name: str
    weight: int
    stated: int | None
    """What its requests state as the most that they want."""
    lengths: tuple[int, ...]
    """Of its answers, in turn."""


def serve(keys: list[Key], *, slots: int, tokens: int) -> tuple[dict[str, int], int]:
    """What each key gets from replicas with so many slots, and the longest answer. A token takes a second."""
    queue: FairQueue[Key] = FairQueue()
    lengths = AnswerLengths()
    paid: dict[str, list[int]] = {key.name: [] for key in keys}
    count = dict.fromkeys((key.name for key in keys), 0)
    got = dict.fromkeys((key.name for key in keys), 0)

    def join(key: Key) -> None:
        cost = estimate_output(key.stated, lengths.usual(key.name))
        paid[key.name].append(cost)
        queue.put(key.name, key, cost=cost, weight=key.weight)

    for key in keys:
        for _ in range(3):
            join(key)
    at_replicas: list[tuple[int, int, Key, int, int]] = []
    now = number = 0
    while sum(got.values()) < tokens:
        while len(at_replicas) < slots:
            taken = queue.take()
            assert taken is not None
            count[taken.name] += 1
            number += 1
            answer = taken.lengths[count[taken.name] % len(taken.lengths)]
            heappush(at_replicas, (now + answer, number, taken, answer, paid[taken.name].pop(0)))
            join(taken)
        now, _, key, answer, cost = heappop(at_replicas)
        got[key.name] += answer
        lengths.learn(key.name, answer)
        queue.correct(key.name, answer - cost, weight=key.weight)
    return got, max(max(key.lengths) for key in keys)


ANSWERS = st.lists(st.integers(1, 4000), min_size=1, max_size=5)
STATED = st.one_of(st.none(), st.just(256), st.just(32_000))


@given(
    st.lists(st.tuples(st.sampled_from(list(PARTS)), STATED, ANSWERS), min_size=2, max_size=5),
    st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
@example([(4, None, [4000]), (4, 256, [256])], 4)
@example([(4, 32_000, [200]), (4, None, [200])], 4)
@example([(16, None, [4000]), (1, 32_000, [10])], 2)
def test_keys_that_wait_share_the_tokens_by_their_priorities_however_they_state_what_they_want(
    drawn: list[tuple[int, int | None, list[int]]], slots: int
) -> None:
    keys = [
        Key(f"k{number}", weight, stated, tuple(min(each, stated or each) for each in lengths))
        for number, (weight, stated, lengths) in enumerate(drawn)
    ]
    # Who waits for a large part of the tokens in answers of a few each needs many turns.
    tokens = min(1_000_000, 4000 * min(sum(key.lengths) // len(key.lengths) or 1 for key in keys))
    got, longest = serve(keys, slots=slots, tokens=tokens)
    bound = CARRY_MAX + (slots + 2) * longest
    classes = {weight: [key for key in keys if key.weight == weight] for weight in PARTS}
    for weight, own in classes.items():
        each = [got[key.name] for key in own]
        if own:
            assert max(each) - min(each) <= bound, (PARTS[weight], got)
    sums = {weight: sum(got[key.name] for key in own) / weight for weight, own in classes.items() if own}
    for weight, share in sums.items():
        for other, others in sums.items():
            assert share - others <= bound / weight + bound / other, (PARTS[weight], PARTS[other], got)
