"""Rows against what nodes say: only positive evidence ends one."""

from dataclasses import replace

import pytest

from core.replicas.test_availability import node
from corral.core.nodes.node import Node
from corral.core.nodes.observed import ObservedProcess, ProcessStatus, ProcessTable
from corral.core.nodes.presence import Presence
from corral.core.replicas.repair import Orphan, plan_repair
from corral.core.replicas.replica import Replica, ReplicaState

NOW = 1_000_000
ROW = Replica(
    id="r",
    node_id="n",
    model="m",
    slot=0,
    revision="1",
    state=ReplicaState.READY,
    process_key="m#0",
    ready_at=NOW - 60_000,
)


def table(*states: str, epoch: int = 3, seen_at: int | None = None) -> ProcessTable:
    processes = tuple(
        ObservedProcess(
            process_key=f"m#{slot}", model="m", replica=slot, backend="b", digest="d", state=ProcessStatus(state)
        )
        for slot, state in enumerate(states)
    )
    return ProcessTable(epoch=epoch, processes=processes, seen_at=seen_at)


HERE = replace(ROW, epoch=3)
GO = node(key_hash=None, instance=None)
"""With a LocalAI worker."""


@pytest.mark.parametrize(
    ("row", "where", "told", "lost", "missed"),
    [
        pytest.param(ROW, node(), table("ready"), 0, 0, id="it-runs"),
        pytest.param(ROW, node(), table("backing_off"), 0, 0, id="it-is-being-started-again"),
        pytest.param(ROW, node(), None, 0, 0, id="no-table-is-no-evidence"),
        pytest.param(ROW, node(), table(epoch=2), 0, 0, id="an-old-epochs-table-is-no-evidence"),
        pytest.param(ROW, node(presence=Presence.SUSPECT), None, 0, 0, id="silence-is-not-death"),
        pytest.param(ROW, node(presence=Presence.GONE), table("ready"), 1, 0, id="its-node-is-dead"),
        pytest.param(
            ROW, node(presence=Presence.LEFT, presence_since=NOW - 1), None, 0, 0, id="it-may-be-back-at-once"
        ),
        pytest.param(
            ROW,
            node(presence=Presence.LEFT, presence_since=NOW - 60_000, changed_at=NOW),
            None,
            1,
            0,
            id="it-left-for-good",
        ),
        pytest.param(
            ROW,
            node(presence=Presence.LEFT, presence_since=NOW, drain_requested=True),
            None,
            1,
            0,
            id="drained-and-stopped",
        ),
        pytest.param(ROW, None, None, 1, 0, id="its-node-was-removed"),
        pytest.param(
            ROW, node(approved=False, changed_at=NOW), table("ready"), 1, 0, id="its-node-has-to-be-approved-again"
        ),
        pytest.param(ROW, node(approved=False, presence_since=NOW - 1), None, 0, 0, id="a-moment-ago-it-was-approved"),
        pytest.param(ROW, node(), table(), 0, 1, id="missing-once"),
        pytest.param(replace(ROW, missed=1), node(), table(), 1, 0, id="missing-twice"),
        pytest.param(replace(ROW, missed=1), node(), table("failed"), 1, 0, id="given-up-by-its-worker"),
        pytest.param(replace(ROW, missed=1, ready_at=NOW - 1), node(), table(), 0, 0, id="just-ready"),
        pytest.param(replace(ROW, missed=1, state=ReplicaState.STARTING), node(), table(), 0, 0, id="its-load-owns-it"),
        pytest.param(HERE, GO, table(seen_at=NOW), 0, 1, id="missing-once-on-a-localai-worker"),
        pytest.param(replace(HERE, missed=1), GO, table(seen_at=NOW), 1, 0, id="missing-twice-on-a-localai-worker"),
        pytest.param(
            replace(HERE, missed=1), GO, table(seen_at=NOW - 59_000), 0, 0, id="a-localai-worker-was-asked-before"
        ),
        pytest.param(HERE, replace(GO, epoch=4), None, 1, 0, id="a-localai-worker-was-restarted"),
        pytest.param(
            replace(HERE, state=ReplicaState.STARTING), replace(GO, epoch=4), None, 0, 0, id="its-load-starts-it-again"
        ),
        pytest.param(
            HERE, replace(GO, presence=Presence.LEFT, presence_since=NOW), None, 1, 0, id="a-localai-worker-has-left"
        ),
    ],
)
def test_what_ends_a_row(row: Replica, where: Node | None, told: ProcessTable | None, lost: int, missed: int) -> None:
    nodes = {"n": where} if where is not None else {}
    tables = {"n": told} if told is not None else {}
    plan = plan_repair([row], nodes, tables, loading=frozenset(), now_ms=NOW)
    assert (len(plan.lost), len(plan.missed)) == (lost, missed)
    assert all(entry.why for entry in plan.lost)


def test_a_process_that_nobody_wants_is_an_orphan() -> None:
    told = table("ready", "ready", "stopping")
    plan = plan_repair([ROW], {"n": node()}, {"n": told}, loading=frozenset(), now_ms=NOW)
    assert plan.orphans == (Orphan("n", "m#1", "m"),)


@pytest.mark.parametrize(
    ("where", "told", "loading"),
    [
        pytest.param(node(), table("ready"), frozenset({("n", "m#0")}), id="a-load-owns-it"),
        pytest.param(node(key_hash=None), table("ready"), frozenset(), id="a-localai-workers-are-not-ours-to-end"),
        pytest.param(node(presence=Presence.GONE), table("ready"), frozenset(), id="nobody-is-there-to-be-told"),
        pytest.param(node(), table("ready", epoch=2), frozenset(), id="told-in-an-earlier-life"),
    ],
)
def test_what_is_no_orphan(where: Node, told: ProcessTable, loading: frozenset[tuple[str, str]]) -> None:
    assert plan_repair([], {"n": where}, {"n": told}, loading=loading, now_ms=NOW).orphans == ()
