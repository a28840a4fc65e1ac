"""Compares replica rows with the processes that nodes report. A missing or failed report is no evidence: a row is
removed only when its node is offline, or when a complete, newer report does not list its process."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.nodes.node import LEAVE_GRACE_MS, Node, NodeStatus, just_left
from corral.core.nodes.observed import RUNNING_STATUSES, ProcessTable
from corral.core.replicas.availability import ended_with_worker, is_settled
from corral.core.replicas.replica import COMING, Replica, ReplicaState

MISSES = 2
_REACHABLE = (NodeStatus.HEALTHY, NodeStatus.DRAINING)


@dataclass(frozen=True, slots=True)
class Lost:
    replica: Replica
    why: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process without a replica row."""

    node_id: str
    process_key: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    lost: tuple[Lost, ...] = ()
    missed: tuple[str, ...] = ()
    """Missing in the newest report for the first time."""
    orphans: tuple[Orphan, ...] = ()


def plan_repair(
    replicas: Iterable[Replica],
    nodes: Mapping[str, Node],
    tables: Mapping[str, ProcessTable],
    *,
    loading: frozenset[tuple[str, str]],
    now_ms: int,
) -> Repair:
    """`loading`: node and process key of running loads, which own the processes they start."""
    rows = list(replicas)
    lost, missed = [], []
    for replica in rows:
        node = nodes.get(replica.node_id)
        if node is None:
            lost.append(Lost(replica, "its node was removed"))
        elif node.status is NodeStatus.OFFLINE and not (node.speaks_corral and just_left(node, now_ms=now_ms)):
            lost.append(Lost(replica, f"its node {node.name} is offline: {node.presence_reason or 'worker stopped'}"))
        elif node.status is NodeStatus.PENDING and now_ms - node.presence_since >= LEAVE_GRACE_MS:
            lost.append(Lost(replica, f"its node {node.name} is waiting for approval"))
        elif _ended_with_worker(replica, node):
            lost.append(Lost(replica, ended_with_worker(node)))
        elif _is_missing(replica, node, tables.get(replica.node_id), now_ms):
            if replica.missed + 1 >= MISSES:
                lost.append(Lost(replica, f"{node.name} no longer runs it"))
            else:
                missed.append(replica.id)
    owned = {(replica.node_id, replica.process_key) for replica in rows} | loading
    return Repair(lost=tuple(lost), missed=tuple(missed), orphans=tuple(_orphans(nodes, tables, owned)))


def _ended_with_worker(replica: Replica, node: Node) -> bool:
    return not node.speaks_corral and replica.state not in COMING and replica.epoch != node.epoch


def _is_missing(replica: Replica, node: Node, table: ProcessTable | None, now_ms: int) -> bool:
    if table is None or table.epoch != node.epoch or replica.state in COMING:
        return False
    since = replica.ready_at if replica.state is ReplicaState.READY else replica.changed_at
    if not is_settled(since or replica.created_at, node, table, now_ms=now_ms):
        return False
    alive = {process.process_key for process in table.processes if process.state in RUNNING_STATUSES}
    return replica.process_key not in alive


def _orphans(
    nodes: Mapping[str, Node], tables: Mapping[str, ProcessTable], owned: set[tuple[str, str]]
) -> Iterable[Orphan]:
    for node_id, table in tables.items():
        node = nodes.get(node_id)
        # A LocalAI worker may serve other frontends; only processes of Corral workers may be stopped.
        if node is None or not node.speaks_corral or table.epoch != node.epoch or node.status not in _REACHABLE:
            continue
        for process in table.processes:
            if process.state in RUNNING_STATUSES and process.model and (node_id, process.process_key) not in owned:
                yield Orphan(node_id, process.process_key, process.model)
