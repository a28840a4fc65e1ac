"""Rows against what nodes say runs. Silence is not death and an error is not an empty list: a row goes only on positive
evidence, which is a dead node or a complete, newer table of its processes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.nodes.node import LEAVE_GRACE_MS, Node, NodeStatus, just_left
from corral.core.nodes.observed import RUNNING_STATUSES, ProcessTable
from corral.core.replicas.availability import SETTLED_AFTER_MS
from corral.core.replicas.replica import COMING, Replica, ReplicaState

MISSES = 2
_THERE = (NodeStatus.HEALTHY, NodeStatus.DRAINING)


@dataclass(frozen=True, slots=True)
class Lost:
    replica: Replica
    why: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that no row wants."""

    node_id: str
    process_key: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    lost: tuple[Lost, ...] = ()
    missed: tuple[str, ...] = ()
    """Not in the newest table, for the first time."""
    orphans: tuple[Orphan, ...] = ()


def plan_repair(
    replicas: Iterable[Replica],
    nodes: Mapping[str, Node],
    tables: Mapping[str, ProcessTable],
    *,
    loading: frozenset[tuple[str, str]],
    now_ms: int,
) -> Repair:
    """`loading`: node and process key of loads under way, which own what they start."""
    rows = list(replicas)
    lost, missed = [], []
    for replica in rows:
        node = nodes.get(replica.node_id)
        if node is None:
            lost.append(Lost(replica, "its node was removed"))
        elif node.status is NodeStatus.OFFLINE and not just_left(node, now_ms=now_ms):
            lost.append(Lost(replica, f"its node {node.name} is gone: {node.presence_reason or 'its worker stopped'}"))
        elif node.status is NodeStatus.PENDING and now_ms - node.presence_since >= LEAVE_GRACE_MS:
            lost.append(Lost(replica, f"its node {node.name} waits for approval"))
        elif _is_missing(replica, node, tables.get(replica.node_id), now_ms):
            if replica.missed + 1 >= MISSES:
                lost.append(Lost(replica, f"{node.name} does not run it any more"))
            else:
                missed.append(replica.id)
    wanted = {(replica.node_id, replica.process_key) for replica in rows} | loading
    return Repair(lost=tuple(lost), missed=tuple(missed), orphans=tuple(_orphans(nodes, tables, wanted)))


def _is_missing(replica: Replica, node: Node, table: ProcessTable | None, now_ms: int) -> bool:
    if table is None or table.epoch != node.epoch or replica.state in COMING:
        return False
    since = replica.ready_at if replica.state is ReplicaState.READY else replica.changed_at
    if now_ms - (since or replica.created_at) < SETTLED_AFTER_MS:
        return False
    alive = {process.process_key for process in table.processes if process.state in RUNNING_STATUSES}
    return replica.process_key not in alive


def _orphans(
    nodes: Mapping[str, Node], tables: Mapping[str, ProcessTable], wanted: set[tuple[str, str]]
) -> Iterable[Orphan]:
    for node_id, table in tables.items():
        node = nodes.get(node_id)
        # A LocalAI worker may serve other frontends; only what Corral's own workers run is ours to end.
        if node is None or not node.speaks_corral or table.epoch != node.epoch or node.status not in _THERE:
            continue
        for process in table.processes:
            if process.state in RUNNING_STATUSES and process.model and (node_id, process.process_key) not in wanted:
                yield Orphan(node_id, process.process_key, process.model)
