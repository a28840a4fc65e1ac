"""Nouns of the herd: a node is a machine, a worker is our process on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from corral.core.nodes.conditions import Condition
from corral.core.nodes.presence import Presence

NodeId = NewType("NodeId", str)
LEAVE_GRACE_MS = 15_000
"""A worker that is started again, or a whole herd that is being stopped, moves nothing to other machines."""


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
    """What people see. LocalAI's statuses, and one more."""

    PENDING = "pending"
    JOINING = "joining"
    """Approved, and on its way: not seen to be ready yet, and not ill."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    OFFLINE = "offline"
    DRAINING = "draining"


def classify_status(*, approved: bool, draining: bool, presence: Presence) -> NodeStatus:
    """What an administrator decided goes before what we observe; absence goes before draining."""
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
    """What a heartbeat tells. None is unknown, never zero."""

    available_vram: int | None = None
    total_vram: int | None = None
    available_ram: int | None = None
    available_disk: int | None = None
    total_disk: int | None = None
    gpu_vendor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameClaim:
    """Another machine that wants to be a node: it registered under the node's name and is not that node. It waits until
    an administrator says that it replaces it."""

    id: str
    key_hash: str | None
    """Of its own secret; None for a LocalAI worker."""
    told_from: str
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
    """An administrator's wish; it outlives every restart of the worker."""
    worker_draining: bool
    """The worker's own word that it is about to stop; a new process starts without it."""
    presence: Presence
    presence_reason: str
    address: str
    http_address: str
    key_hash: str | None
    """Hash of the secret only this node knows; None for a LocalAI worker, which has none."""
    instance: str | None
    """The worker process that speaks for this node; a new one makes a new epoch."""
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
    """What a Corral worker told about its machine, as it told it (JSON)."""
    conflict_message: str | None
    conflict_at: int | None
    last_heartbeat: int | None
    bus_answered: bool
    """This process has answered on the bus at least once."""
    bus_failures: int
    bus_no_responders: bool
    created_at: int
    changed_at: int
    refused_count: int = 0
    """Messages of it that could not be read or stored, since it joined."""
    refused_reason: str | None = None
    refused_at: int | None = None
    conditions: tuple[Condition, ...] = ()
    """What keeps it from taking new work although it is reachable."""
    registered_from: str | None = None
    """The address its last registration came from. A LocalAI worker, which has no secret, is bound to it."""
    claims: tuple[NameClaim, ...] = ()
    """Other machines that claim to be this one."""
    presence_since: int = 0
    """When `presence` or `approved` last changed, or another machine became this node."""
    drain_since: int | None = None
    """When it began to drain, on whoever's word; None while it does not."""

    @property
    def speaks_corral(self) -> bool:
        """Whether it runs a Corral worker, which registers with a secret; a LocalAI worker has none."""
        return self.key_hash is not None

    @property
    def status(self) -> NodeStatus:
        """Whether it is reachable and may work: what routing and orders go by."""
        return classify_status(approved=self.approved, draining=self.draining, presence=self.presence)

    @property
    def state(self) -> NodeState:
        """A node that cannot take new work is not healthy, though what runs there serves on."""
        if self.approved and self.presence is Presence.JOINING:
            return NodeState.JOINING
        status = self.status
        if status is NodeStatus.HEALTHY and self.conditions:
            return NodeState.UNHEALTHY
        return NodeState(status.value)

    @property
    def localai_status(self) -> NodeStatus:
        """The state in LocalAI's words."""
        state = self.state
        return NodeStatus.UNHEALTHY if state is NodeState.JOINING else NodeStatus(state.value)

    @property
    def draining(self) -> bool:
        """A worker that has left is not about to stop any more; an administrator's wish stands while it is away."""
        away = self.presence in (Presence.LEFT, Presence.GONE)
        return self.drain_requested or (self.worker_draining and not away)

    @property
    def draining_since(self) -> int:
        """Of a node that drains. A frontend of an earlier version notes only that its row changed."""
        return self.changed_at if self.drain_since is None else self.drain_since

    @property
    def max_replicas_per_model(self) -> int:
        return self.max_replicas_override or self.max_replicas_reported

    @property
    def vram_budget(self) -> str | None:
        return self.vram_budget_override or self.vram_budget_reported


def just_left(node: Node, *, now_ms: int) -> bool:
    """Its worker says that it stops, or has said good-bye a moment ago: it may well be back in a moment, with all that
    ran there."""
    has_left = node.presence is Presence.LEFT
    since = node.presence_since if has_left else node.draining_since
    return (has_left or node.worker_draining) and not node.drain_requested and now_ms - since < LEAVE_GRACE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """What a worker says of itself when it registers."""

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
