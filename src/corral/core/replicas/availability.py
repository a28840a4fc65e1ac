"""Whether a ready replica can serve, from what its node last reported: now, soon, or not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.core.nodes.engine_capacity import EngineCapacity
from corral.core.nodes.labels import matches
from corral.core.nodes.node import LEAVE_GRACE_MS, Node, NodeStatus, just_left
from corral.core.nodes.observed import RUNNING_STATUSES, ObservedProcess, ProcessStatus, ProcessTable
from corral.core.nodes.presence import Presence
from corral.core.replicas.replica import Replica

SETTLED_AFTER_MS = 5_000
"""A report that was sent before a replica became ready does not list it yet."""


class Availability(StrEnum):
    SERVES = "serves"
    RETURNING = "returning"
    """It will serve again soon: its worker or its process is restarting."""
    OFFLINE = "offline"
    """Its node cannot be reached, so its state is unknown."""
    LOST = "lost"
    """Its node reports that it does not run."""


@dataclass(frozen=True, slots=True)
class AvailabilityVerdict:
    availability: Availability
    why: str = ""


_SERVES = AvailabilityVerdict(Availability.SERVES)


def judge_availability(
    replica: Replica, node: Node | None, table: ProcessTable | None, *, now_ms: int
) -> AvailabilityVerdict:
    """For a replica that has been ready."""
    if node is None:
        return AvailabilityVerdict(Availability.OFFLINE, "its node was removed")
    if just_left(node, now_ms=now_ms) and node.speaks_corral:
        return AvailabilityVerdict(Availability.RETURNING, f"{node.name} has just left and may return soon")
    if node.status is NodeStatus.HEALTHY or (node.status is NodeStatus.DRAINING and not node.worker_draining):
        return _by_table(replica, node, table, now_ms)
    if node.presence is Presence.JOINING and node.approved and now_ms - node.presence_since < LEAVE_GRACE_MS:
        return AvailabilityVerdict(Availability.RETURNING, f"{node.name} is rejoining")
    return AvailabilityVerdict(Availability.OFFLINE, f"{node.name} is {node.status.value}")


def _by_table(replica: Replica, node: Node, table: ProcessTable | None, now_ms: int) -> AvailabilityVerdict:
    if replica.epoch != node.epoch and not node.speaks_corral:
        return AvailabilityVerdict(Availability.LOST, ended_with_worker(node))
    if table is None or table.epoch != node.epoch:
        if replica.epoch == node.epoch:
            return _SERVES
        return AvailabilityVerdict(Availability.RETURNING, f"{node.name} has not reported its processes yet")
    process = table.find(replica.process_key)
    if not is_settled(replica.ready_at or 0, node, table, now_ms=now_ms) and (
        process is None or process.state == ProcessStatus.STARTING
    ):
        return _SERVES
    if process is None or process.state not in RUNNING_STATUSES:
        return AvailabilityVerdict(Availability.LOST, f"{node.name} no longer runs it")
    if process.state != ProcessStatus.READY:
        return AvailabilityVerdict(Availability.RETURNING, f"its process on {node.name} is restarting")
    if is_another(replica, process):
        return AvailabilityVerdict(Availability.RETURNING, f"its process on {node.name} was restarted")
    return _SERVES


def ended_with_worker(node: Node) -> str:
    """Of a LocalAI worker. Corral's workers adopt the processes of their predecessors."""
    return f"the LocalAI worker of {node.name} was restarted, which ended its processes"


def is_settled(since_ms: int, node: Node, table: ProcessTable, *, now_ms: int) -> bool:
    """Whether the table counts for a process that has run since then. A Corral worker reports every change at once; a
    LocalAI worker is asked now and then, so its table may be older than the process."""
    confirmed_ms = now_ms if node.speaks_corral else table.seen_at or 0
    return confirmed_ms - since_ms >= SETTLED_AFTER_MS


def is_another(replica: Replica, process: ObservedProcess) -> bool:
    """Whether the process has the replica's key, but is not the one whose address and token the row has."""
    return replica.pid is not None and process.pid is not None and replica.pid != process.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """All that the availability of replicas depends on, read at one time."""

    nodes: Mapping[str, Node]
    tables: Mapping[str, ProcessTable]
    now_ms: int

    def judge(self, replica: Replica) -> AvailabilityVerdict:
        node_id = replica.node_id
        return judge_availability(replica, self.nodes.get(node_id), self.tables.get(node_id), now_ms=self.now_ms)

    def engine_of(self, replica: Replica) -> EngineCapacity | None:
        """What its engine takes, as its node last reported it."""
        table = self.tables.get(replica.node_id)
        process = table.find(replica.process_key) if table is not None else None
        return process.engine if process is not None else None

    def is_selected(self, replica: Replica, selector: Mapping[str, str]) -> bool:
        node = self.nodes.get(replica.node_id)
        return node is not None and matches(node, selector)


def pick_routed(
    ready: Iterable[Replica], selector: Mapping[str, str], snapshot: ClusterSnapshot, *, desired: int = 1
) -> list[Replica]:
    """The replicas that get requests: those that serve on matching nodes, also of an older revision until a successor
    is ready. Those on a draining node get requests only until `desired` replicas serve elsewhere."""
    good: list[Replica] = []
    leaving: list[Replica] = []
    for replica in ready:
        if not snapshot.is_selected(replica, selector):
            continue
        if snapshot.judge(replica).availability is Availability.SERVES:
            node = snapshot.nodes[replica.node_id]
            (leaving if node.status is NodeStatus.DRAINING else good).append(replica)
    return good if len(good) >= desired else good + leaving
