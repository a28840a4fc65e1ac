"""`/api/nodes/{id}/backends` and `/api/fleet/backends`: which node has which version of what."""

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from corral.core.backends.operations import Operation
from corral.core.backends.requests import DeleteIntent, InstallIntent, UpgradeIntent
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.targets import Target
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.dependents import BackendUses
from corral.frontend.api.backends.listing import FleetListing
from corral.frontend.api.backends.routes import OperationStarted, name_of, started
from corral.frontend.api.backends.service import FleetService
from corral.frontend.api.backends.targets import IdempotencyKey
from corral.frontend.api.operations.view import current_error
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores

DELETE_WAIT_S = 20.0
LOOK_EVERY_S = 0.1


class _Gallery(msgspec.Struct):
    url: str


_decode_galleries = msgspec.json.Decoder(list[_Gallery]).decode


class NodeInstallBody(BaseModel):
    backend: str = ""
    uri: str = ""
    backend_galleries: str = ""
    name: str = ""
    alias: str = ""
    force: bool = False


class NodeBackendBody(BaseModel):
    backend: Annotated[str, Field(min_length=1, max_length=255)]


def node_backend_routes(stores: Stores, fleet: FleetService, listing: FleetListing, uses: BackendUses) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.get("/api/nodes/{node_id}/backends")
    async def list_node_backends(node_id: str) -> Response:
        """As the node last told; `[]` for one that runs no backends."""
        node = await stores.nodes.read_one(node_id)
        found = (await stores.observed.read_backends([node.id])).get(node.id, [])
        return MsgspecJson([_listed(backend) for backend in found])

    @router.post("/api/nodes/{node_id}/backends/install", status_code=202)
    async def install(
        node_id: str, wanted: NodeInstallBody, actor: Actor, key: IdempotencyKey = None
    ) -> OperationStarted:
        if not wanted.backend and not wanted.uri:
            raise InvalidInput("name a `backend` of a gallery, or give a `uri`")
        _check_galleries(wanted.backend_galleries)
        node = await stores.nodes.read_one(node_id)
        request = InstallIntent(
            reference=wanted.backend,
            uri=wanted.uri,
            name=(wanted.name or wanted.backend or name_of(wanted.uri)) if wanted.uri else "",
            alias=wanted.alias,
            galleries=wanted.backend_galleries,
            force=wanted.force,
            target=_only(node),
            scoped_to=node.id,
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/nodes/{node_id}/backends/upgrade", status_code=202)
    async def upgrade(
        node_id: str, wanted: NodeBackendBody, actor: Actor, key: IdempotencyKey = None
    ) -> OperationStarted:
        node = await stores.nodes.read_one(node_id)
        request = UpgradeIntent(reference=wanted.backend, target=_only(node), scoped_to=node.id)
        return started(await fleet.upgrade(request, actor=actor, key=key), "backend upgrade started")

    @router.post("/api/nodes/{node_id}/backends/delete")
    async def delete(node_id: str, wanted: NodeBackendBody, actor: Actor, key: IdempotencyKey = None) -> Response:
        """Waits for the end; 202 when the node is away and it has to be done later."""
        node = await stores.nodes.read_one(node_id)
        request = DeleteIntent(reference=wanted.backend, target=_only(node), scoped_to=node.id)
        ended = await uses.read(wanted.backend, request.target)
        admitted = await fleet.delete(request, actor=actor, key=key)
        return _deleted(await _wait(stores, admitted.id), {"message": "backend deleted"}, ended)

    @router.post("/api/backends/system/delete/{reference:path}")
    async def delete_everywhere(reference: str, actor: Actor, key: IdempotencyKey = None) -> Response:
        ended = await uses.read(reference, Target())
        admitted = await fleet.delete(DeleteIntent(reference=reference), actor=actor, key=key)
        return _deleted(await _wait(stores, admitted.id), {"success": True, "message": "backend deleted"}, ended)

    @router.get("/api/fleet/backends")
    async def list_fleet_backends() -> Response:
        """Every backend, and on which node it is in which version."""
        return Response(b"[%s]" % b",".join((await listing.read()).values()), media_type="application/json")

    return router


def _check_galleries(text: str) -> None:
    """Only the worker looks into them; what it could not even read is not sent to it."""
    try:
        _decode_galleries(text or "[]")
    except msgspec.DecodeError as error:
        raise InvalidInput(f"backend_galleries: not the JSON text of a list of galleries: {error}") from None


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


def _deleted(operation: Operation, done: dict[str, Any], ended: dict[str, Any]) -> Response:
    said = ended if ended["models"] else {}
    error = current_error(operation)
    if error:
        return JSONResponse({"error": error, "jobID": operation.id}, status_code=500)
    if operation.finished_at is None:
        message = "queued: a node that is away gets it when it is back"
        return JSONResponse({"message": message, "jobID": operation.id, **said}, status_code=202)
    return JSONResponse({**done, **said})
