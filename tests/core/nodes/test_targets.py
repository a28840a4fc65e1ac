"""The nodes that an operation or a model may use."""

from collections.abc import Sequence

import pytest

from core.replicas.test_availability import node
from corral.core.errors import CorralError, InvalidInput, NotFound
from corral.core.nodes.node import NodeType
from corral.core.nodes.presence import Presence
from corral.core.nodes.targets import Target, describe_no_match, find_node, pick_nodes, pick_serving, takes_backends

FAST, SLOW = node("fast", operator_labels={"tier": "fast"}), node("slow")
OFFLINE = node("offline", presence=Presence.GONE)
PENDING = node("pending", approved=False)
AGENT = node("agent", node_type=NodeType.AGENT)
DRAINING = node("draining", drain_requested=True)
ALL = [FAST, SLOW, OFFLINE, PENDING, AGENT, DRAINING]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("slow", True, id="an-approved-worker"),
        pytest.param("offline", True, id="also-while-it-is-offline"),
        pytest.param("pending", False, id="not-one-without-approval"),
        pytest.param("agent", False, id="not-an-agent"),
    ],
)
def test_which_nodes_take_backends(name: str, expected: bool) -> None:
    assert takes_backends(find_node(ALL, name)) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({}, ["fast", "slow"], id="healthy-nodes-that-do-not-drain"),
        pytest.param({"tier": "fast"}, ["fast"], id="that-match-the-selector"),
        pytest.param({"tier": "none"}, [], id="or-none"),
    ],
)
def test_where_a_model_may_run_now(selector: dict[str, str], expected: list[str]) -> None:
    assert [one.name for one in pick_serving(ALL, selector)] == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({}, "no node is healthy", id="without-a-selector"),
        pytest.param({"tier": "fast", "rack": "2"}, "no healthy node has the labels tier=fast, rack=2", id="with-one"),
    ],
)
def test_the_message_when_no_node_can(selector: dict[str, str], expected: str) -> None:
    assert describe_no_match(selector) == expected


@pytest.mark.parametrize(
    ("target", "expected", "is_lasting"),
    [
        pytest.param(
            Target(),
            ["fast", "slow", "offline", "draining"],
            True,
            id="all-that-take-backends-and-those-that-join-later",
        ),
        pytest.param(Target(selector={"tier": "fast"}), ["fast"], True, id="those-that-match-a-selector"),
        pytest.param(Target(selector={"tier": "none"}), [], True, id="a-selector-without-a-match-is-no-error"),
        pytest.param(Target(nodes=("slow", "offline")), ["slow", "offline"], False, id="named-nodes-in-that-order"),
        pytest.param(Target(nodes=("slow", "slow")), ["slow"], False, id="each-once"),
    ],
)
def test_the_nodes_of_an_operation(target: Target, expected: Sequence[str], is_lasting: bool) -> None:
    assert [one.name for one in pick_nodes(ALL, target)] == expected
    assert target.is_lasting is is_lasting


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        pytest.param("absent", NotFound, "there is no node 'absent'; list all nodes with", id="an-unknown-name"),
        pytest.param("agent", InvalidInput, "has the type agent, which runs no backends", id="an-agent"),
        pytest.param("pending", InvalidInput, "is waiting for approval; approve it first", id="no-approval-yet"),
    ],
)
def test_named_nodes_that_are_rejected(name: str, error: type[CorralError], message: str) -> None:
    with pytest.raises(error, match=message):
        pick_nodes(ALL, Target(nodes=(name,)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param("one", "one", id="by-name"),
        pytest.param("id-1", "one", id="by-id"),
        pytest.param("ONE", "one", id="by-a-name-in-another-case"),
        pytest.param("Two", "Two", id="an-exact-name-comes-before-one-in-another-case"),
    ],
)
def test_find_node(given: str, expected: str) -> None:
    nodes = [node("one", id="id-1"), node("two", id="id-2"), node("Two", id="id-3")]
    assert find_node(nodes, given).name == expected
