"""Loading and unloading by hand, how far a load is, and whether one more would fit."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from corral.core.errors import Conflict, NotFound
from corral.core.nodes.node import Node
from corral.core.nodes.targets import find_node
from corral.core.replicas.load_jobs import LoadProgress, loading_object
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.nodes.routes import Message
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores


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

    async def ask_on(self, name: str, node: Node, *, within_s: float) -> Settled: ...

    async def status(self, model: str) -> LoadProgress | None: ...


class LoadRequest(BaseModel):
    wait_s: float = Field(default=0.0, ge=0, le=600)
    """How long to wait for the model to be ready before answering."""
    node: str = Field(default="", max_length=255)
    """Id or name of the node it is wanted on, whether or not others serve it. One that cannot take it is refused with
    409 and the reason."""
    retry: bool = False
    """Try it now, also where it failed a moment ago. Without it a failed load is answered with its cause until it is
    due again."""


def load_routes(stores: Stores, desk: Desk, changed: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(tags=["replicas"])

    @router.get("/api/models/{name:path}/fit")
    async def show_fit(name: str) -> Response:
        """Whether one more replica would find a place now, and if not, why."""
        model = await stores.models.read(name)
        there = len(await stores.replicas.read_of_model(model.name))
        fit = await desk.fit(model.name, there + 1)
        return MsgspecJson({"model": model.name, "fits": not fit.reason, "reason": fit.reason})

    @router.post("/api/models/{name:path}/load", status_code=202)
    async def load_model(name: str, actor: Actor, wanted: LoadRequest | None = None) -> Response:
        model = await stores.models.read(name)
        asked = wanted or LoadRequest()
        node = find_node(await stores.nodes.read_all(), asked.node) if asked.node else None
        if asked.retry or not any(job.active for job in await stores.load_jobs.read_of_model(model.name)):
            # Who only asks again how far it is leaves no trace.
            detail = {"node": node.id} if node is not None else {}
            await stores.events.append(actor=actor, action="model.load_wanted", subject=model.name, detail=detail)
        if asked.retry:
            await stores.load_jobs.forgive(model.name, node_id=node.id if node is not None else None)
        if node is not None:
            settled = await desk.ask_on(model.name, node, within_s=asked.wait_s)
        else:
            settled = await desk.ask(model.name, within_s=asked.wait_s, cause="an administrator")
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
                f" `corral models scale {model.name} --min 0`"
            )
        await stores.load_jobs.cancel(model.name, why=f"unloaded by {actor}")
        rows = await stores.replicas.read_of_model(model.name)
        await stores.replicas.request_stop([row.id for row in rows], why=f"unloaded by {actor}")
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
