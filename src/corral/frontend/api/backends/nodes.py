"""`/api/nodes/{id}/backends`: the backends of one node."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from corral.controller.backends.create_operation import Fleet
from corral.core.backends.requests import RequestedDelete, RequestedInstall, RequestedUpgrade
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.targets import Target
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.deletes import DeleteResult, DependentsReader, delete_response, wait_for_end
from corral.frontend.api.backends.routes import OperationStarted, name_of, started
from corral.frontend.api.backends.targets import IdempotencyKey
from corral.frontend.http.json_response import SparseJson
from corral.store.stores import Stores


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBackend:
    """An item of LocalAI's backend.list, with Corral's own fields. Answers leave out fields that have their default."""

    name: str
    is_system: bool
    is_meta: bool
    installed_at: str | None = None
    gallery_url: str | None = None
    version: str | None = None
    uri: str | None = None
    digest: str | None = None
    alias: str | None = None
    generation: int | None = None
    concrete: str | None = None
    """For a meta backend: the backend that the node uses for it."""
    versions: list[str] | None = None
    """Digests of the versions on the node's disk, newest first."""
    problem: str | None = None


def node_backend_routes(stores: Stores, fleet: Fleet, dependents: DependentsReader) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.get("/api/nodes/{node_id}/backends", response_model=list[NodeBackend])
    async def list_node_backends(node_id: str) -> Response:
        """Lists a node's backends as the node last reported them; empty for a node that runs no backends."""
        node = await stores.nodes.read_one(node_id)
        found = (await stores.observed.read_backends([node.id])).get(node.id, [])
        return SparseJson([_view(backend) for backend in found])

    @router.post("/api/nodes/{node_id}/backends/install", status_code=202)
    async def install(
        node_id: str, body: NodeInstallBody, actor: Actor, key: IdempotencyKey = None
    ) -> OperationStarted:
        """Installs a backend on one node, from a gallery or a location."""
        if not body.backend and not body.uri:
            raise InvalidInput("send `backend`, the name of a backend in a gallery, or `uri`, its location")
        _check_galleries(body.backend_galleries)
        node = await stores.nodes.read_one(node_id)
        request = RequestedInstall(
            reference=body.backend,
            uri=body.uri,
            name=(body.name or body.backend or name_of(body.uri)) if body.uri else "",
            alias=body.alias,
            galleries=body.backend_galleries,
            force=body.force,
            target=_only(node),
            scoped_to=node.id,
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/nodes/{node_id}/backends/upgrade", status_code=202)
    async def upgrade(
        node_id: str, body: NodeBackendBody, actor: Actor, key: IdempotencyKey = None
    ) -> OperationStarted:
        """Upgrades a backend on one node."""
        node = await stores.nodes.read_one(node_id)
        request = RequestedUpgrade(reference=body.backend, target=_only(node), scoped_to=node.id)
        return started(await fleet.upgrade(request, actor=actor, key=key), "backend upgrade started")

    @router.post(
        "/api/nodes/{node_id}/backends/delete", response_model=DeleteResult, responses={202: {"model": DeleteResult}}
    )
    async def delete(node_id: str, body: NodeBackendBody, actor: Actor, key: IdempotencyKey = None) -> Response:
        """Deletes a backend on a node and waits for the end. Answers 202 when the node is offline: the delete is then
        carried out later."""
        node = await stores.nodes.read_one(node_id)
        request = RequestedDelete(reference=body.backend, target=_only(node), scoped_to=node.id)
        affected = await dependents.read(body.backend, request.target)
        admitted = await fleet.delete(request, actor=actor, key=key)
        return delete_response(await wait_for_end(stores, admitted.id), affected)

    return router


def _check_galleries(text: str) -> None:
    """Only the worker reads them; text that it could not decode is not sent to it."""
    try:
        _decode_galleries(text or "[]")
    except msgspec.DecodeError as error:
        raise InvalidInput(f"backend_galleries: not a JSON list of galleries: {error}") from None


def _view(backend: ObservedBackend) -> NodeBackend:
    return NodeBackend(
        name=backend.name,
        is_system=backend.is_system,
        is_meta=backend.is_meta,
        installed_at=backend.installed_at or None,
        gallery_url=backend.gallery_url or None,
        version=backend.version or None,
        uri=backend.uri or None,
        digest=backend.digest or None,
        alias=backend.alias or None,
        generation=backend.generation or None,
        concrete=backend.concrete or None,
        versions=list(backend.versions) or None,
        problem=backend.problem or None,
    )


def _only(node: Node) -> Target:
    return Target(nodes=(node.id,))
