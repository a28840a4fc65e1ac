"""Loading and unloading a model by hand, the progress of its load, and whether one more replica fits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from corral.controller.loads.coordinator import LoadCoordinator
from corral.core.errors import Conflict, NotFound
from corral.core.nodes.targets import find_node
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.message import Message
from corral.frontend.api.replicas.view import LoadView, view_load
from corral.frontend.http.json_response import SparseJson
from corral.store.stores import Stores


class LoadRequest(BaseModel):
    wait_s: float = Field(default=0.0, ge=0, le=600)
    """How long to wait for the model to be ready before answering."""
    node: str = Field(default="", max_length=255)
    """Id or name of the node to load it on, whether or not other nodes serve it. A node that cannot run it is rejected
    with 409 and the reason."""
    retry: bool = False
    """Try now, also where a load failed a moment ago. Without it a failed load is answered with its cause until its
    next attempt is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAnswer:
    message: str
    """`loading` or `loaded`."""
    loading: LoadView | None = None


class FitView(BaseModel):
    model: str
    fits: bool
    reason: str
    """Why one more replica does not fit; empty when it does."""


def load_routes(stores: Stores, loads: LoadCoordinator, notify_routes: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(tags=["replicas"])

    @router.get("/api/models/{name:path}/fit")
    async def show_fit(name: str) -> FitView:
        """Shows whether one more replica fits on some node now, and if not, why."""
        model = await stores.models.read(name)
        replicas = len(await stores.replicas.read_of_model(model.name))
        fit = await loads.fit(model.name, replicas + 1)
        return FitView(model=model.name, fits=not fit.reason, reason=fit.reason)

    @router.post(
        "/api/models/{name:path}/load",
        status_code=202,
        response_model=LoadAnswer,
        responses={200: {"model": LoadAnswer}},
    )
    async def load_model(name: str, actor: Actor, body: LoadRequest | None = None) -> Response:
        """Loads a model. Answers 200 when it is loaded, 202 while the load runs."""
        model = await stores.models.read(name)
        request = body or LoadRequest()
        node = find_node(await stores.nodes.read_all(), request.node) if request.node else None
        if request.retry or not any(job.active for job in await stores.load_jobs.read_of_model(model.name)):
            # A client that only polls a running load leaves no audit entry.
            detail = {"node": node.id} if node is not None else {}
            await stores.events.append(actor=actor, action="model.load_requested", subject=model.name, detail=detail)
        if request.retry:
            await stores.load_jobs.retry_now(model.name, node_id=node.id if node is not None else None)
        if node is not None:
            settled = await loads.load_on(model.name, node, within_s=request.wait_s)
        else:
            settled = await loads.load(model.name, within_s=request.wait_s, cause="an administrator")
        if settled.progress is not None:
            return SparseJson(LoadAnswer(message="loading", loading=view_load(settled.progress)), status_code=202)
        if settled.cause is not None:
            raise Conflict(f"{model.name} could not be loaded: {settled.cause}")
        return SparseJson(LoadAnswer(message="loaded"), status_code=200)

    @router.post("/api/models/{name:path}/unload")
    async def unload_model(name: str, actor: Actor) -> Message:
        """Stops all replicas of a model and cancels its loads. Rejected while its scheduling keeps it running."""
        model = await stores.models.read(name)
        scheduling = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        desired = scheduling.get(model.name)
        if desired is not None and (desired.min_replicas or desired.spread_all):
            raise Conflict(
                f"{model.name} has desired replicas, so it would be loaded again immediately. Change its scheduling"
                f" first: `corral models scale {model.name} --min 0`"
            )
        await stores.load_jobs.cancel(model.name, why=f"unloaded by {actor}")
        rows = await stores.replicas.read_of_model(model.name)
        await stores.replicas.request_stop([row.id for row in rows], why=f"unloaded by {actor}")
        await stores.events.append(actor=actor, action="model.unloaded", subject=model.name, detail={})
        await notify_routes()
        return Message(message="model unloaded")

    @router.get("/api/models/{name:path}/load-status", response_model=LoadView)
    async def show_load_status(name: str) -> Response:
        """Shows the progress of a model's load."""
        progress = await loads.status(name)
        if progress is None:
            raise NotFound(f"no load of {name!r} is in progress")
        return SparseJson(view_load(progress))

    return router
