"""What runs where, and ending it on one node."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from pydantic import BaseModel

from corral.core.nodes.node import Node
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.nodes.routes import Message
from corral.frontend.api.replicas.view import InFlight, show_replicas, summarise
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores


class OnModel(BaseModel):
    model_name: str


def replica_routes(stores: Stores, in_flight: InFlight, changed: Callable[[], Awaitable[None]]) -> APIRouter:
    """Before the routes of nodes and models, whose names would swallow these."""
    router = APIRouter(tags=["replicas"])

    @router.get("/api/nodes/models")
    async def list_loaded() -> Response:
        """What serves now, on healthy nodes."""
        routed = {replica.id for route in (await stores.replicas.read_routes()).routes for replica in route.replicas}
        found = [replica for replica in await stores.replicas.read_standing() if replica.row.id in routed]
        return MsgspecJson(show_replicas(found, in_flight))

    @router.get("/api/replicas")
    async def list_replicas() -> Response:
        return MsgspecJson(show_replicas(await stores.replicas.read_standing(), in_flight))

    @router.get("/api/replicas/summary")
    async def summarise_replicas() -> Response:
        """By model: how many replicas there are and are wanted, where they are, and what its loads wait for."""
        nodes: dict[str, Node] = {node.id: node for node in await stores.nodes.read_all()}
        found, jobs = await stores.replicas.read_standing(), await stores.load_jobs.read_all()
        wanted = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        models = {replica.row.model for replica in found} | {job.model for job in jobs} | set(wanted)
        return MsgspecJson(
            {
                model: summarise(
                    [replica for replica in found if replica.row.model == model],
                    [job for job in jobs if job.model == model],
                    wanted.get(model),
                    nodes,
                )
                for model in sorted(models)
            }
        )

    @router.get("/api/nodes/{node_id}/models")
    async def list_on_node(node_id: str) -> Response:
        node = await stores.nodes.read_one(node_id)
        found = [replica for replica in await stores.replicas.read_standing() if replica.row.node_id == node.id]
        return MsgspecJson(show_replicas(found, in_flight))

    @router.post("/api/nodes/{node_id}/models/unload")
    async def unload_on_node(node_id: str, wanted: OnModel, actor: Actor) -> Message:
        await _unload_on_node(node_id, wanted.model_name, actor)
        return Message(message="model unloaded")

    @router.post("/api/nodes/{node_id}/models/delete")
    async def delete_on_node(node_id: str, wanted: OnModel, actor: Actor) -> Message:
        """Its files too, when the process is gone."""
        node = await _unload_on_node(node_id, wanted.model_name, actor)
        await stores.staged_files.request_deletion(wanted.model_name, node)
        return Message(message="model deleted from node")

    async def _unload_on_node(named: str, model: str, actor: str) -> str:
        node_id = (await stores.nodes.read_one(named)).id
        rows = [row for row in await stores.replicas.read_of_node(node_id) if row.model == model]
        await stores.replicas.request_stop([row.id for row in rows], why=f"unloaded by {actor}")
        await stores.events.append(actor=actor, action="model.unloaded", subject=model, detail={"node": node_id})
        await changed()
        return node_id

    return router
