"""Replicas and loads: what runs where, loading and unloading."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from corral.core.errors import Conflict, NotFound
from corral.core.load_jobs import LoadProgress, loading_object
from corral.core.replicas import Replica, ReplicaState
from corral.core.scaling import Scheduling
from corral.frontend.admin.nodes import Message
from corral.frontend.admin.principal import Actor
from corral.frontend.answers import MsgspecJson
from corral.store.load_jobs import LoadJob
from corral.store.stores import Stores

# LocalAI's words for what a replica is doing.
_STATES = {
    ReplicaState.STARTING: "staging",
    ReplicaState.LOADING: "loading",
    ReplicaState.READY: "loaded",
    ReplicaState.DRAINING: "unloading",
    ReplicaState.STOPPING: "unloading",
    ReplicaState.FAILED: "unloading",
}


class Settled(Protocol):
    @property
    def cause(self) -> str | None: ...

    @property
    def progress(self) -> LoadProgress | None: ...


class Fit(Protocol):
    @property
    def replicas(self) -> int: ...

    @property
    def reason(self) -> str: ...


class Desk(Protocol):
    async def fit(self, name: str, wanted: int) -> Fit: ...

    async def ask(self, model: str, *, within_s: float, cause: str = ...) -> Settled: ...

    async def status(self, model: str) -> LoadProgress | None: ...


class InFlight(Protocol):
    def total(self, replica: Any) -> int: ...


class LoadRequest(BaseModel):
    wait_s: float = Field(default=0.0, ge=0, le=600)
    """How long to wait for the model to be ready before answering."""


class OnModel(BaseModel):
    model_name: str


def show_time(ms: int | None) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z") if ms else None


def node_model(replica: Replica, in_flight: int) -> dict[str, Any]:
    """LocalAI's NodeModel, with Corral's own fields beside it."""
    found: dict[str, Any] = {
        "id": replica.id,
        "node_id": replica.node_id,
        "model_name": replica.model,
        "replica_index": replica.slot,
        "address": replica.address,
        "state": _STATES[replica.state],
        "in_flight": in_flight,
        "last_used": show_time(replica.last_used),
        "created_at": show_time(replica.created_at),
        "updated_at": show_time(replica.changed_at),
        "corral_state": replica.state.value,
    }
    optional = {
        "backend_type": replica.backend,
        "config_revision": replica.revision,
        "reason": replica.reason,
        "backend_digest": replica.backend_digest,
        "protocol": replica.protocol,
        "cleanup_error": replica.stop_error,
        "cleanup_attempts": replica.stop_attempts,
        "cleanup_next_retry_at": show_time(replica.stop_due_at) if replica.stop_attempts else None,
        "memory_bytes": replica.memory_bytes,
        "capacity": replica.capacity,
        "ready_at": show_time(replica.ready_at),
    }
    return found | {name: value for name, value in optional.items() if value}


def _summary(
    rows: Sequence[Replica], jobs: Sequence[LoadJob], wanted: Scheduling | None, names: Mapping[str, str]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ready": sum(row.state is ReplicaState.READY for row in rows),
        "replicas": [
            {"node": names.get(row.node_id, row.node_id), "slot": row.slot, "state": row.state.value} for row in rows
        ],
        "loads": [loading_object(job.progress()) for job in jobs],
    }
    if wanted is not None:
        limits = {"min_replicas": wanted.min_replicas, "max_replicas": wanted.max_replicas}
        found["wanted"] = limits | {"spread_all": wanted.spread_all}
    return found


def replica_routes(
    stores: Stores, desk: Desk, in_flight: InFlight, changed: Callable[[], Awaitable[None]]
) -> APIRouter:
    """Before the routes of nodes and models, whose names would swallow these."""
    router = APIRouter(tags=["replicas"])

    def show(replicas: list[Replica]) -> Response:
        return MsgspecJson([node_model(replica, in_flight.total(replica.id)) for replica in replicas])

    @router.get("/api/nodes/models")
    async def list_loaded() -> Response:
        """What serves now, on healthy nodes."""
        routed = {replica.id for route in (await stores.replicas.read_routes()).routes for replica in route.replicas}
        return show([replica for replica in await stores.replicas.read_all() if replica.id in routed])

    @router.get("/api/replicas")
    async def list_replicas() -> Response:
        return show(await stores.replicas.read_all())

    @router.get("/api/replicas/summary")
    async def summarise_replicas() -> Response:
        """By model: how many replicas there are and are wanted, where they are, and what its loads wait for."""
        names: dict[str, str] = {node.id: node.name for node in await stores.nodes.read_all()}
        rows, jobs = await stores.replicas.read_all(), await stores.load_jobs.read_all()
        wanted = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        models = {row.model for row in rows} | {job.model for job in jobs} | set(wanted)
        return MsgspecJson(
            {
                model: _summary(
                    [row for row in rows if row.model == model],
                    [job for job in jobs if job.model == model],
                    wanted.get(model),
                    names,
                )
                for model in sorted(models)
            }
        )

    @router.get("/api/models/{name:path}/fit")
    async def show_fit(name: str) -> Response:
        """Whether one more replica would find a place now, and if not, why."""
        model = await stores.models.read(name)
        there = len(await stores.replicas.read_of_model(model.name))
        fit = await desk.fit(model.name, there + 1)
        return MsgspecJson({"model": model.name, "fits": not fit.reason, "reason": fit.reason})

    @router.get("/api/nodes/{node_id}/models")
    async def list_on_node(node_id: str) -> Response:
        await stores.nodes.read_one(node_id)
        return show(await stores.replicas.read_of_node(node_id))

    @router.post("/api/nodes/{node_id}/models/unload")
    async def unload_on_node(node_id: str, wanted: OnModel, actor: Actor) -> Message:
        await _unload_on_node(node_id, wanted.model_name, actor)
        return Message(message="model unloaded")

    @router.post("/api/nodes/{node_id}/models/delete")
    async def delete_on_node(node_id: str, wanted: OnModel, actor: Actor) -> Message:
        """Its files too, when the process is gone."""
        await _unload_on_node(node_id, wanted.model_name, actor)
        await stores.load_memory.want_deleted(wanted.model_name, node_id)
        return Message(message="model deleted from node")

    async def _unload_on_node(node_id: str, model: str, actor: str) -> None:
        await stores.nodes.read_one(node_id)
        rows = [row for row in await stores.replicas.read_of_node(node_id) if row.model == model]
        await stores.replicas.want_stopped([row.id for row in rows], why=f"unloaded by {actor}")
        await stores.events.append(actor=actor, action="model.unloaded", subject=model, detail={"node": node_id})
        await changed()

    @router.post("/api/models/{name:path}/load", status_code=202)
    async def load_model(name: str, wanted: LoadRequest | None = None) -> Response:
        model = await stores.models.read(name)
        settled = await desk.ask(model.name, within_s=(wanted or LoadRequest()).wait_s, cause="an administrator")
        if settled.progress is not None:
            return MsgspecJson({"message": "loading", "loading": loading_object(settled.progress)}, status_code=202)
        if settled.cause is not None:
            raise Conflict(f"{model.name} could not be loaded: {settled.cause}")
        return MsgspecJson({"message": "loaded"}, status_code=200)

    @router.post("/api/models/{name:path}/unload")
    async def unload_model(name: str, actor: Actor) -> Message:
        model = await stores.models.read(name)
        wanted = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        kept = wanted.get(model.name)
        if kept is not None and (kept.min_replicas or kept.spread_all):
            raise Conflict(
                f"{model.name} is scheduled to run, so it would be loaded again at once; change its scheduling first:"
                f" corral models scale {model.name} --min 0"
            )
        await stores.load_jobs.cancel(model.name, why=f"unloaded by {actor}")
        rows = await stores.replicas.read_of_model(model.name)
        await stores.replicas.want_stopped([row.id for row in rows], why=f"unloaded by {actor}")
        await stores.events.append(actor=actor, action="model.unloaded", subject=model.name, detail={})
        await changed()
        return Message(message="model unloaded")

    @router.get("/api/models/{name:path}/load-status")
    async def show_load_status(name: str) -> Response:
        progress = await desk.status(name)
        if progress is None:
            raise NotFound(f"no load of {name!r} is under way")
        return MsgspecJson(loading_object(progress))

    return router
