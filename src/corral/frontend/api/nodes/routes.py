"""`/api/nodes/*`: show and administer nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictStr

from corral.core.nodes.labels import effective_labels
from corral.core.nodes.node import Node, NodeStatus
from corral.core.nodes.presence import Presence
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.message import Message
from corral.frontend.api.nodes.view import NodeLoad, NodeView, count_loads, view_node
from corral.frontend.auth.bus_credentials import BusAuthority, enforce_quietly
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.http.json_response import MsgspecJson
from corral.store.nodes.nodes import NodeStore
from corral.store.stores import Stores

Labels = dict[str, StrictStr]
Notify = Callable[[], Awaitable[None]]
VIEWS_AT_ONCE = 100
CURRENT = "current"


class Approved(BaseModel):
    id: str
    name: str
    node_type: str
    status: NodeStatus
    message: str


ClaimId = Annotated[str, Field(min_length=4, max_length=64)]


class WhichClaim(BaseModel):
    claim: Annotated[
        ClaimId | None,
        Field(
            description="The claim (its id, or the beginning of its id) of the machine that replaces the node;"
            " `current` for the machine that has the name now."
        ),
    ] = None


class RejectedClaim(BaseModel):
    claim: ClaimId


class MaxReplicas(BaseModel):
    value: Annotated[int, Field(ge=1, le=1024)]


class MaxReplicasSet(BaseModel):
    max_replicas_per_model: int


class VramBudget(BaseModel):
    value: str


class VramBudgetSet(BaseModel):
    vram_budget: str


class Reset(BaseModel):
    reset: bool = True


def node_routes(
    stores: Stores, authority: BusAuthority, in_flight: InFlight, notify_nodes: Notify, *, silent_after_s: float
) -> APIRouter:
    router = APIRouter(prefix="/api/nodes", tags=["nodes"])
    _add_read_routes(router, stores, in_flight, silent_after_s)
    _add_membership_routes(router, stores, authority, notify_nodes)
    _add_drain_routes(router, stores.nodes, notify_nodes)
    _add_label_routes(router, stores.nodes, notify_nodes)
    _add_limit_routes(router, stores.nodes, notify_nodes)
    return router


def _add_read_routes(router: APIRouter, stores: Stores, in_flight: InFlight, silent_after_s: float) -> None:
    nodes = stores.nodes

    def view(node: Node, now_ms: int, loads: Mapping[str, NodeLoad]) -> NodeView:
        return view_node(node, now_ms=now_ms, load=loads.get(node.id), silent_after_s=silent_after_s)

    @router.get("", response_model=list[NodeView])
    async def list_nodes() -> Response:
        """Lists all nodes."""
        now_ms = await nodes.now_ms()
        loads = count_loads(await stores.replicas.read_all(), in_flight.total)
        found: list[NodeView] = []
        for position, node in enumerate(await nodes.read_all(), 1):
            found.append(view(node, now_ms, loads))
            if position % VIEWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # a large fleet must not delay other requests
        return MsgspecJson(found)

    @router.get("/{node_id}", response_model=NodeView)
    async def show_node(node_id: str) -> Response:
        """Shows a node, by its id or name."""
        node = await nodes.read_one(node_id)
        loads = count_loads(await stores.replicas.read_of_node(node.id), in_flight.total)
        return MsgspecJson(view(node, await nodes.now_ms(), loads))


def _add_membership_routes(router: APIRouter, stores: Stores, authority: BusAuthority, notify_nodes: Notify) -> None:
    nodes = stores.nodes

    @router.delete("/{node_id}")
    async def remove_node(node_id: str, actor: Actor) -> Message:
        """Removes a node and revokes its bus credentials."""
        await nodes.remove(node_id, actor=actor)
        await notify_nodes()
        await enforce_quietly(authority, stores.bus_credentials)
        return Message(message="node deregistered")

    @router.post("/{node_id}/approve")
    async def approve_node(node_id: str, actor: Actor, body: WhichClaim | None = None) -> Approved:
        """Approves a pending node; with `claim`, another machine that replaces the one that has the name."""
        claim = body.claim if body is not None else None
        if claim is None or claim == CURRENT:
            node = await nodes.approve(node_id, actor=actor, despite_claims=claim == CURRENT)
        else:
            node = await nodes.replace_identity(node_id, claim, actor=actor)
        await notify_nodes()
        if claim is not None:
            await enforce_quietly(authority, stores.bus_credentials)
        return Approved(
            id=node.id,
            name=node.name,
            node_type=node.node_type.value,
            status=node.localai_status,
            message="approved; " + _describe_next(node),
        )

    @router.post("/{node_id}/reject")
    async def reject_claim(node_id: str, body: RejectedClaim, actor: Actor) -> Message:
        """Rejects a machine that claims the name of this node. The node itself is not changed."""
        node = await nodes.reject_claim(node_id, body.claim, actor=actor)
        await notify_nodes()
        return Message(message=f"claim rejected; that machine cannot join as {node.name}")


def _describe_next(node: Node) -> str:
    match node.presence:
        case Presence.LEFT | Presence.GONE:
            return "its worker is not running; the node joins when the worker is started again"
        case Presence.JOINING | Presence.SUSPECT:
            return "it joins within a few seconds"
        case Presence.LIVE:
            return "it is ready for work"


def _add_drain_routes(router: APIRouter, nodes: NodeStore, notify_nodes: Notify) -> None:
    @router.post("/{node_id}/drain")
    async def drain_node(node_id: str, actor: Actor) -> Message:
        """Drains a node: it gets no new work, also after restarts."""
        await nodes.set_drain(node_id, True, actor=actor)
        await notify_nodes()
        return Message(message="node set to draining")

    @router.post("/{node_id}/resume")
    async def resume_node(node_id: str, actor: Actor) -> Message:
        """Resumes a drained node."""
        await nodes.set_drain(node_id, False, actor=actor)
        await notify_nodes()
        return Message(message="node resumed")


def _add_label_routes(router: APIRouter, nodes: NodeStore, notify_nodes: Notify) -> None:
    @router.get("/{node_id}/labels")
    async def show_labels(node_id: str) -> Labels:
        """Shows all labels of a node: detected ones, those of its worker, and those of administrators."""
        return effective_labels(await nodes.read_one(node_id))

    @router.put("/{node_id}/labels")
    async def replace_labels(node_id: str, labels: Labels, actor: Actor) -> Labels:
        """Replaces the labels that administrators have set."""
        node = await nodes.set_labels(node_id, labels, keep=False, actor=actor)
        await notify_nodes()
        return dict(node.operator_labels)

    @router.patch("/{node_id}/labels")
    async def merge_labels(node_id: str, labels: Labels, actor: Actor) -> Labels:
        """Adds or changes labels, and keeps the others."""
        node = await nodes.set_labels(node_id, labels, keep=True, actor=actor)
        await notify_nodes()
        return dict(node.operator_labels)

    @router.delete("/{node_id}/labels/{key:path}", status_code=204)
    async def delete_label(node_id: str, key: str, actor: Actor) -> Response:
        """Deletes a label that an administrator has set."""
        await nodes.delete_label(node_id, key, actor=actor)
        await notify_nodes()
        return Response(status_code=204)


def _add_limit_routes(router: APIRouter, nodes: NodeStore, notify_nodes: Notify) -> None:
    @router.put("/{node_id}/max-replicas-per-model")
    async def set_max_replicas(node_id: str, body: MaxReplicas, actor: Actor) -> MaxReplicasSet:
        """Sets how many replicas of one model the node may run."""
        node = await nodes.set_max_replicas(node_id, body.value, actor=actor)
        await notify_nodes()
        return MaxReplicasSet(max_replicas_per_model=node.max_replicas_per_model)

    @router.delete("/{node_id}/max-replicas-per-model")
    async def reset_max_replicas(node_id: str, actor: Actor) -> Reset:
        """Resets the limit to the one that the worker states."""
        await nodes.set_max_replicas(node_id, None, actor=actor)
        await notify_nodes()
        return Reset()

    @router.put("/{node_id}/vram-budget")
    async def set_vram_budget(node_id: str, body: VramBudget, actor: Actor) -> VramBudgetSet:
        """Sets how much memory models may use, as a size or a percentage."""
        node = await nodes.set_vram_budget(node_id, body.value, actor=actor)
        await notify_nodes()
        return VramBudgetSet(vram_budget=node.vram_budget or "")

    @router.delete("/{node_id}/vram-budget")
    async def reset_vram_budget(node_id: str, actor: Actor) -> Reset:
        """Resets the budget to the one that the worker states."""
        await nodes.set_vram_budget(node_id, None, actor=actor)
        await notify_nodes()
        return Reset()
