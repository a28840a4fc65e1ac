"""Install, upgrade, roll back and delete, on every node or some: LocalAI's paths, and Corral's beside them."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from corral.artifacts import Catalogue
from corral.artifacts.errors import NotInstalled
from corral.core.fleet_requests import DeleteWanted, InstallWanted, RollbackWanted, UpgradeWanted
from corral.core.policies import OnDrift
from corral.core.variants import is_meta, needed_capability
from corral.frontend.admin.principal import Actor
from corral.frontend.answers import MsgspecJson
from corral.frontend.fleet.service import FleetService, UpgradeChecks
from corral.frontend.fleet.targets import IdempotencyKey, Targeted, read_target
from corral.frontend.fleet.uses import BackendUses
from corral.frontend.gallery.service import Galleries
from corral.store.admission import Admitted
from corral.store.nodes import NodeStore

Name = Annotated[str, Field(min_length=1, max_length=255)]


class InstallBody(Targeted):
    force: bool = False
    on_drift: OnDrift | None = None


class ExternalBody(InstallBody):
    uri: Annotated[str, Field(min_length=1, max_length=2000)]
    name: str = ""
    alias: str = ""


class UpgradeBody(Targeted):
    spare_rolled_back: bool = False
    """Leave nodes alone that were rolled back from the very version they would get."""


class RollbackBody(Targeted):
    to: str | None = None
    """A digest; without it the version before the current one."""


class ApplyBody(InstallBody):
    id: Name


class Started(BaseModel):
    jobID: str
    message: str
    uuid: str
    statusUrl: str


class ModelUse(BaseModel):
    model: str
    replicas: int
    """That stop."""


class Uses(BaseModel):
    models: list[ModelUse]
    consequence: str
    """The same in words; empty when no model uses it."""


class Deleting(Started, Uses):
    pass


class LocalAiStarted(BaseModel):
    id: str
    status_url: str


def started(admitted: Admitted, message: str) -> Started:
    return Started(jobID=admitted.id, uuid=admitted.id, statusUrl=f"/api/backends/job/{admitted.id}", message=message)


def _localai(admitted: Admitted) -> LocalAiStarted:
    return LocalAiStarted(id=admitted.id, status_url=f"/backends/jobs/{admitted.id}")


def backend_routes(
    fleet: FleetService, nodes: NodeStore, galleries: Galleries, checks: UpgradeChecks, uses: BackendUses
) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.post("/api/backends/install-external")
    async def install_external(wanted: ExternalBody, actor: Actor, key: IdempotencyKey = None) -> Started:
        """From a location outside the galleries."""
        request = InstallWanted(
            uri=wanted.uri,
            name=wanted.name or _name_of(wanted.uri),
            alias=wanted.alias,
            force=wanted.force,
            on_drift=wanted.on_drift,
            target=await read_target(wanted, nodes),
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/backends/install/{element:path}")
    async def install(
        element: str, actor: Actor, wanted: InstallBody | None = None, key: IdempotencyKey = None
    ) -> Started:
        """By name, `name` or `gallery@name`: on every node that a build fits, now and for machines that come later."""
        request = InstallWanted(
            element=element,
            force=wanted.force if wanted is not None else False,
            on_drift=wanted.on_drift if wanted is not None else None,
            target=await read_target(wanted, nodes),
        )
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/backends/delete/{element:path}")
    async def delete(
        element: str, actor: Actor, wanted: Targeted | None = None, key: IdempotencyKey = None
    ) -> Deleting:
        """It holds: no load brings the backend back. Answers which models that ends."""
        request = DeleteWanted(element=element, target=await read_target(wanted, nodes))
        ended = await uses.read(element, request.target)
        begun = started(await fleet.delete(request, actor=actor, key=key), "backend deletion started")
        return Deleting(**begun.model_dump(), **ended)

    @router.post("/api/backends/uses/{element:path}")
    async def show_uses(element: str, wanted: Targeted | None = None) -> Uses:
        """Changes nothing: which models use it, and how many of their replicas its deletion would stop."""
        return Uses(**await uses.read(element, await read_target(wanted, nodes)))

    @router.post("/api/backends/upgrade/{element:path}")
    async def upgrade(
        element: str, actor: Actor, wanted: UpgradeBody | None = None, key: IdempotencyKey = None
    ) -> Started:
        """To what the galleries offer now, on the nodes that have it."""
        request = UpgradeWanted(
            element=element,
            target=await read_target(wanted, nodes),
            spare_rolled_back=wanted.spare_rolled_back if wanted is not None else False,
        )
        return started(await fleet.upgrade(request, actor=actor, key=key), "backend upgrade started")

    @router.post("/api/backends/{element}/rollback", status_code=202)
    async def rollback(
        element: str, actor: Actor, wanted: RollbackBody | None = None, key: IdempotencyKey = None
    ) -> Started:
        """To the version before, which is still on the nodes' disks: nothing is fetched."""
        request = RollbackWanted(
            element=element, to=wanted.to if wanted is not None else None, target=await read_target(wanted, nodes)
        )
        return started(await fleet.rollback(request, actor=actor, key=key), "backend rollback started")

    _add_localai_routes(router, fleet, nodes, galleries)
    _add_upgrade_routes(router, fleet, checks)
    return router


