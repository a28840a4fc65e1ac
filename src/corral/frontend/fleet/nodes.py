"""`/api/nodes/{id}/backends` and `/api/fleet/backends`: which node has which version of what."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from corral.core.drift import Drift
from corral.core.errors import InvalidInput
from corral.core.fleet_requests import DeleteWanted, InstallWanted, UpgradeWanted
from corral.core.nodes import Node, NodeId
from corral.core.observed import ObservedBackend
from corral.core.operations import Operation
from corral.core.orders import NodeState
from corral.core.targets import Target
from corral.core.upgrades import Upgrade, installed_names
from corral.frontend.admin.principal import Actor
from corral.frontend.answers import MsgspecJson
from corral.frontend.fleet.backends import Started, started
from corral.frontend.fleet.operation_view import current_error
from corral.frontend.fleet.service import FleetService, UpgradeChecks
from corral.frontend.fleet.targets import IdempotencyKey
from corral.store.stores import Stores

DELETE_WAIT_S = 20.0
LOOK_EVERY_S = 0.1


class DriftSource(Protocol):
    async def read_states(self) -> list[NodeState]: ...

    async def read(self) -> list[Drift]: ...


class NodeInstallBody(BaseModel):
    backend: str = ""
    uri: str = ""
    backend_galleries: str = ""
    name: str = ""
    alias: str = ""
    force: bool = False


class NodeBackendBody(BaseModel):
    backend: Annotated[str, Field(min_length=1, max_length=255)]


def node_backend_routes(stores: Stores, fleet: FleetService, drift: DriftSource, checks: UpgradeChecks) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.get("/api/nodes/{node_id}/backends")
    async def list_node_backends(node_id: str) -> Response:
        """As the node last told; `[]` for one that runs no backends."""
        node = await stores.nodes.read_one(node_id)
        found = (await stores.observed.read_backends([node.id])).get(node.id, [])
        return MsgspecJson([_listed(backend) for backend in found])

    @router.post("/api/nodes/{node_id}/backends/install", status_code=202)
    async def install(node_id: str, wanted: NodeInstallBody, actor: Actor, key: IdempotencyKey = None) -> Started:
        if not wanted.backend and not wanted.uri:
            raise InvalidInput("name a `backend` of a gallery, or give a `uri`")
        node = await stores.nodes.read_one(node_id)
        request = InstallWanted(
            element=wanted.backend,
            uri=wanted.uri,
            name=(wanted.name or wanted.backend) if wanted.uri else "",
            alias=wanted.alias,
            galleries=wanted.backend_galleries,
            force=wanted.force,
            target=_only(node),
            scoped_to=node.id,
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/nodes/{node_id}/backends/upgrade", status_code=202)
    async def upgrade(node_id: str, wanted: NodeBackendBody, actor: Actor, key: IdempotencyKey = None) -> Started:
        node = await stores.nodes.read_one(node_id)
        request = UpgradeWanted(element=wanted.backend, target=_only(node), scoped_to=node.id)
        return started(await fleet.upgrade(request, actor=actor, key=key), "backend upgrade started")

    @router.post("/api/nodes/{node_id}/backends/delete")
    async def delete(node_id: str, wanted: NodeBackendBody, actor: Actor, key: IdempotencyKey = None) -> Response:
        """Waits for the end; 202 when the node is away and it has to be done later."""
        node = await stores.nodes.read_one(node_id)
        request = DeleteWanted(element=wanted.backend, target=_only(node), scoped_to=node.id)
        admitted = await fleet.delete(request, actor=actor, key=key)
        return _deleted(await _wait(stores, admitted.id), {"message": "backend deleted"})

    @router.post("/api/backends/system/delete/{element:path}")
    async def delete_everywhere(element: str, actor: Actor, key: IdempotencyKey = None) -> Response:
        admitted = await fleet.delete(DeleteWanted(element=element), actor=actor, key=key)
        return _deleted(await _wait(stores, admitted.id), {"success": True, "message": "backend deleted"})

    @router.get("/api/fleet/backends")
    async def list_fleet_backends() -> Response:
        """Every backend, and on which node it is in which version."""
        return MsgspecJson(view_fleet(await drift.read_states(), await drift.read(), await checks.read()))

    return router


def view_fleet(states: list[NodeState], drifts: list[Drift], upgrades: Mapping[str, Upgrade]) -> list[dict[str, Any]]:
    by_place: dict[tuple[str, NodeId], list[Drift]] = {}
    for one in drifts:
        by_place.setdefault((one.backend, one.node_id), []).append(one)
    lagging = {(name, node.node_id) for name, upgrade in upgrades.items() for node in upgrade.nodes}
    places = installed_names(states)
    by_id = {state.node.id: state for state in states}
    for backend, node_id in by_place:
        holders = places.setdefault(backend, [])
        if node_id in by_id and all(state.node.id != node_id for state in holders):
            holders.append(by_id[node_id])
    return [
        {
            "name": name,
            "nodes": [
                _place(state, name, by_place.get((name, state.node.id), []), (name, state.node.id) in lagging)
                for state in sorted(holders, key=lambda state: state.node.name)
            ],
        }
        for name, holders in sorted(places.items())
    ]


def _place(state: NodeState, name: str, drifts: list[Drift], lagging: bool) -> dict[str, Any]:
    found = state.find(name)
    return {
        "node_id": state.node.id,
        "node_name": state.node.name,
        "node_status": state.node.status.value,
        "version": found.version if found is not None else "",
        "digest": found.digest if found is not None else "",
        "variant": found.name if found is not None else "",
        "current": found is not None and not lagging and not drifts,
        "drift": [{"cause": one.cause.value, "detail": one.detail, "process_key": one.process_key} for one in drifts],
        "versions": list(found.versions) if found is not None else [],
    }


def _listed(backend: ObservedBackend) -> dict[str, Any]:
    """The element of LocalAI's backend.list."""
    row = {
        "name": backend.name,
        "is_system": backend.is_system,
        "is_meta": backend.is_meta,
        "installed_at": backend.installed_at,
        "gallery_url": backend.gallery_url,
        "version": backend.version,
        "uri": backend.uri,
        "digest": backend.digest,
        "alias": backend.alias,
        "generation": backend.generation,
        "concrete": backend.concrete,
        "versions": list(backend.versions),
        "problem": backend.problem,
    }
    return {key: value for key, value in row.items() if key in ("name", "is_system", "is_meta") or value}


def _only(node: Node) -> Target:
    return Target(nodes=(node.id,))


async def _wait(stores: Stores, operation_id: str) -> Operation:
    """Until it has ended, or nothing more happens soon."""
    operation = await stores.operations.read_one(operation_id)
    try:
        async with asyncio.timeout(DELETE_WAIT_S):
            while operation.finished_at is None and not current_error(operation) and await _may_end(stores, operation):
                await asyncio.sleep(LOOK_EVERY_S)
                operation = await stores.operations.read_one(operation_id)
    except TimeoutError:
        pass
    return operation


async def _may_end(stores: Stores, operation: Operation) -> bool:
    """Some node that could do it now has not."""
    open_ids = {node.node_id for node in operation.nodes if not node.status.settled}
    return any(node.id in open_ids and node.status.value == "healthy" for node in await stores.nodes.read_all())


def _deleted(operation: Operation, done: dict[str, Any]) -> Response:
    error = current_error(operation)
    if error:
        return JSONResponse({"error": error, "jobID": operation.id}, status_code=500)
    if operation.finished_at is None:
        message = "queued: a node that is away gets it when it is back"
        return JSONResponse({"message": message, "jobID": operation.id}, status_code=202)
    return JSONResponse(done)
