"""A node: one machine of the cluster, on which a worker runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NewType

from corral.core.nodes.conditions import Condition
from corral.core.nodes.presence import Presence

NodeId = NewType("NodeId", str)
LEAVE_GRACE_MS = 15_000
"""A restart of a worker, or a shutdown of the whole cluster, moves no replicas to other nodes within this time."""


class NodeType(StrEnum):
    BACKEND = "backend"
    AGENT = "agent"


class NodeStatus(StrEnum):
    PENDING = "pending"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    OFFLINE = "offline"
    DRAINING = "draining"


class NodeState(StrEnum):
    """The state that users see: LocalAI's statuses and `joining`."""

    PENDING = "pending"
    JOINING = "joining"
    """Approved, but not heard on both paths yet."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    OFFLINE = "offline"
    DRAINING = "draining"


def classify_status(*, approved: bool, draining: bool, presence: Presence) -> NodeStatus:
    """Approval comes before what was observed; offline comes before draining."""
    if not approved:
        return NodeStatus.PENDING
    match presence:
        case Presence.LEFT | Presence.GONE:
            return NodeStatus.OFFLINE
        case Presence.JOINING | Presence.SUSPECT:
            return NodeStatus.UNHEALTHY
        case Presence.LIVE:
            return NodeStatus.DRAINING if draining else NodeStatus.HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """The values of a heartbeat. None is unknown, never zero."""

    available_vram: int | None = None
    total_vram: int | None = None
    available_ram: int | None = None
    available_disk: int | None = None
    total_disk: int | None = None
    gpu_vendor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameClaim:
    """Another machine that registered under the name of this node. It waits until an administrator lets it replace the
    node."""

    id: str
    key_hash: str | None
    """Of its own secret; None for a LocalAI worker."""
    source_address: str
    """The address it registered from."""
    http_address: str
    made_at: int
    seen_at: int
    rejected_at: int | None = None

    @property
    def speaks_corral(self) -> bool:
        """Whether it runs a Corral worker, which registers with a secret; a LocalAI worker has none."""
        return self.key_hash is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    id: NodeId
    name: str
    node_type: NodeType
    approved: bool
    drain_requested: bool
    """Set by an administrator; kept across restarts of the worker."""
    worker_draining: bool
    """Set by the worker when it is about to stop; cleared by the next worker process."""
    presence: Presence
    presence_reason: str
    address: str
    http_address: str
    key_hash: str | None
    """Hash of the node's secret; None for a LocalAI worker, which has none."""
    instance: str | None
    """Id of the worker process; a new process begins a new epoch."""
    epoch: int
    total_vram: int | None
    available_vram: int | None
    total_ram: int | None
    available_ram: int | None
    total_disk: int | None
    available_disk: int | None
    gpu_vendor: str | None
    gpu_compute_capability: str | None
    capability: str | None
    max_replicas_reported: int
    max_replicas_override: int | None
    vram_budget_reported: str | None
    vram_budget_override: str | None
    worker_labels: Mapping[str, str]
    operator_labels: Mapping[str, str]
    facts: str | None
    """The hardware report of a Corral worker (JSON)."""
    conflict_message: str | None
    conflict_at: int | None
    last_heartbeat: int | None
    bus_answered: bool
    """The current worker process has answered on the bus at least once."""
    bus_failures: int
    bus_no_responders: bool
    created_at: int
    changed_at: int
    refused_count: int = 0
    """Messages of the node that were rejected since it joined."""
    refused_reason: str | None = None
    refused_at: int | None = None
    conditions: tuple[Condition, ...] = ()
    """Why it gets no new work although it is reachable."""
    registered_from: str | None = None
    """The address of its last registration. A LocalAI worker, which has no secret, is bound to it."""
    claims: tuple[NameClaim, ...] = ()
    """Other machines that registered under its name."""
    presence_since: int = 0
    """When `presence` or `approved` last changed, or another machine replaced this node."""
    drain_since: int | None = None
    """When it began to drain, for either reason; None while it does not."""

    @property
    def speaks_corral(self) -> bool:
        """Whether it runs a Corral worker, which registers with a secret; a LocalAI worker has none."""
        return self.key_hash is not None

    @property
    def status(self) -> NodeStatus:
        """Whether it is reachable and may work. Routing and operations use it."""
        return classify_status(approved=self.approved, draining=self.draining, presence=self.presence)

    @property
    def state(self) -> NodeState:
        """A node that gets no new work is shown as unhealthy, although its replicas still serve."""
        if self.approved and self.presence is Presence.JOINING:
            return NodeState.JOINING
        status = self.status
        if status is NodeStatus.HEALTHY and self.conditions:
            return NodeState.UNHEALTHY
        return NodeState(status.value)

    @property
    def localai_status(self) -> NodeStatus:
        """The state as a LocalAI status."""
        state = self.state
        return NodeStatus.UNHEALTHY if state is NodeState.JOINING else NodeStatus(state.value)

    @property
    def draining(self) -> bool:
        """A worker that has left is not about to stop any more; a requested drain stays while the node is offline."""
        is_offline = self.presence in (Presence.LEFT, Presence.GONE)
        return self.drain_requested or (self.worker_draining and not is_offline)

    @property
    def draining_since(self) -> int:
        """For a draining node. A frontend of an earlier version stores only that the row changed."""
        return self.changed_at if self.drain_since is None else self.drain_since

    @property
    def max_replicas_per_model(self) -> int:
        return self.max_replicas_override or self.max_replicas_reported

    @property
    def vram_budget(self) -> str | None:
        return self.vram_budget_override or self.vram_budget_reported


def with_new_process(node: Node) -> Node:
    """The node after its worker has restarted: nothing that the former process reported still holds."""
    return replace(
        node,
        worker_draining=False,
        conditions=(),
        bus_answered=False,
        bus_failures=0,
        bus_no_responders=False,
        conflict_message=None,
        conflict_at=None,
    )


def just_left(node: Node, *, now_ms: int) -> bool:
    """Whether its worker is stopping, or left moments ago: it may return soon, with its processes."""
    has_left = node.presence is Presence.LEFT
    since = node.presence_since if has_left else node.draining_since
    return (has_left or node.worker_draining) and not node.drain_requested and now_ms - since < LEAVE_GRACE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """What a worker reports about itself when it registers."""

    name: str
    node_type: NodeType
    address: str
    http_address: str
    key_hash: str | None = None
    instance: str | None = None
    total_vram: int | None = None
    available_vram: int | None = None
    total_ram: int | None = None
    available_ram: int | None = None
    total_disk: int | None = None
    available_disk: int | None = None
    gpu_vendor: str | None = None
    gpu_compute_capability: str | None = None
    capability: str | None = None
    max_replicas_per_model: int = 1
    vram_budget: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: str | None = None
    registered_from: str | None = None
