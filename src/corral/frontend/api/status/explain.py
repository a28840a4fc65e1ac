"""`/api/why`: the recorded decision behind where a model runs, what a node got, and where a request went."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from corral.bus.request_trace import TracedRequest
from corral.core.errors import NotFound
from corral.core.nodes.node import Node
from corral.core.nodes.targets import pick_serving, why_nowhere
from corral.core.replicas.load_backoff import LoadBackoff
from corral.core.replicas.load_jobs import loading_object
from corral.frontend.api.replicas.view import InFlight, show_decision, show_replicas, show_time, verdict_on
from corral.frontend.http.json_response import MsgspecJson
from corral.store.serving.scheduling import SchedulingRecord
from corral.store.stores import Stores

Explain = Callable[[str], Awaitable[TracedRequest | None]]


def why_routes(stores: Stores, in_flight: InFlight, explain: Explain) -> APIRouter:
    router = APIRouter(tags=["replicas"])

    @router.get("/api/why/models/{name:path}")
    async def why_model(name: str) -> Response:
        """Decisions, newest first; loads that wait or failed, and where; what runs; what is wanted."""
        return MsgspecJson(await _tell_of_model(stores, in_flight, name))

    @router.get("/api/why/nodes/{node_id}")
    async def why_node(node_id: str) -> Response:
        return MsgspecJson(await _tell_of_node(stores, in_flight, node_id))

    @router.get("/api/why/requests/{request_id}")
    async def why_request(request_id: str) -> Response:
        """By the `x-request-id` of its answer, at any frontend. What it waited for is told with the decision."""
        note = await explain(request_id)
        if note is None:
            raise NotFound(
                f"no frontend remembers a request {request_id[:80]!r}. Each keeps the latest few thousand of its own,"
                " and none from before its last start. The id is the header `x-request-id` of an answer."
            )
        return MsgspecJson(await _tell_of_request(stores, note))

    return router


async def _tell_of_model(stores: Stores, in_flight: InFlight, name: str) -> dict[str, Any]:
    model = await stores.models.read(name)
    jobs = await stores.load_jobs.read_of_model(model.name)
    setbacks = await stores.load_backoff.read(model.name, model.revision)
    decisions = await stores.decisions.read(model=model.name)
    records = {record.scheduling.model: record for record in await stores.scheduling.read_all()}
    record = records.get(model.name)
    there = await stores.nodes.read_all()
    nodes: dict[str, str] = {node.id: node.name for node in there}
    found = [replica for replica in await stores.replicas.read_standing() if replica.row.model == model.name]
    answer: dict[str, Any] = {
        "model": model.name,
        "revision": model.revision,
        "replicas": [
            {**shown, "node": nodes.get(shown["node_id"], shown["node_id"])}
            for shown in show_replicas(found, in_flight)
        ],
        "loads": [{**loading_object(job.progress()), "cause": job.cause, "attempts": job.attempts} for job in jobs],
        "footprint_bytes": await stores.footprints.read_peaks(model.name, model.revision),
        "setbacks": [_show_setback(nodes.get(node, node), setback) for node, setback in setbacks.items()],
        "decisions": [show_decision(decision) for decision in decisions],
    }
    if model.pending is not None:
        answer["pending"] = {"revision": model.pending.revision, "reason": model.pending.reason}
    if record is not None and (reason := _unsatisfiable(record, there)):
        answer["unsatisfiable"] = reason
    return answer


def _unsatisfiable(record: SchedulingRecord, nodes: Sequence[Node]) -> str:
    wanted = record.scheduling
    if wanted.spread_all and not pick_serving(nodes, wanted.selector):
        return why_nowhere(wanted.selector)
    return record.state.unsatisfiable_reason


def _show_setback(node: str, setback: LoadBackoff) -> dict[str, Any]:
    return {
        "node": node,
        "failures": setback.failures,
        "rests": setback.rests,
        "until": show_time(setback.until_ms),
        "error": setback.error,
    }


async def _tell_of_node(stores: Stores, in_flight: InFlight, named: str) -> dict[str, Any]:
    node = await stores.nodes.read_one(named)
    decisions = await stores.decisions.read(limit=50)
    found = [replica for replica in await stores.replicas.read_standing() if replica.row.node_id == node.id]
    return {
        "node": node.name,
        "status": node.status.value,
        "reason": node.presence_reason,
        "replicas": show_replicas(found, in_flight),
        "decisions": [
            {
                "model": decision.model,
                "at": show_time(decision.at),
                "cause": decision.cause,
                **verdict_on(node.id, decision.candidates),
            }
            for decision in decisions
        ],
    }


async def _tell_of_request(stores: Stores, note: TracedRequest) -> dict[str, Any]:
    answer: dict[str, Any] = {**msgspec.to_builtins(note), "began_at": show_time(note.began_at)}
    if note.load_waited_s is not None:
        ready_ms = note.began_at + round(note.load_waited_s * 1000)
        decisions = await stores.decisions.read(model=note.model)
        before = next((decision for decision in decisions if decision.at <= ready_ms), None)
        answer["decision"] = show_decision(before) if before is not None else None
    return answer
