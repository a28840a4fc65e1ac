"""Whether requests may go to a ready replica, by what its node last told; and what to do when they find none."""

from dataclasses import replace
from itertools import count

import pytest

from corral.core.nodes.node import Node, NodeId, NodeType
from corral.core.nodes.observed import ObservedProcess, ProcessTable
from corral.core.nodes.presence import Presence
from corral.core.replicas.availability import Availability, ClusterSnapshot, judge_availability, pick_routed
from corral.core.replicas.on_demand import OnDemandPlan, plan_on_demand
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.scaling import Scheduling

NOW = 1_000_000
ROW = Replica(
    id="r",
    node_id="n",
    model="m",
    slot=0,
    revision="1",
    state=ReplicaState.READY,
    process_key="m#0",
    epoch=3,
    pid=7,
    ready_at=NOW - 60_000,
)


def node(name: str = "n", **changes: object) -> Node:
    plain = Node(
        id=NodeId(name), name=name, node_type=NodeType.BACKEND, approved=True, drain_requested=False,
        worker_draining=False, presence=Presence.LIVE, presence_reason="", address="", http_address="", key_hash="k",
        instance="i", epoch=3, total_vram=None, available_vram=None, total_ram=None, available_ram=None,
        total_disk=None, available_disk=None, gpu_vendor=None, gpu_compute_capability=None, capability=None,
        max_replicas_reported=1, max_replicas_override=None, vram_budget_reported=None, vram_budget_override=None,
        worker_labels={}, operator_labels={}, facts=None, conflict_message=None, conflict_at=None, last_heartbeat=None,
        bus_answered=True, bus_failures=0, bus_no_responders=False, created_at=0, changed_at=0,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def table(*states: str, epoch: int = 3, pid: int | None = 7) -> ProcessTable:
    processes = tuple(
        ObservedProcess(process_key=f"m#{slot}", model="m", replica=slot, backend="b", digest="d", state=state, pid=pid)
        for slot, state in enumerate(states)
    )
    return ProcessTable(epoch=epoch, processes=processes)


RESTARTED = node(epoch=4)


@pytest.mark.parametrize(
    ("row", "where", "told", "expected"),
    [
        pytest.param(ROW, node(), table("ready"), Availability.SERVES, id="it-runs"),
        pytest.param(ROW, node(), None, Availability.SERVES, id="loaded-by-the-worker-that-is-there"),
        pytest.param(
            ROW, node(drain_requested=True), table("ready"), Availability.SERVES, id="drained-by-hand-it-serves-on"
        ),
        pytest.param(ROW, RESTARTED, None, Availability.RETURNING, id="a-new-worker-has-told-nothing-yet"),
        pytest.param(ROW, RESTARTED, table("ready"), Availability.RETURNING, id="what-the-worker-before-told-is-old"),
        pytest.param(ROW, RESTARTED, table("ready", epoch=4), Availability.SERVES, id="the-new-worker-has-kept-it"),
        pytest.param(ROW, RESTARTED, table("starting", epoch=4), Availability.RETURNING, id="the-new-worker-starts-it"),
        pytest.param(ROW, RESTARTED, table(epoch=4), Availability.LOST, id="the-new-worker-does-not-have-it"),
        pytest.param(ROW, node(), table("backing_off"), Availability.RETURNING, id="it-crashed-and-is-started-again"),
        pytest.param(
            ROW, node(), table("ready", pid=8), Availability.RETURNING, id="another-process-with-another-token"
        ),
        pytest.param(ROW, node(), table("ready", pid=None), Availability.SERVES, id="who-tells-no-pid-is-believed"),
        pytest.param(ROW, node(), table("failed"), Availability.LOST, id="it-was-given-up"),
        pytest.param(ROW, node(), table(), Availability.LOST, id="it-is-not-there"),
        pytest.param(
            replace(ROW, ready_at=NOW - 1), node(), table(), Availability.SERVES, id="the-report-is-on-its-way"
        ),
        pytest.param(
            replace(ROW, ready_at=NOW - 1),
            node(),
            table("starting"),
            Availability.SERVES,
            id="so-is-the-one-of-its-start",
        ),
        pytest.param(replace(ROW, ready_at=NOW - 1), node(), table("failed"), Availability.LOST, id="a-word-is-a-word"),
        pytest.param(ROW, node(key_hash=None, epoch=9), None, Availability.SERVES, id="localai-tells-no-epochs"),
        pytest.param(ROW, node(presence=Presence.SUSPECT), table("ready"), Availability.AWAY, id="silent"),
        pytest.param(ROW, node(presence=Presence.GONE), table("ready"), Availability.AWAY, id="gone"),
        pytest.param(
            ROW,
            node(presence=Presence.LEFT, presence_since=NOW - 1),
            None,
            Availability.RETURNING,
            id="it-has-just-left",
        ),
        pytest.param(ROW, node(presence=Presence.LEFT), None, Availability.AWAY, id="it-left-long-ago"),
        pytest.param(
            ROW,
            node(presence=Presence.JOINING, presence_since=NOW - 1, epoch=4),
            None,
            Availability.RETURNING,
            id="joining",
        ),
        pytest.param(
            ROW,
            node(presence=Presence.JOINING, changed_at=NOW, epoch=4),
            None,
            Availability.AWAY,
            id="joining-for-ever",
        ),
        pytest.param(
            ROW, node(worker_draining=True, drain_since=NOW - 1), None, Availability.RETURNING, id="its-worker-stops"
        ),
        pytest.param(
            ROW,
            node(worker_draining=True, drain_since=0, changed_at=NOW),
            None,
            Availability.AWAY,
            id="it-stops-for-ever",
        ),
        pytest.param(ROW, node(approved=False), table("ready"), Availability.AWAY, id="not-approved-any-more"),
        pytest.param(ROW, None, None, Availability.AWAY, id="removed"),
    ],
)
def test_where_a_replica_stands(
    row: Replica, where: Node | None, told: ProcessTable | None, expected: Availability
) -> None:
    assert judge_availability(row, where, told, now_ms=NOW).standing is expected


def around(*nodes: Node, told: ProcessTable | None = None) -> ClusterSnapshot:
    tables = {node.id: told for node in nodes} if told is not None else {}
    return ClusterSnapshot(nodes={node.id: node for node in nodes}, tables=tables, now_ms=NOW)


_ids = count()


def row(where: str, **changes: object) -> Replica:
    return replace(ROW, id=f"r{next(_ids)}", node_id=where, **changes)  # type: ignore[arg-type]


def test_a_draining_nodes_replica_is_routed_to_only_until_another_serves() -> None:
    here, leaving = row("n"), row("old")
    nodes = around(node(), node("old", drain_requested=True), told=table("ready"))
    assert pick_routed([here, leaving], {}, nodes) == [here]
    assert pick_routed([leaving], {}, nodes) == [leaving]
    assert pick_routed([here, leaving], {}, nodes, wanted=2) == [here, leaving]


def test_other_nodes_get_nothing_and_old_revisions_serve_until_they_are_drained() -> None:
    nodes = around(node(), node("b", operator_labels={"room": "b"}), told=table("ready"))
    old, there = row("b", revision="0"), row("b")
    assert pick_routed([row("n"), old, there], {"room": "b"}, nodes) == [old, there]


ONE = Scheduling(model="m", max_replicas=1)
ANY = Scheduling(model="m")
SILENT = node(presence=Presence.SUSPECT)


@pytest.mark.parametrize(
    ("rows", "wanted", "where", "told", "waits_because"),
    [
        pytest.param([], ONE, node(), None, "", id="nothing-is-there"),
        pytest.param([ROW], ANY, node(), table("ready"), "a replica is ready", id="this-frontend-has-not-seen-it-yet"),
        pytest.param([ROW], ANY, RESTARTED, table("ready"), "n has not told yet", id="its-worker-is-back"),
        pytest.param([ROW], ANY, node(), table("backing_off"), "is being started again", id="it-crashed"),
        pytest.param([ROW], ANY, node(), table(), "", id="it-is-not-there-any-more"),
        pytest.param([ROW], ONE, node(), table(), "no more than 1 may run, and n does not run it", id="not-beside-it"),
        pytest.param([ROW], ANY, SILENT, None, "", id="silence-is-not-waited-for-while-more-may-run"),
        pytest.param([ROW], ONE, SILENT, None, "no more than 1 may run, and n is unhealthy", id="silence-and-a-limit"),
        pytest.param(
            [replace(ROW, state=ReplicaState.STOPPING)], ONE, node(), table("ready"), "", id="what-ends-does-not-count"
        ),
        pytest.param(
            [replace(ROW, state=ReplicaState.LOADING)], ONE, node(), None, "they are being loaded", id="one-is-coming"
        ),
        pytest.param(
            [ROW], Scheduling(model="m", selector={"room": "b"}), node(), table("ready"), "", id="it-is-elsewhere"
        ),
    ],
)
def test_asking_waits_for_what_is_there(
    rows: list[Replica], wanted: Scheduling, where: Node, told: ProcessTable | None, waits_because: str
) -> None:
    plan = plan_on_demand("1", rows, wanted, around(where, told=told))
    assert waits_because in plan.wait
    assert bool(plan.wait) == bool(waits_because)


def test_what_has_an_older_configuration_is_waited_for_while_it_serves_and_replaced_when_it_does_not() -> None:
    old = row("n", revision="0")
    assert plan_on_demand("1", [old], ONE, around(node(), told=table("ready"))) == OnDemandPlan(
        wait="a replica is ready"
    )
    assert plan_on_demand("1", [old], ONE, around(node(), told=table())) == OnDemandPlan(replaces=old.id)
