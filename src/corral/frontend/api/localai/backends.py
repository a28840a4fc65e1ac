"""Backends by LocalAI's own paths: apply, delete and upgrade."""

from typing import Annotated

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from corral.artifacts import Catalogue
from corral.artifacts.errors import NotInstalled
from corral.controller.backends.create_operation import Fleet
from corral.core.backends.requests import RequestedDelete, RequestedInstall, RequestedUpgrade
from corral.core.backends.variants import is_meta, needed_capability
from corral.core.nodes.targets import Target
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.deletes import DeleteResult, DependentsReader, delete_response, wait_for_end
from corral.frontend.api.backends.routes import InstallBody
from corral.frontend.api.backends.targets import IdempotencyKey, read_target
from corral.frontend.galleries import Galleries
from corral.store.backends.create_operation import Admitted
from corral.store.stores import Stores


class ApplyBody(InstallBody):
    model_config = ConfigDict(extra="ignore")  # LocalAI's clients may send more fields than it reads

    id: Annotated[str, Field(min_length=1, max_length=255)]


class LocalAiStarted(BaseModel):
    id: str
    status_url: str


def localai_backend_routes(
    stores: Stores, fleet: Fleet, dependents: DependentsReader, galleries: Galleries
) -> APIRouter:
    router = APIRouter(tags=["localai"])

    @router.post("/backends/apply", response_model=LocalAiStarted)
    async def apply(body: ApplyBody, actor: Actor, key: IdempotencyKey = None) -> Response | LocalAiStarted:
        """Installs a backend. A build for certain hardware needs target nodes."""
        target = await read_target(body, stores.nodes)
        if target.is_lasting and not target.selector:
            rejection = _reject_concrete(await galleries.backends(), body.id)
            if rejection is not None:
                return rejection
        request = RequestedInstall(reference=body.id, force=body.force, on_drift=body.on_drift, target=target)
        return _started(await fleet.install(request, actor=actor, key=key))

    @router.post("/backends/delete/{reference:path}")
    async def apply_delete(reference: str, actor: Actor, key: IdempotencyKey = None) -> LocalAiStarted:
        """Deletes a backend on every node."""
        return _started(await fleet.delete(RequestedDelete(reference=reference), actor=actor, key=key))

    @router.post("/backends/upgrade/{reference:path}")
    async def apply_upgrade(reference: str, actor: Actor, key: IdempotencyKey = None) -> LocalAiStarted:
        """Upgrades a backend on every node that has it."""
        return _started(await fleet.upgrade(RequestedUpgrade(reference=reference), actor=actor, key=key))

    @router.post(
        "/api/backends/system/delete/{reference:path}",
        response_model=DeleteResult,
        responses={202: {"model": DeleteResult}},
    )
    async def delete_everywhere(reference: str, actor: Actor, key: IdempotencyKey = None) -> Response:
        """Deletes a backend on every node and waits for the end."""
        affected = await dependents.read(reference, Target())
        admitted = await fleet.delete(RequestedDelete(reference=reference), actor=actor, key=key)
        return delete_response(await wait_for_end(stores, admitted.id), affected, success=True)

    return router


def _started(admitted: Admitted) -> LocalAiStarted:
    return LocalAiStarted(id=admitted.id, status_url=f"/backends/jobs/{admitted.id}")


def _reject_concrete(catalogue: Catalogue, reference: str) -> JSONResponse | None:
    """LocalAI rejects a hardware-specific build for a whole fleet, and names the meta backend to install instead."""
    try:
        entry = catalogue.find(reference)
    except NotInstalled:
        return None
    if is_meta(entry) or needed_capability(entry.name, entry.uri) is None:
        return None
    meta = next(
        (other.name for other in catalogue.entries if is_meta(other) and entry.name in other.capabilities.values()), ""
    )
    instead = f", or install {meta}, which gives each node the build for its hardware" if meta else ""
    message = f"{entry.name} supports only some hardware: specify the nodes to install it on{instead}"
    answer = {"error": message, "code": "concrete_backend_requires_target", "meta_alternative": meta}
    return JSONResponse(answer, status_code=409)
