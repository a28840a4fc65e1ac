"""Replicas, loads and placement decisions as the API shows them: LocalAI's fields with Corral's beside them.

Answers leave out fields that have their default (`SparseJson`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from corral.core.nodes.engine_capacity import open_limit
from corral.core.nodes.node import Node
from corral.core.nodes.targets import pick_serving
from corral.core.replicas.availability import Availability
from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.routing import ReplicaId
from corral.core.replicas.scaling import Scheduling
from corral.frontend.api.times import time_of
from corral.frontend.gateway.in_flight import InFlight
from corral.store.serving.decisions import RecordedDecision
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.replicas import ReplicaStatus


class ReplicaViewState(StrEnum):
    """What a replica does now. It is `ready` only if requests can reach it."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    OFFLINE = "offline"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"


class LocalAiReplicaState(StrEnum):
    STAGING = "staging"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


_LOCALAI_STATES = {
    ReplicaViewState.STARTING: LocalAiReplicaState.STAGING,
    ReplicaViewState.LOADING: LocalAiReplicaState.LOADING,
    ReplicaViewState.READY: LocalAiReplicaState.LOADED,
    ReplicaViewState.OFFLINE: LocalAiReplicaState.LOADED,
    ReplicaViewState.DRAINING: LocalAiReplicaState.UNLOADING,
    ReplicaViewState.STOPPING: LocalAiReplicaState.UNLOADING,
    ReplicaViewState.FAILED: LocalAiReplicaState.UNLOADING,
}
# A row has the desired state of a process; its availability is whether the process is there.
_AVAILABILITY_STATES = {
    Availability.SERVES: ReplicaViewState.READY,
    Availability.RETURNING: ReplicaViewState.LOADING,
    Availability.OFFLINE: ReplicaViewState.OFFLINE,
    Availability.LOST: ReplicaViewState.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaObject:
    """LocalAI's NodeModel with Corral's own fields."""

    id: str
    node_id: str
    model_name: str
    replica_index: int
    address: str
    state: LocalAiReplicaState
    in_flight: int
    last_used: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    corral_state: ReplicaViewState
    backend_type: str | None = None
    config_revision: str | None = None
    reason: str | None = None
    backend_digest: str | None = None
    protocol: str | None = None
    cleanup_error: str | None = None
    cleanup_attempts: int | None = None
    cleanup_next_retry_at: datetime | None = None
    memory_bytes: int | None = None
    capacity: int | None = None
    """Requests that may be open at it."""
    slots: int | None = None
    """Requests that its engine processes at the same time, as the engine says."""
    context: int | None = None
    """Tokens of one conversation, as its engine says."""
    ready_at: datetime | None = None
    node: str | None = None
    """The name of its node, where the answer is about a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    """LocalAI's loading object; the last three fields and `reason` are Corral's own."""

    model: str
    state: LoadState
    progress: float
    bytes_sent: int
    total_bytes: int
    file_index: int
    total_files: int
    node: str | None = None
    eta_seconds: int | None = None
    reason: str | None = None
    """What the load waits for."""
    error: str | None = None
    next_attempt_at: datetime | None = None
    cause: str | None = None
    """What the load is for; only in explanations."""
    attempts: int | None = None
    """How often it was tried before; only in explanations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSummary:
    node: str
    slot: int
    state: ReplicaViewState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredReplicas:
    min_replicas: int
    max_replicas: int
    spread_all: bool
    nodes: int | None = None
    """With `spread_all`: the number of nodes that match now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    ready: int
    replicas: list[ReplicaSummary]
    loads: list[LoadView]
    desired: DesiredReplicas | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    node_id: str
    node: str
    verdict: str
    reason: str
    score: dict[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCandidates:
    """Nodes with the same verdict that are not listed one by one."""

    verdict: str
    reason: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    id: int
    model: str
    at: datetime
    cause: str
    outcome: Mapping[str, Any]
    """`placed`, with the replicas that were `ended` for it, or `waiting` with the reason."""
    nodes: int
    """The number of nodes that were considered."""
    candidates: list[CandidateView]
    others: list[OtherCandidates]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    verdict: str
    reason: str
    score: dict[str, int] | None


def state_of(replica: ReplicaStatus) -> ReplicaViewState:
    if replica.verdict is not None:
        return _AVAILABILITY_STATES[replica.verdict.availability]
    return ReplicaViewState(replica.row.state.value)


def reason_of(replica: ReplicaStatus) -> str:
    return replica.row.reason or (replica.verdict.why if replica.verdict is not None else "")


def view_replica(found: ReplicaStatus, in_flight: InFlight, *, node: str | None = None) -> ReplicaObject:
    replica, state = found.row, state_of(found)
    return ReplicaObject(
        id=replica.id,
        node_id=replica.node_id,
        model_name=replica.model,
        replica_index=replica.slot,
        address=replica.address,
        state=_LOCALAI_STATES[state],
        in_flight=in_flight.total(ReplicaId(replica.id)),
        last_used=time_of(replica.last_used or None),
        created_at=time_of(replica.created_at or None),
        updated_at=time_of(replica.changed_at or None),
        corral_state=state,
        backend_type=replica.backend or None,
        config_revision=replica.revision or None,
        reason=reason_of(found) or None,
        backend_digest=replica.backend_digest or None,
        protocol=replica.protocol or None,
        cleanup_error=replica.stop_error or None,
        cleanup_attempts=replica.stop_attempts or None,
        cleanup_next_retry_at=time_of(replica.stop_due_at or None) if replica.stop_attempts else None,
        memory_bytes=replica.memory_bytes or None,
        capacity=open_limit(replica.capacity, found.engine),
        slots=found.engine.slots if found.engine is not None else None,
        context=found.engine.context if found.engine is not None else None,
        ready_at=time_of(replica.ready_at or None),
        node=node,
    )


def view_replicas(found: Iterable[ReplicaStatus], in_flight: InFlight) -> list[ReplicaObject]:
    return [view_replica(replica, in_flight) for replica in found]


def view_load(progress: LoadProgress, *, next_attempt_at: datetime | None = None) -> LoadView:
    return LoadView(
        model=progress.model,
        state=progress.state,
        progress=round(progress.percent, 1),
        bytes_sent=progress.bytes_sent,
        total_bytes=progress.total_bytes,
        file_index=progress.file_index,
        total_files=progress.total_files,
        node=progress.node or None,
        eta_seconds=round(progress.eta_s) if progress.eta_s is not None else None,
        reason=progress.reason or None,
        error=progress.error or None,
        next_attempt_at=next_attempt_at,
    )


def summarise(
    found: Sequence[ReplicaStatus], jobs: Sequence[LoadJob], desired: Scheduling | None, nodes: Mapping[str, Node]
) -> ModelSummary:
    """One model's replicas, loads and desired replicas."""
    states = [state_of(replica) for replica in found]
    return ModelSummary(
        ready=states.count(ReplicaViewState.READY),
        replicas=[
            ReplicaSummary(
                node=node.name if (node := nodes.get(replica.row.node_id)) else replica.row.node_id,
                slot=replica.row.slot,
                state=state,
                reason=reason_of(replica),
            )
            for replica, state in zip(found, states, strict=True)
        ],
        loads=[_view_job(job) for job in jobs],
        desired=_view_desired(desired, nodes) if desired is not None else None,
    )


def _view_desired(desired: Scheduling, nodes: Mapping[str, Node]) -> DesiredReplicas:
    return DesiredReplicas(
        min_replicas=desired.min_replicas,
        max_replicas=desired.max_replicas,
        spread_all=desired.spread_all,
        nodes=len(pick_serving(nodes.values(), desired.selector)) if desired.spread_all else None,
    )


def _view_job(job: LoadJob) -> LoadView:
    waits = not job.active or (job.state is LoadState.PENDING and bool(job.reason) and not job.owner)
    return view_load(job.progress(), next_attempt_at=time_of(job.due_at or None) if waits else None)


def view_decision(decision: RecordedDecision) -> DecisionView:
    recorded = decision.candidates
    return DecisionView(
        id=decision.id,
        model=decision.model,
        at=time_of(decision.at),
        cause=decision.cause,
        outcome=decision.outcome,
        nodes=recorded["nodes"],
        candidates=[CandidateView(**candidate) for candidate in recorded["candidates"]],
        others=[OtherCandidates(**other) for other in recorded["others"]],
    )


def verdict_on(node_id: str, decision: DecisionView) -> NodeVerdict:
    for candidate in decision.candidates:
        if candidate.node_id == node_id:
            return NodeVerdict(verdict=candidate.verdict, reason=candidate.reason, score=candidate.score)
    if decision.nodes > len(decision.candidates):
        reason = f"the decision lists only the best of {decision.nodes} nodes, and this node was not among them"
        return NodeVerdict(verdict="not recorded", reason=reason, score=None)
    return NodeVerdict(verdict="not considered", reason="the node was not in the cluster at that time", score=None)
