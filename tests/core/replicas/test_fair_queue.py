"""A fair queue: clients take turns, whatever each of them has queued."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.replicas.fair_queue import FairQueue


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