def _add_localai_routes(router: APIRouter, fleet: FleetService, nodes: NodeStore, galleries: Galleries) -> None:
    @router.post("/backends/apply", response_model=LocalAiStarted)
    async def apply(wanted: ApplyBody, actor: Actor, key: IdempotencyKey = None) -> Any:
        target = await read_target(wanted, nodes)
        if target.is_lasting and not target.selector:
            refusal = _for_some_only(await galleries.backends(), wanted.id)
            if refusal is not None:
                return refusal
        request = InstallWanted(element=wanted.id, force=wanted.force, on_drift=wanted.on_drift, target=target)
        return _localai(await fleet.install(request, actor=actor, key=key))

    @router.post("/backends/delete/{element:path}")
    async def apply_delete(element: str, actor: Actor, key: IdempotencyKey = None) -> LocalAiStarted:
        return _localai(await fleet.delete(DeleteWanted(element=element), actor=actor, key=key))

    @router.post("/backends/upgrade/{element:path}")
    async def apply_upgrade(element: str, actor: Actor, key: IdempotencyKey = None) -> LocalAiStarted:
        return _localai(await fleet.upgrade(UpgradeWanted(element=element), actor=actor, key=key))


def _add_upgrade_routes(router: APIRouter, fleet: FleetService, checks: UpgradeChecks) -> None:
    async def list_upgrades() -> Response:
        """By backend: what nodes have, and what the galleries offer."""
        found = await checks.read()
        return MsgspecJson(
            {
                name: {
                    "backend_name": name,
                    "installed_version": upgrade.nodes[0].version,
                    "available_version": upgrade.nodes[0].available_version,
                    "installed_digest": upgrade.nodes[0].digest,
                    "available_digest": upgrade.nodes[0].available_digest,
                    "node_drift": upgrade.nodes,
                }
                for name, upgrade in found.items()
            }
        )

    async def check_upgrades() -> dict[str, str]:
        checks.ask()
        return {"message": "galleries and registries are being asked"}

    for prefix in ("/api/backends", "/backends"):
        router.get(f"{prefix}/upgrades")(list_upgrades)
        router.post(f"{prefix}/upgrades/check")(check_upgrades)

    @router.post("/api/backends/upgrades/apply", status_code=202)
    async def upgrade_all(actor: Actor) -> dict[str, dict[str, str]]:
        """Everything that has an upgrade, but for nodes that were rolled back from it; answers the operation of each
        backend."""
        jobs = {}
        for name, upgrade in (await checks.read()).items():
            if not all(node.rolled_back for node in upgrade.nodes):
                wanted = UpgradeWanted(element=name, spare_rolled_back=True)
                jobs[name] = (await fleet.upgrade(wanted, actor=actor)).id
        return {"jobs": jobs}


def _for_some_only(catalogue: Catalogue, element: str) -> JSONResponse | None:
    """LocalAI refuses a hardware-specific build for a whole fleet, and names the family to ask for instead."""
    try:
        entry = catalogue.find(element)
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


def _name_of(uri: str) -> str:
    """`registry/owner/name:tag` is called `name` unless somebody says otherwise."""
    last = uri.rstrip("/").rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0]
