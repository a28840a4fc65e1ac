"""Install, upgrade and roll back, on every node or some: Corral's paths, and LocalAI's for the same."""

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from corral.artifacts import Catalogue
from corral.artifacts.errors import NotInstalled
from corral.core.backends.policies import OnDrift
from corral.core.backends.requests import DeleteIntent, InstallIntent, RollbackIntent, UpgradeIntent
from corral.core.backends.variants import is_meta, needed_capability
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.service import FleetService
from corral.frontend.api.backends.targets import IdempotencyKey, Targeted, read_target
from corral.frontend.api.galleries.service import Galleries
from corral.store.backends.create_operation import Admitted
from corral.store.nodes.nodes import NodeStore

Name = Annotated[str, Field(min_length=1, max_length=255)]


class InstallBody(Targeted):
    force: bool = False
    on_drift: OnDrift | None = None


class ExternalBody(InstallBody):
    uri: Annotated[str, Field(min_length=1, max_length=2000)]
    name: str = ""
    alias: str = ""


class UpgradeBody(Targeted):
    skip_rolled_back: bool = False
    """Leave nodes alone that were rolled back from the very version they would get."""


class RollbackBody(Targeted):
    to: str | None = None
    """A digest; without it the version before the current one."""


class ApplyBody(InstallBody):
    model_config = ConfigDict(extra="ignore")  # LocalAI's clients may send more than it reads

    id: Name


class OperationStarted(BaseModel):
    jobID: str
    message: str
    uuid: str
    statusUrl: str


class LocalAiStarted(BaseModel):
    id: str
    status_url: str


def started(admitted: Admitted, message: str) -> OperationStarted:
    return OperationStarted(
        jobID=admitted.id, uuid=admitted.id, statusUrl=f"/api/backends/job/{admitted.id}", message=message
    )


def _localai(admitted: Admitted) -> LocalAiStarted:
    return LocalAiStarted(id=admitted.id, status_url=f"/backends/jobs/{admitted.id}")


def backend_routes(fleet: FleetService, nodes: NodeStore, galleries: Galleries) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.post("/api/backends/install-external")
    async def install_external(wanted: ExternalBody, actor: Actor, key: IdempotencyKey = None) -> OperationStarted:
        """From a location outside the galleries."""
        request = InstallIntent(
            uri=wanted.uri,
            name=wanted.name or name_of(wanted.uri),
            alias=wanted.alias,
            force=wanted.force,
            on_drift=wanted.on_drift,
            target=await read_target(wanted, nodes),
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/backends/install/{reference:path}")
    async def install(
        reference: str, actor: Actor, wanted: InstallBody | None = None, key: IdempotencyKey = None
    ) -> OperationStarted:
        """By name, `name` or `gallery@name`: on every node that a build fits, now and for machines that come later."""
        request = InstallIntent(
            reference=reference,
            force=wanted.force if wanted is not None else False,
            on_drift=wanted.on_drift if wanted is not None else None,
            target=await read_target(wanted, nodes),
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/backends/upgrade/{reference:path}")
    async def upgrade(
        reference: str, actor: Actor, wanted: UpgradeBody | None = None, key: IdempotencyKey = None
    ) -> OperationStarted:
        """To what the galleries offer now, on the nodes that have it."""
        request = UpgradeIntent(
            reference=reference,
            target=await read_target(wanted, nodes),
            skip_rolled_back=wanted.skip_rolled_back if wanted is not None else False,
        )
        return started(await fleet.upgrade(request, actor=actor, key=key), "backend upgrade started")

    @router.post("/api/backends/{reference}/rollback", status_code=202)
    async def rollback(
        reference: str, actor: Actor, wanted: RollbackBody | None = None, key: IdempotencyKey = None
    ) -> OperationStarted:
        """To the version before, which is still on the nodes' disks: nothing is fetched."""
        request = RollbackIntent(
            reference=reference, to=wanted.to if wanted is not None else None, target=await read_target(wanted, nodes)
        )
        return started(await fleet.rollback(request, actor=actor, key=key), "backend rollback started")

    _add_localai_routes(router, fleet, nodes, galleries)
    return router


def _add_localai_routes(router: APIRouter, fleet: FleetService, nodes: NodeStore, galleries: Galleries) -> None:
    @router.post("/backends/apply", response_model=LocalAiStarted)
    async def apply(wanted: ApplyBody, actor: Actor, key: IdempotencyKey = None) -> Any:
        target = await read_target(wanted, nodes)
        if target.is_lasting and not target.selector:
            refusal = _for_some_only(await galleries.backends(), wanted.id)
            if refusal is not None:
                return refusal
        request = InstallIntent(reference=wanted.id, force=wanted.force, on_drift=wanted.on_drift, target=target)
        return _localai(await fleet.install(request, actor=actor, key=key))

    @router.post("/backends/delete/{reference:path}")
    async def apply_delete(reference: str, actor: Actor, key: IdempotencyKey = None) -> LocalAiStarted:
        return _localai(await fleet.delete(DeleteIntent(reference=reference), actor=actor, key=key))

    @router.post("/backends/upgrade/{reference:path}")
    async def apply_upgrade(reference: str, actor: Actor, key: IdempotencyKey = None) -> LocalAiStarted:
        return _localai(await fleet.upgrade(UpgradeIntent(reference=reference), actor=actor, key=key))


def _for_some_only(catalogue: Catalogue, reference: str) -> JSONResponse | None:
    """LocalAI refuses a hardware-specific build for a whole fleet, and names the family to ask for instead."""
    try:
        entry = catalogue.find(reference)
    except NotInstalled:
        return None
    if is_meta(entry) or needed_capability(entry.name, entry.uri) is None:
        return None
    family = next(
        (other.name for other in catalogue.entries if is_meta(other) and entry.name in other.capabilities.values()), ""
    )
    instead = f"; install {family} instead, of which each node gets the build that fits it" if family else ""
    message = f"{entry.name} fits only some machines: name the nodes it is for{instead}"
    answer = {"error": message, "code": "concrete_backend_requires_target", "meta_alternative": family}
    return JSONResponse(answer, status_code=409)


def name_of(uri: str) -> str:
    """`registry/owner/name:tag` is called `name` unless somebody says otherwise."""
    last = uri.rstrip("/").rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0]
