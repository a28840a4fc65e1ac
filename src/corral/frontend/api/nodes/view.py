"""A node as the API shows it: LocalAI's fields with Corral's beside them.

Plain dataclasses, so that msgspec encodes a thousand of them in milliseconds; FastAPI reads their types for OpenAPI.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field

from corral.bus.node_api import NodeFacts, decode_facts
from corral.core.causes import join_reasons
from corral.core.errors import InvalidInput
from corral.core.nodes.labels import effective_labels
from corral.core.nodes.node import NameClaim, Node, NodeState, NodeStatus
from corral.core.nodes.presence import Presence
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.routing import ReplicaId
from corral.core.sizes import parse_budget_bytes
from corral.frontend.api.times import time_of

CONFLICT_SHOWN_MS = 15 * 60 * 1000
REFUSED_SHOWN_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    name: str | None
    vendor: str
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    unified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictView:
    message: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """Another machine that registered under the name of this node."""

    id: str
    address: Annotated[str, Field(description="The address it registered from.")]
    http_address: Annotated[str, Field(description="The HTTP address it stated.")]
    localai: Annotated[bool, Field(description="Whether it is a LocalAI worker, which has no node key.")]
    made_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedView:
    count: Annotated[int, Field(description="Number of rejected messages since it joined.")]
    reason: Annotated[str, Field(description="Why the latest was rejected.")]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionView:
    kind: Annotated[str, Field(description="`disk_pressure`, `data_directory`, `clock_skew` or `ports_exhausted`.")]
    reason: str
    remedy: str


@dataclass(
    slots=True, kw_only=True
)  # not frozen: creating frozen ones takes twice as long, and there may be a thousand
class NodeView:
    """Unknown byte counts are null, never 0."""

    id: str
    name: str
    node_type: str
    address: str
    http_address: str
    status: Annotated[NodeStatus, Field(description="LocalAI's status, which has no `joining`.")]
    state: NodeState
    reachable: Annotated[
        bool, Field(description="Whether it receives commands; a condition may still keep new models away.")
    ]
    status_reason: Annotated[
        str, Field(description="Why the node has this status; empty when there is nothing to explain.")
    ]
    total_vram: int | None
    available_vram: int | None
    reserved_vram: int
    total_ram: int | None
    available_ram: int | None
    total_disk: int | None
    available_disk: int | None
    gpu_vendor: str | None
    gpu_compute_capability: str | None
    capability: str | None
    capability_reason: str | None
    isolation: Annotated[
        str | None,
        Field(description="How its backends are isolated: `full`, `partial` or `none`; null when not reported."),
    ]
    isolation_reason: str | None
    max_replicas_per_model: int
    max_replicas_per_model_manually_set: bool
    vram_budget: str | None
    vram_budget_bytes: int | None
    vram_budget_manually_set: bool
    last_heartbeat: datetime | None
    last_seen_age_s: float | None
    created_at: datetime
    updated_at: datetime
    model_count: int
    in_flight_count: int
    labels: dict[str, str]
    worker_labels: dict[str, str]
    operator_labels: dict[str, str]
    approved: bool
    draining: bool
    drain_requested: Annotated[
        bool, Field(description="Whether an administrator requested the drain; otherwise the worker is stopping.")
    ]
    epoch: int
    version: str | None
    platform: str | None
    cpu_model: str | None
    cpu_count: int | None
    gpus: list[GpuView]
    problems: Annotated[list[str], Field(description="Facts about its machine that the worker could not detect.")]
    conditions: Annotated[list[ConditionView], Field(description="Conditions that keep it from taking new work.")]
    conflict: Annotated[ConflictView | None, Field(description="A second machine with the same identity.")]
    claims: Annotated[
        list[ClaimView], Field(description="Machines that registered under this name and wait for a decision.")
    ]
    refused: Annotated[
        RefusedView | None, Field(description="Recent messages of this node that could not be decoded or stored.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    models: int = 0
    """Models with a ready replica on the node."""
    in_flight: int = 0
    reserved_bytes: int = 0
    """Memory reserved for replicas that are placed and not loaded yet."""


def count_loads(replicas: Iterable[Replica], in_flight: Callable[[ReplicaId], int]) -> dict[str, NodeLoad]:
    """Loads by node."""
    models: dict[str, set[str]] = {}
    requests: Counter[str] = Counter()
    reserved: Counter[str] = Counter()
    for replica in replicas:
        requests[replica.node_id] += in_flight(ReplicaId(replica.id))
        served = models.setdefault(replica.node_id, set())
        if replica.state is ReplicaState.READY:
            served.add(replica.model)
        elif replica.state in COMING:
            reserved[replica.node_id] += replica.memory_bytes or 0
    return {
        node: NodeLoad(models=len(served), in_flight=requests[node], reserved_bytes=reserved[node])
        for node, served in models.items()
    }


def _budget_bytes(node: Node) -> int | None:
    """The budget in bytes of GPU memory, or of system memory on a node without GPUs."""
    total = node.total_vram or node.total_ram
    if not node.vram_budget or total is None:
        return None
    try:
        return parse_budget_bytes(node.vram_budget, total_bytes=total)
    except InvalidInput:
        return None


def _reason(node: Node) -> str:
    match node.status:
        case NodeStatus.PENDING:
            gone = node.presence in (Presence.GONE, Presence.LEFT)
            return "waits for an administrator's approval" + ("; its worker is not running now" if gone else "")
        case NodeStatus.DRAINING:
            return "receives no new work" + (" (the worker is stopping)" if node.worker_draining else "")
        case NodeStatus.HEALTHY if node.conditions:
            return join_reasons(f"{condition.reason}. {condition.remedy}".rstrip() for condition in node.conditions)
        case _:
            return node.presence_reason


def _claim(claim: NameClaim) -> ClaimView:
    return ClaimView(
        id=claim.id,
        address=claim.source_address,
        http_address=claim.http_address,
        localai=claim.key_hash is None,
        made_at=time_of(claim.made_at),
        seen_at=time_of(claim.seen_at),
    )


def _refused(node: Node, now_ms: int) -> RefusedView | None:
    if node.refused_at is None or now_ms - node.refused_at >= REFUSED_SHOWN_MS:
        return None
    return RefusedView(count=node.refused_count, reason=node.refused_reason or "", at=time_of(node.refused_at))


def _explain_silence(node: Node, *, now_ms: int, silent_after_s: float | None) -> str:
    """After a restart of the frontend a silent node keeps its status for a while, because missing heartbeats count only
    from then on."""
    if silent_after_s is None or node.status is not NodeStatus.HEALTHY or node.last_heartbeat is None:
        return ""
    silent = now_ms - node.last_heartbeat >= silent_after_s * 1000
    return "no heartbeat received since this frontend started" if silent else ""


def _conflict(node: Node, now_ms: int) -> ConflictView | None:
    if not node.conflict_message or not node.conflict_at or now_ms - node.conflict_at >= CONFLICT_SHOWN_MS:
        return None
    return ConflictView(message=node.conflict_message, at=time_of(node.conflict_at))


def _available_vram(node: Node, budget_bytes: int | None) -> int | None:
    if budget_bytes is None or node.available_vram is None:
        return node.available_vram
    return min(node.available_vram, budget_bytes)


def _view_gpus(facts: NodeFacts) -> list[GpuView]:
    return [
        GpuView(
            name=gpu.name,
            vendor=gpu.vendor,
            memory_total_bytes=gpu.memory_total_bytes,
            memory_free_bytes=gpu.memory_free_bytes,
            unified=gpu.unified,
        )
        for gpu in facts.gpus
    ]


def view_node(
    node: Node, *, now_ms: int, load: NodeLoad | None = None, silent_after_s: float | None = None
) -> NodeView:
    load = load or NodeLoad()
    facts = decode_facts(node.facts) if node.facts else NodeFacts()
    budget_bytes = _budget_bytes(node)
    return NodeView(
        id=node.id,
        name=node.name,
        node_type=node.node_type.value,
        address=node.address,
        http_address=node.http_address,
        status=node.localai_status,
        state=node.state,
        reachable=node.status is NodeStatus.HEALTHY,
        status_reason=_reason(node) or _explain_silence(node, now_ms=now_ms, silent_after_s=silent_after_s),
        total_vram=node.total_vram,
        available_vram=_available_vram(node, budget_bytes),
        reserved_vram=load.reserved_bytes if node.total_vram else 0,
        total_ram=node.total_ram,
        available_ram=node.available_ram,
        total_disk=node.total_disk,
        available_disk=node.available_disk,
        gpu_vendor=node.gpu_vendor,
        gpu_compute_capability=node.gpu_compute_capability,
        capability=node.capability,
        capability_reason=facts.capability_reason,
        isolation=facts.isolation,
        isolation_reason=facts.isolation_reason,
        max_replicas_per_model=node.max_replicas_per_model,
        max_replicas_per_model_manually_set=node.max_replicas_override is not None,
        vram_budget=node.vram_budget,
        vram_budget_bytes=budget_bytes,
        vram_budget_manually_set=node.vram_budget_override is not None,
        last_heartbeat=time_of(node.last_heartbeat or None),
        last_seen_age_s=max(0, now_ms - node.last_heartbeat) / 1000 if node.last_heartbeat else None,
        created_at=time_of(node.created_at),
        updated_at=time_of(node.changed_at),
        model_count=load.models,
        in_flight_count=load.in_flight,
        labels=effective_labels(node),
        worker_labels=dict(node.worker_labels),
        operator_labels=dict(node.operator_labels),
        approved=node.approved,
        draining=node.draining,
        drain_requested=node.drain_requested,
        epoch=node.epoch,
        version=facts.version,
        platform=facts.platform,
        cpu_model=facts.cpu_model,
        cpu_count=facts.cpu_count,
        gpus=_view_gpus(facts),
        problems=facts.problems,
        conditions=[ConditionView(kind=one.kind, reason=one.reason, remedy=one.remedy) for one in node.conditions],
        conflict=_conflict(node, now_ms),
        claims=[_claim(claim) for claim in node.claims if claim.rejected_at is None],
        refused=_refused(node, now_ms),
    )
