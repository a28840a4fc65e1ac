"""Where a ready replica stands by what its node last told: it serves, will again in a moment, or neither."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.core.nodes.labels import matches
from corral.core.nodes.node import LEAVE_GRACE_MS, Node, NodeStatus, just_left
from corral.core.nodes.observed import RUNNING_STATUSES, ObservedProcess, ProcessStatus, ProcessTable
from corral.core.nodes.presence import Presence
from corral.core.replicas.replica import Replica

SETTLED_AFTER_MS = 5_000
"""A report that was on its way when a replica became ready may not have it yet."""


class Availability(StrEnum):
    SERVES = "serves"
    RETURNING = "returning"
    """It will be there in a moment: its worker is being started again, or its process is."""
    AWAY = "away"
    """Its node is not there; what became of it nobody can say."""
    LOST = "lost"
    """Its node says that it does not run."""


@dataclass(frozen=True, slots=True)
class AvailabilityVerdict:
    standing: Availability
    why: str = ""


_SERVES = AvailabilityVerdict(Availability.SERVES)


def judge_availability(
    replica: Replica, node: Node | None, table: ProcessTable | None, *, now_ms: int
) -> AvailabilityVerdict:
    """Of a replica that became ready once."""
    if node is None:
        return AvailabilityVerdict(Availability.AWAY, "its node was removed")
    if just_left(node, now_ms=now_ms):
        return AvailabilityVerdict(Availability.RETURNING, f"{node.name} has just left and may be back in a moment")
    if node.status is NodeStatus.HEALTHY or (node.status is NodeStatus.DRAINING and not node.worker_draining):
        return _by_table(replica, node, table, now_ms)
    if node.presence is Presence.JOINING and node.approved and now_ms - node.presence_since < LEAVE_GRACE_MS:
        return AvailabilityVerdict(Availability.RETURNING, f"{node.name} is coming back")
    return AvailabilityVerdict(Availability.AWAY, f"{node.name} is {node.status.value}")


def _by_table(replica: Replica, node: Node, table: ProcessTable | None, now_ms: int) -> AvailabilityVerdict:
    if not node.speaks_corral:
        return _SERVES  # a LocalAI worker tells neither epochs nor changes
    if table is None or table.epoch != node.epoch:
        if replica.epoch == node.epoch:
            return _SERVES
        return AvailabilityVerdict(Availability.RETURNING, f"{node.name} has not told yet what it runs")
    process = table.find(replica.process_key)
    fresh = now_ms - (replica.ready_at or 0) < SETTLED_AFTER_MS
    if fresh and (process is None or process.state == ProcessStatus.STARTING):
        return _SERVES
    if process is None or process.state not in RUNNING_STATUSES:
        return AvailabilityVerdict(Availability.LOST, f"{node.name} does not run it any more")
    if process.state != ProcessStatus.READY:
        return AvailabilityVerdict(Availability.RETURNING, f"its process on {node.name} is being started again")
    if is_another(replica, process):
        return AvailabilityVerdict(Availability.RETURNING, f"its process on {node.name} was started again")
    return _SERVES


def is_another(replica: Replica, process: ObservedProcess) -> bool:
    """Behind the same key, but not the process whose address and token the row has."""
    return replica.pid is not None and process.pid is not None and replica.pid != process.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """All that the standing of replicas depends on, on one snapshot."""

    nodes: Mapping[str, Node]
    tables: Mapping[str, ProcessTable]
    now_ms: int

    def judge(self, replica: Replica) -> AvailabilityVerdict:
        node_id = replica.node_id
        return judge_availability(replica, self.nodes.get(node_id), self.tables.get(node_id), now_ms=self.now_ms)

    def is_chosen(self, replica: Replica, selector: Mapping[str, str]) -> bool:
        node = self.nodes.get(replica.node_id)
        return node is not None and matches(node, selector)


def pick_routed(
    ready: Iterable[Replica], selector: Mapping[str, str], around: ClusterSnapshot, *, wanted: int = 1
) -> list[Replica]:
    """Those that serve, on nodes that match; of an older revision too, until a successor is ready and it drains. Those
    on a node that is being drained do only until as many as are wanted can elsewhere."""
    good: list[Replica] = []
    leaving: list[Replica] = []
    for replica in ready:
        if not around.is_chosen(replica, selector):
            continue
        if around.judge(replica).standing is Availability.SERVES:
            node = around.nodes[replica.node_id]
            (leaving if node.status is NodeStatus.DRAINING else good).append(replica)
    return good if len(good) >= wanted else good + leaving
