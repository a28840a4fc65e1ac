"""`/api/why`: the recorded decision behind where a model runs, what a node got, and where a request went."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from fastapi import APIRouter, Response

from corral.bus.request_trace import TracedRequest
from corral.controller.backends.slow_builds import SlowBuilds
from corral.core.backends.slow_builds import SlowBuild
from corral.core.errors import NotFound
from corral.core.nodes.node import Node, NodeStatus
from corral.core.nodes.targets import describe_no_match, pick_serving
from corral.core.replicas.load_backoff import LoadBackoff
from corral.frontend.api.models.view import PendingView, view_pending
from corral.frontend.api.replicas.view import (
    DecisionView,
    LoadView,
    NodeVerdict,
    ReplicaObject,
    verdict_on,
    view_decision,
    view_load,
    view_replica,
    view_replicas,
)
from corral.frontend.api.times import time_of
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.http.json_response import SparseJson
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.scheduling import SchedulingRecord
from corral.store.stores import Stores

Explain = Callable[[str], Awaitable[TracedRequest | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBackoffView:
    """A node on which loads of the model failed."""

    node: str
    failures: int
    cooling_down: bool
    """Whether the node is not tried before `until`."""
    until: datetime
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelExplanation:
    model: str
    revision: str
    number: int
    """Of the revision, counted from 1 for each model."""
    replicas: list[ReplicaObject]
    loads: list[LoadView]
    footprint_bytes: Mapping[str, int]
    """The largest memory use of a replica of this revision, by kind of device."""
    backoffs: list[LoadBackoffView]
    decisions: list[DecisionView]
    """Newest first."""
    pending: PendingView | None = None
    restorable: int | None = None
    """Set while no replica with this revision has ever been ready: the number of the last one that served."""
    unsatisfiable: str | None = None
    slow_builds: list[SlowBuild]
    """Of its backend, on nodes where it has a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision(NodeVerdict):
    model: str
    at: datetime
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    node: str
    status: NodeStatus
    reason: str
    replicas: list[ReplicaObject]
    decisions: list[NodeDecision]
    """Newest first."""
    slow_builds: list[SlowBuild]
    """CPU builds that it has although it has an accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTrace:
    replica: str
    node: str
    slot: int
    open: int | None
    """Requests it had open on all frontends when it was considered; null when it was not considered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTrace:
    replica: str
    node: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedModel:
    model: str
    reason: str
    """`busy`, `away` or `failed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExplanation:
    id: str
    model: str
    path: str
    began_at: datetime
    state: str
    """`answered`, `refused`, `broken`, `left` (by the client), or `open`."""
    status: int
    key: str | None = None
    first_byte_s: float | None = None
    took_s: float | None = None
    load_waited_s: float | None = None
    """How long it waited for a load."""
    queued_s: float | None = None
    queue_position: int | None = None
    chosen: ReplicaTrace | None = None
    rule: str | None = None
    """How the replica was chosen: `only`, `two`, `session` or `prefix`."""
    against: ReplicaTrace | None = None
    """The other one of two."""
    candidates: list[ReplicaTrace] | None = None
    failed: list[FailureTrace] | None = None
    """Replicas that failed the request, before or during their answer."""
    continuations: int | None = None
    """How often another replica continued the answer of one that failed."""
    route: str | None = None
    """The public route that led to the model, if the client named one."""
    skipped: list[SkippedModel] | None = None
    """Models that the route prefers, and why the request did not go there."""
    ending: str | None = None
    """What the client of an unanswered request received."""
    decision: DecisionView | None = None
    """The placement decision of the load it waited for."""


def explain_routes(stores: Stores, in_flight: InFlight, explain: Explain, slow: SlowBuilds) -> APIRouter:
    router = APIRouter(tags=["replicas"])

    @router.get("/api/why/models/{name:path}", response_model=ModelExplanation)
    async def explain_model(name: str) -> Response:
        """Shows the placement decisions of a model, its replicas, and its loads that wait or failed."""
        return SparseJson(await _explain_model(stores, in_flight, slow, name))

    @router.get("/api/why/nodes/{node_id}", response_model=NodeExplanation)
    async def explain_node(node_id: str) -> Response:
        """Shows the replicas of a node, and the verdict on it in the latest placement decisions."""
        return SparseJson(await _explain_node(stores, in_flight, slow, node_id))

    @router.get("/api/why/requests/{request_id}", response_model=RequestExplanation)
    async def explain_request(request_id: str) -> Response:
        """Shows how a request was routed, by the `x-request-id` of its answer; any frontend knows it. If it waited for
        a load, the placement decision is included."""
        trace = await explain(request_id)
        if trace is None:
            raise NotFound(
                f"no frontend has a trace of the request {request_id[:80]!r}. Each frontend keeps the last few thousand"
                " requests since it started. The id is the header `x-request-id` of an answer."
            )
        return SparseJson(await _explain_request(stores, trace))

    return router


async def _explain_model(stores: Stores, in_flight: InFlight, slow: SlowBuilds, name: str) -> ModelExplanation:
    model = await stores.models.read(name)
    backoffs = await stores.load_backoff.read(model.name, model.revision)
    records = {record.scheduling.model: record for record in await stores.scheduling.read_all()}
    record = records.get(model.name)
    nodes = await stores.nodes.read_all()
    names: dict[str, str] = {node.id: node.name for node in nodes}
    replicas = [one for one in await stores.replicas.read_statuses() if one.row.model == model.name]
    serving = {one.row.node_id for one in replicas}
    slow_builds = await slow.read([node for node in nodes if node.id in serving])
    peaks = await stores.footprints.read_peaks(model.name, model.revision)
    return ModelExplanation(
        model=model.name,
        revision=model.revision,
        number=model.number,
        replicas=[view_replica(one, in_flight, node=names.get(one.row.node_id, one.row.node_id)) for one in replicas],
        loads=[_view_job(job) for job in await stores.load_jobs.read_of_model(model.name)],
        footprint_bytes={device: peak.memory_bytes for device, peak in peaks.items()},
        backoffs=[_view_backoff(names.get(node, node), backoff) for node, backoff in backoffs.items()],
        decisions=[view_decision(decision) for decision in await stores.decisions.read(model=model.name)],
        pending=view_pending(model),
        restorable=(await stores.models.read_restorable()).get(model.name),
        unsatisfiable=(_unsatisfiable(record, nodes) or None) if record is not None else None,
        slow_builds=[one for one in slow_builds if model.config.backend in (one.backend, one.build)],
    )


def _unsatisfiable(record: SchedulingRecord, nodes: Sequence[Node]) -> str:
    desired = record.scheduling
    if desired.spread_all and not pick_serving(nodes, desired.selector):
        return describe_no_match(desired.selector)
    return record.state.unsatisfiable_reason


def _view_job(job: LoadJob) -> LoadView:
    return replace(view_load(job.progress()), cause=job.cause, attempts=job.attempts)


def _view_backoff(node: str, backoff: LoadBackoff) -> LoadBackoffView:
    return LoadBackoffView(
        node=node,
        failures=backoff.failures,
        cooling_down=backoff.cooling_down,
        until=time_of(backoff.until_ms),
        error=backoff.error,
    )


async def _explain_node(stores: Stores, in_flight: InFlight, slow: SlowBuilds, id_or_name: str) -> NodeExplanation:
    node = await stores.nodes.read_one(id_or_name)
    found = [replica for replica in await stores.replicas.read_statuses() if replica.row.node_id == node.id]
    decisions = [view_decision(decision) for decision in await stores.decisions.read(limit=50)]
    return NodeExplanation(
        node=node.name,
        status=node.status,
        reason=node.presence_reason,
        replicas=view_replicas(found, in_flight),
        decisions=[_view_verdict(node, decision) for decision in decisions],
        slow_builds=await slow.read([node]),
    )


def _view_verdict(node: Node, decision: DecisionView) -> NodeDecision:
    found = verdict_on(node.id, decision)
    return NodeDecision(
        model=decision.model,
        at=decision.at,
        cause=decision.cause,
        verdict=found.verdict,
        reason=found.reason,
        score=found.score,
    )


async def _explain_request(stores: Stores, trace: TracedRequest) -> RequestExplanation:
    began_at = time_of(trace.began_at)
    shown = msgspec.convert({**msgspec.to_builtins(trace), "began_at": began_at}, RequestExplanation)
    if trace.load_waited_s is None:
        return shown
    ready_ms = trace.began_at + round(trace.load_waited_s * 1000)
    decisions = await stores.decisions.read(model=trace.model)
    before = next((decision for decision in decisions if decision.at <= ready_ms), None)
    return replace(shown, decision=view_decision(before)) if before is not None else shown
