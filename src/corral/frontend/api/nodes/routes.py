"""`/api/nodes/*`: see and steer the machines."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictStr

from corral.core.nodes.node import Node
from corral.core.nodes.presence import Presence
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.nodes.view import NodeLoad, NodeView, count_loads, view_node
from corral.frontend.auth.bus_credentials import BusAuthority, enforce_quietly
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores

Labels = dict[str, StrictStr]
VIEWS_AT_ONCE = 100
CURRENT = "current"


class Message(BaseModel):
    message: str


class Approved(BaseModel):
    id: str
    name: str
    node_type: str
    status: str
    message: str


ClaimId = Annotated[str, Field(min_length=4, max_length=64)]


class WhichClaim(BaseModel):
    claim: Annotated[
        ClaimId | None,
        Field(
            description="The claim (its id, or how it begins) of the machine that replaces the node; `current` is the"
            " machine that has the name."
        ),
    ] = None


class RejectedClaim(BaseModel):
    claim: ClaimId


class MaxReplicas(BaseModel):
    value: Annotated[int, Field(ge=1, le=1024)]


class VramBudget(BaseModel):
    value: str


class Reset(BaseModel):
    reset: bool = True


class InFlight(Protocol):
    def total(self, replica: Any) -> int: ...


def node_routes(
    stores: Stores,
    authority: BusAuthority,
    in_flight: InFlight,
    hint: Callable[[], Awaitable[None]],
    *,
    silent_after_s: float,
) -> APIRouter:
    router = APIRouter(prefix="/api/nodes", tags=["nodes"])
    nodes = stores.nodes

    def view(node: Node, now_ms: int, loads: Mapping[str, NodeLoad]) -> NodeView:
        return view_node(node, now_ms=now_ms, load=loads.get(node.id), silent_after_s=silent_after_s)

    @router.get("", response_model=list[NodeView])
    async def list_nodes() -> Response:
        now_ms = await nodes.now_ms()
        loads = count_loads(await stores.replicas.read_all(), in_flight.total)
        found: list[NodeView] = []
        for position, node in enumerate(await nodes.read_all(), 1):
            found.append(view(node, now_ms, loads))
            if position % VIEWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # a large herd must not delay other requests
        return MsgspecJson(found)

    @router.get("/{node_id}", response_model=NodeView)
    async def show_node(node_id: str) -> Response:
        node = await nodes.read_one(node_id)
        loads = count_loads(await stores.replicas.read_of_node(node.id), in_flight.total)
        return MsgspecJson(view(node, await nodes.now_ms(), loads))

    @router.delete("/{node_id}")
    async def remove_node(node_id: str, actor: Actor) -> Message:
        await nodes.remove(node_id, actor=actor)
        await hint()
        await enforce_quietly(authority, stores.bus_credentials)
        return Message(message="node deregistered")

    @router.post("/{node_id}/approve")
    async def approve_node(node_id: str, actor: Actor, which: WhichClaim | None = None) -> Approved:
        """A pending machine; or, with `claim`, another machine that replaces the one that has the name."""
        claim = which.claim if which is not None else None
        if claim is None or claim == CURRENT:
            node = await nodes.approve(node_id, actor=actor, despite_claims=claim == CURRENT)
        else:
            node = await nodes.replace_identity(node_id, claim, actor=actor)
        await hint()
        if claim is not None:
            await enforce_quietly(authority, stores.bus_credentials)
        return Approved(
            id=node.id,
            name=node.name,
            node_type=node.node_type.value,
            status=node.localai_status.value,
            message="approved; " + _what_follows(node),
        )

    @router.post("/{node_id}/reject")
    async def reject_claim(node_id: str, which: RejectedClaim, actor: Actor) -> Message:
        """A machine that claims to be this node and is not: it is told so; the node goes on as it is."""
        node = await nodes.reject_claim(node_id, which.claim, actor=actor)
        await hint()
        return Message(message=f"that machine will not be {node.name}")

    @router.post("/{node_id}/drain")
    async def drain_node(node_id: str, actor: Actor) -> Message:
        await nodes.set_drain(node_id, True, actor=actor)
        await hint()
        return Message(message="node set to draining")

    @router.post("/{node_id}/resume")
    async def resume_node(node_id: str, actor: Actor) -> Message:
        await nodes.set_drain(node_id, False, actor=actor)
        await hint()
        return Message(message="node resumed")

    _add_label_routes(router, stores, hint)
    _add_limit_routes(router, stores, hint)
    return router


def _operator_labels(node: Node) -> dict[str, str]:
    return dict(node.operator_labels)


def _add_label_routes(router: APIRouter, stores: Stores, hint: Callable[[], Awaitable[None]]) -> None:
    nodes = stores.nodes

    @router.get("/{node_id}/labels")
    async def show_labels(node_id: str) -> Labels:
        return view_node(await nodes.read_one(node_id), now_ms=0).labels

    @router.put("/{node_id}/labels")
    async def replace_labels(node_id: str, labels: Labels, actor: Actor) -> Labels:
        node = await nodes.set_labels(node_id, labels, keep=False, actor=actor)
        await hint()
        return _operator_labels(node)

    @router.patch("/{node_id}/labels")
    async def merge_labels(node_id: str, labels: Labels, actor: Actor) -> Labels:
        node = await nodes.set_labels(node_id, labels, keep=True, actor=actor)
        await hint()
        return _operator_labels(node)

    @router.delete("/{node_id}/labels/{key:path}", status_code=204)
    async def delete_label(node_id: str, key: str, actor: Actor) -> Response:
        await nodes.delete_label(node_id, key, actor=actor)
        await hint()
        return Response(status_code=204)


def _what_follows(node: Node) -> str:
    match node.presence:
        case Presence.LEFT | Presence.GONE:
            return "its worker is not running, so it joins when that is started again"
        case Presence.JOINING | Presence.SUSPECT:
            return "it joins within a few seconds"
        case Presence.LIVE:
            return "it is ready for work"


def _add_limit_routes(router: APIRouter, stores: Stores, hint: Callable[[], Awaitable[None]]) -> None:
    nodes = stores.nodes

    @router.put("/{node_id}/max-replicas-per-model")
    async def set_max_replicas(node_id: str, wanted: MaxReplicas, actor: Actor) -> dict[str, int]:
        node = await nodes.set_max_replicas(node_id, wanted.value, actor=actor)
        await hint()
        return {"max_replicas_per_model": node.max_replicas_per_model}

    @router.delete("/{node_id}/max-replicas-per-model")
    async def reset_max_replicas(node_id: str, actor: Actor) -> Reset:
        await nodes.set_max_replicas(node_id, None, actor=actor)
        await hint()
        return Reset()

    @router.put("/{node_id}/vram-budget")
    async def set_vram_budget(node_id: str, wanted: VramBudget, actor: Actor) -> dict[str, str]:
        node = await nodes.set_vram_budget(node_id, wanted.value, actor=actor)
        await hint()
        return {"vram_budget": node.vram_budget or ""}

    @router.delete("/{node_id}/vram-budget")
    async def reset_vram_budget(node_id: str, actor: Actor) -> Reset:
        await nodes.set_vram_budget(node_id, None, actor=actor)
        await hint()
        return Reset()
