"""A node as the API shows it."""

from dataclasses import replace

import pytest

from corral.core.nodes.conditions import Condition
from corral.core.nodes.node import Node, NodeId, NodeType
from corral.core.nodes.presence import Presence
from corral.core.replicas.replica import Replica, ReplicaState
from corral.frontend.api.nodes.view import NodeLoad, count_loads, view_node

NOW = 1_000_000
NODE = Node(
    id=NodeId("n"), name="n", node_type=NodeType.BACKEND, approved=True, drain_requested=False, worker_draining=False,
    presence=Presence.LIVE, presence_reason="", address="", http_address="", key_hash="k", instance="i", epoch=3,
    total_vram=None, available_vram=None, total_ram=None, available_ram=None, total_disk=None, available_disk=None,
    gpu_vendor=None, gpu_compute_capability=None, capability=None, max_replicas_reported=1,
    max_replicas_override=None, vram_budget_reported=None, vram_budget_override=None, worker_labels={},
    operator_labels={}, facts=None, conflict_message=None, conflict_at=None, last_heartbeat=NOW - 45_000,
    bus_answered=True, bus_failures=0, bus_no_responders=False, created_at=0, changed_at=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("node", "silent_after_s", "said"),
    [
        pytest.param(NODE, 30.0, "no heartbeat received since this frontend started", id="healthy-yet-silent"),
        pytest.param(NODE, 60.0, "", id="not-silent-for-long"),
        pytest.param(
            replace(NODE, presence=Presence.GONE, presence_reason="gone"), 30.0, "gone", id="known-to-be-gone"
        ),
    ],
)
def test_a_healthy_node_without_recent_heartbeats_has_a_reason(node: Node, silent_after_s: float, said: str) -> None:
    assert view_node(node, now_ms=NOW, silent_after_s=silent_after_s).status_reason == said


@pytest.mark.parametrize(
    ("presence", "drain_requested", "draining"),
    [
        pytest.param(Presence.LIVE, False, True, id="about-to-stop"),
        pytest.param(Presence.LEFT, False, False, id="left-by-itself"),
        pytest.param(Presence.GONE, False, False, id="gone"),
        pytest.param(Presence.LEFT, True, True, id="drained-before-it-left"),
    ],
)
def test_a_node_that_left_is_draining_only_if_an_administrator_drained_it(
    presence: Presence, drain_requested: bool, draining: bool
) -> None:
    node = replace(NODE, presence=presence, drain_requested=drain_requested, worker_draining=True)
    assert view_node(node, now_ms=NOW, silent_after_s=30.0).draining is draining


def test_a_node_that_was_just_approved_is_joining_and_not_unhealthy() -> None:
    node = view_node(replace(NODE, presence=Presence.JOINING), now_ms=NOW)
    assert (node.state, node.status) == ("joining", "unhealthy"), "LocalAI has no word for it"


def test_a_condition_is_shown_with_its_remedy() -> None:
    ill = replace(NODE, conditions=(Condition(kind="clock_skew", reason="its clock is off", remedy="Set it."),))
    node = view_node(ill, now_ms=NOW)
    assert (node.state, node.status, node.status_reason) == ("unhealthy", "unhealthy", "its clock is off. Set it.")
    assert node.conditions[0].kind == "clock_skew"
    assert node.reachable, "it receives commands"
    suspect = view_node(replace(ill, presence=Presence.SUSPECT), now_ms=NOW)
    assert (suspect.state, suspect.reachable) == ("unhealthy", False)


def test_the_replicas_of_a_node_are_counted() -> None:
    def row(identity: str, model: str, slot: int, state: ReplicaState = ReplicaState.READY) -> Replica:
        key = f"{model}#{slot}"
        return Replica(id=identity, node_id="n", model=model, slot=slot, revision="1", state=state, process_key=key)

    rows = [row("1", "a", 0), row("2", "a", 1), row("3", "b", 0), row("4", "c", 0, ReplicaState.STARTING)]
    loads = count_loads(rows, {"1": 2, "2": 1, "3": 0, "4": 0}.__getitem__)
    assert loads == {"n": NodeLoad(models=2, in_flight=3)}
    shown = view_node(NODE, now_ms=NOW, load=loads["n"])
    assert (shown.model_count, shown.in_flight_count) == (2, 3)


def test_memory_is_reserved_until_a_load_is_finished() -> None:
    states = (ReplicaState.STARTING, ReplicaState.LOADING, ReplicaState.READY)
    rows = [
        Replica(id=state, node_id="n", model="m", slot=slot, revision="1", state=state, memory_bytes=100)
        for slot, state in enumerate(states)
    ]
    load = count_loads(rows, lambda _: 0)["n"]
    with_gpu = replace(NODE, total_vram=1000, available_vram=900)
    assert view_node(with_gpu, now_ms=NOW, load=load).reserved_vram == 200
    assert view_node(NODE, now_ms=NOW, load=load).reserved_vram == 0, "where there is no such memory, none is taken"
