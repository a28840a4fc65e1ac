"""Which replicas run where, and unloading a model on one node."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from pydantic import BaseModel

from corral.core.nodes.node import Node
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.message import Message
from corral.frontend.api.replicas.view import ModelSummary, ReplicaObject, summarise, view_replicas
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.http.json_response import SparseJson
from corral.store.stores import Stores


class ModelOnNode(BaseModel):
    model_name: str


def replica_routes(stores: Stores, in_flight: InFlight, notify_routes: Callable[[], Awaitable[None]]) -> APIRouter:
    """Goes before the routes of nodes and models, whose path parameters would match these paths."""
    router = APIRouter(tags=["replicas"])

    @router.get("/api/nodes/models", response_model=list[ReplicaObject])
    async def list_loaded() -> Response:
        """Lists the replicas that serve now, on healthy nodes."""
        routed = {replica.id for route in (await stores.replicas.read_routes()).routes for replica in route.replicas}
        found = [replica for replica in await stores.replicas.read_statuses() if replica.row.id in routed]
        return SparseJson(view_replicas(found, in_flight))

    @router.get("/api/replicas", response_model=list[ReplicaObject])
    async def list_replicas() -> Response:
        """Lists all replicas."""
        return SparseJson(view_replicas(await stores.replicas.read_statuses(), in_flight))

    @router.get("/api/replicas/summary", response_model=dict[str, ModelSummary])
    async def summarise_replicas() -> Response:
        """Shows, by model, its replicas and their nodes, the desired number, and what its loads wait for."""
        nodes: dict[str, Node] = {node.id: node for node in await stores.nodes.read_all()}
        found, jobs = await stores.replicas.read_statuses(), await stores.load_jobs.read_all()
        desired = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        models = {replica.row.model for replica in found} | {job.model for job in jobs} | set(desired)
        return SparseJson(
            {
                model: summarise(
                    [replica for replica in found if replica.row.model == model],
                    [job for job in jobs if job.model == model],
                    desired.get(model),
                    nodes,
                )
                for model in sorted(models)
            }
        )

    @router.get("/api/nodes/{node_id}/models", response_model=list[ReplicaObject])
    async def list_on_node(node_id: str) -> Response:
        """Lists the replicas of a node."""
        node = await stores.nodes.read_one(node_id)
        found = [replica for replica in await stores.replicas.read_statuses() if replica.row.node_id == node.id]
        return SparseJson(view_replicas(found, in_flight))

    @router.post("/api/nodes/{node_id}/models/unload")
    async def unload_on_node(node_id: str, body: ModelOnNode, actor: Actor) -> Message:
        """Stops the replicas of a model on a node."""
        await unload(node_id, body.model_name, actor)
        return Message(message="model unloaded")

    @router.post("/api/nodes/{node_id}/models/delete")
    async def delete_on_node(node_id: str, body: ModelOnNode, actor: Actor) -> Message:
        """Unloads a model on a node, and deletes its files there after the process has ended."""
        node = await unload(node_id, body.model_name, actor)
        await stores.staged_files.request_deletion(body.model_name, node)
        return Message(message="model deleted from node")

    async def unload(id_or_name: str, model: str, actor: str) -> str:
        node_id = (await stores.nodes.read_one(id_or_name)).id
        rows = [row for row in await stores.replicas.read_of_node(node_id) if row.model == model]
        await stores.replicas.request_stop([row.id for row in rows], why=f"unloaded by {actor}")
        await stores.events.append(actor=actor, action="model.unloaded", subject=model, detail={"node": node_id})
        await notify_routes()
        return node_id

    return router
