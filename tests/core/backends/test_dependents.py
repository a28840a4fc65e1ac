"""What a deletion ends."""

import pytest

from core.backends.test_drift import machine
from corral.core.backends.dependents import Dependent, describe_dependents, find_dependents
from corral.core.backends.planning import NodeBackends
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.core.replicas.replica import Replica, ReplicaState

BUILD = ObservedBackend(name="cpu-echo", alias="echo")


def replica(node: str, model: str = "m", backend: str = "cpu-echo", state: str = "ready") -> Replica:
    return Replica(
        id=f"{node} {model} {state}", node_id=node, model=model, slot=0, revision="1", state=ReplicaState(state),
        backend=backend,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "stop"),
    [
        pytest.param("echo", {"m": 2, "quiet": 0}, id="by-its-alias"),
        pytest.param("cpu-echo", {"m": 2, "quiet": 0}, id="by-its-build"),
        pytest.param("other", {"foreign": 1}, id="one-that-comes-counts"),
        pytest.param("none", {}, id="nobody-uses-it"),
    ],
)
def test_find_dependents(backend: str, stop: dict[str, int]) -> None:
    states = [NodeBackends(node=machine(id=NodeId(node)), backends=[BUILD], newest={}) for node in ("a", "b")]
    rows = [
        replica("a"),
        replica("b"),
        replica("b", state="stopping"),
        replica("not asked about"),
        replica("a", "foreign", "", "starting"),
    ]
    models = {"m": "echo", "quiet": "echo", "foreign": "other"}
    assert {use.model: use.replicas for use in find_dependents(states, backend, models, rows)} == stop


def test_dependents_in_words() -> None:
    uses = [Dependent(model="a", replicas=2), Dependent(model="b", replicas=1), Dependent(model="c", replicas=0)]
    assert describe_dependents(uses) == (
        "a uses it: 2 replicas stop; b uses it: 1 replica stops; c uses it: none of its replicas runs there"
    )
    assert describe_dependents([]) == ""
