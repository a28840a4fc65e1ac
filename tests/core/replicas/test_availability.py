"""Whether a ready replica can serve, by what its node last reported; and what a request without a replica does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from corral.core.nodes.node import LEAVE_GRACE_MS, Node, NodeId, NodeType
from corral.core.nodes.observed import ObservedProcess, ProcessStatus, ProcessTable
from corral.core.nodes.presence import Presence
from corral.core.replicas.availability import (
    SETTLED_AFTER_MS,
    Availability,
    AvailabilityVerdict,
    ClusterSnapshot,
    is_another,
    judge_availability,
    pick_routed,
)
from corral.core.replicas.replica import Replica, ReplicaState

SERVES, RETURNING, OFFLINE, LOST = Availability
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
FRESH = replace(ROW, ready_at=NOW - 1)


def node(name: str = "n", **changes: Any) -> Node:
    plain = Node(
        id=NodeId(name), name=name, node_type=NodeType.BACKEND, approved=True, drain_requested=False,
        worker_draining=False, presence=Presence.LIVE, presence_reason="", address="", http_address="", key_hash="k",
        instance="i", epoch=3, total_vram=None, available_vram=None, total_ram=None, available_ram=None,
        total_disk=None, available_disk=None, gpu_vendor=None, gpu_compute_capability=None, capability=None,
        max_replicas_reported=1, max_replicas_override=None, vram_budget_reported=None, vram_budget_override=None,
        worker_labels={}, operator_labels={}, facts=None, conflict_message=None, conflict_at=None, last_heartbeat=None,
        bus_answered=True, bus_failures=0, bus_no_responders=False, created_at=0, changed_at=0,
    )  # fmt: skip
    return replace(plain, **changes)


def table(*states: str, epoch: int = 3, pid: int | None = 7, seen_at: int | None = None) -> ProcessTable:
    processes = tuple(
        ObservedProcess(
            process_key=f"m#{slot}",
            model="m",
            replica=slot,
            backend="b",
            digest="d",
            state=ProcessStatus(state),
            pid=pid,
        )
        for slot, state in enumerate(states)
    )
    return ProcessTable(epoch=epoch, processes=processes, seen_at=seen_at)


RESTARTED = node(epoch=4)
GO = node(key_hash=None, instance=None)
"""With a LocalAI worker."""


@pytest.mark.parametrize(
    ("row", "where", "reported", "expected"),
    [
        pytest.param(ROW, node(), table("ready"), SERVES, id="a-ready-process-serves"),
        pytest.param(ROW, node(), None, SERVES, id="without-a-report-the-load-of-this-worker-run-is-trusted"),
        pytest.param(ROW, node(drain_requested=True), table("ready"), SERVES, id="a-draining-node-serves-on"),
        pytest.param(ROW, RESTARTED, None, RETURNING, id="a-restarted-worker-has-not-reported-yet"),
        pytest.param(ROW, RESTARTED, table("ready"), RETURNING, id="a-report-of-the-previous-worker-run-is-outdated"),
        pytest.param(ROW, RESTARTED, table("ready", epoch=4), SERVES, id="a-restarted-worker-adopted-the-process"),
        pytest.param(ROW, RESTARTED, table("starting", epoch=4), RETURNING, id="a-restarted-worker-starts-it-again"),
        pytest.param(ROW, RESTARTED, table(epoch=4), LOST, id="a-restarted-worker-does-not-have-it"),
        pytest.param(ROW, node(), table("backing_off"), RETURNING, id="a-crashed-process-will-restart"),
        pytest.param(ROW, node(), table("starting"), RETURNING, id="a-restarting-process-does-not-serve-yet"),
        pytest.param(ROW, node(), table("ready", pid=8), RETURNING, id="another-process-has-another-token"),
        pytest.param(ROW, node(), table("ready", pid=None), SERVES, id="an-unknown-pid-is-not-another-process"),
        pytest.param(replace(ROW, pid=None), node(), table("ready"), SERVES, id="nor-is-one-the-row-does-not-know"),
        pytest.param(ROW, node(), table("failed"), LOST, id="a-process-with-exhausted-restarts-is-lost"),
        pytest.param(ROW, node(), table("stopped"), LOST, id="a-stopped-process-is-lost"),
        pytest.param(ROW, node(), table(), LOST, id="a-process-that-is-not-reported-is-lost"),
        pytest.param(replace(ROW, process_key="m#1"), node(), table("ready"), LOST, id="another-slot-is-not-this-one"),
        pytest.param(FRESH, node(), table(), SERVES, id="a-report-from-before-it-was-ready-does-not-list-it"),
        pytest.param(FRESH, node(), table("starting"), SERVES, id="or-lists-it-as-starting"),
        pytest.param(FRESH, node(), table("failed"), LOST, id="a-reported-failure-counts-at-once"),
        pytest.param(FRESH, node(), table("backing_off"), RETURNING, id="and-so-does-a-reported-crash"),
        pytest.param(
            replace(ROW, ready_at=NOW - SETTLED_AFTER_MS), node(), table(), LOST, id="the-grace-ends-after-five-seconds"
        ),
        pytest.param(
            replace(ROW, ready_at=None), node(), table(), LOST, id="without-a-time-of-readiness-there-is-no-grace"
        ),
        pytest.param(ROW, GO, None, SERVES, id="a-localai-worker-was-not-asked-yet"),
        pytest.param(ROW, GO, table("ready", seen_at=NOW), SERVES, id="a-localai-worker-lists-it"),
        pytest.param(ROW, GO, table(seen_at=NOW), LOST, id="a-localai-worker-no-longer-lists-it"),
        pytest.param(ROW, GO, table(seen_at=NOW - 59_000), SERVES, id="a-localai-worker-was-asked-before-it-was-ready"),
        pytest.param(ROW, GO, table(), SERVES, id="a-table-without-a-time-proves-nothing"),
        pytest.param(ROW, replace(GO, epoch=4), None, LOST, id="a-restarted-localai-worker-has-ended-its-processes"),
        pytest.param(
            ROW,
            replace(GO, presence=Presence.LEFT, presence_since=NOW - 1),
            None,
            OFFLINE,
            id="a-localai-worker-that-left-has-ended-them-too",
        ),
        pytest.param(
            ROW, node(key_hash=None, presence=Presence.GONE), None, OFFLINE, id="an-offline-localai-worker-is-offline"
        ),
        pytest.param(ROW, node(presence=Presence.SUSPECT), table("ready"), OFFLINE, id="an-unhealthy-node-is-offline"),
        pytest.param(ROW, node(presence=Presence.GONE), table("ready"), OFFLINE, id="an-offline-node-is-offline"),
        pytest.param(
            ROW, node(presence=Presence.LEFT, presence_since=NOW - 1), None, RETURNING, id="a-worker-just-left"
        ),
        pytest.param(
            ROW,
            node(presence=Presence.LEFT, presence_since=NOW - LEAVE_GRACE_MS),
            None,
            OFFLINE,
            id="a-worker-left-and-its-grace-is-over",
        ),
        pytest.param(
            ROW,
            node(presence=Presence.JOINING, presence_since=NOW - 1, epoch=4),
            None,
            RETURNING,
            id="a-worker-is-rejoining",
        ),
        pytest.param(
            ROW,
            node(presence=Presence.JOINING, presence_since=NOW - 1, approved=False),
            None,
            OFFLINE,
            id="a-node-that-rejoins-without-approval-is-offline",
        ),
        pytest.param(
            ROW,
            node(presence=Presence.JOINING, changed_at=NOW, epoch=4),
            None,
            OFFLINE,
            id="a-worker-that-never-finishes-joining-is-offline",
        ),
        pytest.param(
            ROW, node(worker_draining=True, drain_since=NOW - 1), None, RETURNING, id="a-worker-is-shutting-down"
        ),
        pytest.param(
            ROW,
            node(worker_draining=True, drain_since=0, changed_at=NOW),
            None,
            OFFLINE,
            id="a-worker-that-never-finishes-its-shutdown-is-offline",
        ),
        pytest.param(ROW, node(approved=False), table("ready"), OFFLINE, id="a-node-without-approval-is-offline"),
        pytest.param(ROW, None, None, OFFLINE, id="a-removed-node-is-offline"),
    ],
)
def test_availability(row: Replica, where: Node | None, reported: ProcessTable | None, expected: Availability) -> None:
    verdict = judge_availability(row, where, reported, now_ms=NOW)
    assert verdict.availability is expected
    assert bool(verdict.why) == (expected is not SERVES), "only a replica that does not serve has a reason"


@pytest.mark.parametrize(
    ("where", "reported", "why"),
    [
        pytest.param(None, None, "its node was removed", id="removed"),
        pytest.param(node(presence=Presence.SUSPECT), None, "n is unhealthy", id="unhealthy"),
        pytest.param(node(presence=Presence.GONE), None, "n is offline", id="offline"),
        pytest.param(
            node(presence=Presence.LEFT, presence_since=NOW), None, "n has just left and may return soon", id="left"
        ),
        pytest.param(node(presence=Presence.JOINING, presence_since=NOW), None, "n is rejoining", id="rejoining"),
        pytest.param(RESTARTED, None, "n has not reported its processes yet", id="not-reported"),
        pytest.param(node(), table(), "n no longer runs it", id="lost"),
        pytest.param(node(), table("backing_off"), "its process on n is restarting", id="restarting"),
        pytest.param(node(), table("ready", pid=8), "its process on n was restarted", id="restarted"),
    ],
)
def test_the_reason_names_the_node_and_what_happened(
    where: Node | None, reported: ProcessTable | None, why: str
) -> None:
    assert judge_availability(ROW, where, reported, now_ms=NOW).why == why


@pytest.mark.parametrize(
    ("row_pid", "process_pid", "expected"),
    [
        pytest.param(7, 7, False, id="the-same-pid-is-the-same-process"),
        pytest.param(7, 8, True, id="another-pid-is-another-process"),
        pytest.param(None, 8, False, id="a-row-without-a-pid-cannot-tell"),
        pytest.param(7, None, False, id="a-report-without-a-pid-cannot-tell"),
    ],
)
def test_another_process_behind_the_same_key(row_pid: int | None, process_pid: int | None, expected: bool) -> None:
    [process] = table("ready", pid=process_pid).processes
    assert is_another(replace(ROW, pid=row_pid), process) is expected


def snapshot(*nodes: Node, reported: ProcessTable | None = None) -> ClusterSnapshot:
    tables: dict[str, ProcessTable] = {} if reported is None else {node.id: reported for node in nodes}
    return ClusterSnapshot(nodes={node.id: node for node in nodes}, tables=tables, now_ms=NOW)


_ids = count()


def row(where: str, **changes: Any) -> Replica:
    return replace(ROW, id=f"r{next(_ids)}", node_id=where, **changes)


def test_a_snapshot_judges_a_replica_by_its_own_node_and_report() -> None:
    tables = {"n": table("ready"), "b": table()}
    cluster = ClusterSnapshot(nodes={"n": node(), "b": node("b")}, tables=tables, now_ms=NOW)
    assert cluster.judge(row("n")) == AvailabilityVerdict(SERVES)
    assert cluster.judge(row("b")).availability is LOST
    assert cluster.judge(row("elsewhere")).why == "its node was removed"


@pytest.mark.parametrize(
    ("where", "selector", "expected"),
    [
        pytest.param("b", {"rack": "2"}, True, id="its-node-has-the-label"),
        pytest.param("n", {"rack": "2"}, False, id="its-node-has-not"),
        pytest.param("n", {}, True, id="no-selector-selects-every-node"),
        pytest.param("gone", {}, False, id="a-removed-node-is-never-selected"),
    ],
)
def test_a_selector_applies_to_the_node_of_a_replica(where: str, selector: dict[str, str], expected: bool) -> None:
    cluster = snapshot(node(), node("b", operator_labels={"rack": "2"}))
    assert cluster.is_selected(row(where), selector) is expected


HERE, ALSO_HERE, LEAVING = row("n"), row("n2"), row("draining")
LOST_ROW = row("n", process_key="m#9")
OLD, NEW = row("b", revision="0"), row("b")
CLUSTER = snapshot(
    node(),
    node("n2"),
    node("b", operator_labels={"rack": "2"}),
    node("draining", drain_requested=True),
    reported=table("ready"),
)


@pytest.mark.parametrize(
    ("ready", "selector", "desired", "expected"),
    [
        pytest.param([], {}, 1, [], id="no-replica-is-ready"),
        pytest.param([HERE, ALSO_HERE], {}, 1, [HERE, ALSO_HERE], id="all-that-serve-get-requests"),
        pytest.param([LOST_ROW, HERE], {}, 1, [HERE], id="a-lost-replica-gets-none"),
        pytest.param([HERE, LEAVING], {}, 1, [HERE], id="a-draining-node-gets-none-while-enough-serve-elsewhere"),
        pytest.param([LEAVING], {}, 1, [LEAVING], id="a-draining-node-serves-on-when-it-is-the-only-one"),
        pytest.param([HERE, LEAVING], {}, 2, [HERE, LEAVING], id="or-while-too-few-serve-elsewhere"),
        pytest.param([HERE, ALSO_HERE, LEAVING], {}, 2, [HERE, ALSO_HERE], id="until-the-desired-number-does"),
        pytest.param([HERE, NEW], {"rack": "2"}, 1, [NEW], id="nodes-that-do-not-match-get-none"),
        pytest.param([HERE, OLD, NEW], {"rack": "2"}, 1, [OLD, NEW], id="an-older-revision-serves-until-it-drains"),
        pytest.param([LEAVING], {"rack": "2"}, 1, [], id="a-draining-node-must-match-too"),
    ],
)
def test_which_replicas_get_requests(
    ready: Sequence[Replica], selector: Mapping[str, str], desired: int, expected: list[Replica]
) -> None:
    assert pick_routed(ready, selector, CLUSTER, desired=desired) == expected
