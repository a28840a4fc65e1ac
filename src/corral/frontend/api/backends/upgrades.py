"""For which backends there is something newer, and all of it at once."""

from fastapi import APIRouter, Response

from corral.core.backends.requests import RequestedUpgrade
from corral.core.errors import Conflict, NotFound
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.service import FleetService, UpgradeChecks
from corral.frontend.http.json_response import MsgspecJson

WAIT_S = 15.0


def upgrade_routes(fleet: FleetService, checks: UpgradeChecks) -> APIRouter:
    router = APIRouter(tags=["backends"])

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

    async def check_upgrades(wait: bool = False) -> dict[str, str]:
        """Has galleries and registries asked anew, in the background; with `wait`, answers when they were, or after a
        quarter of a minute."""
        if await checks.ask(wait_s=WAIT_S if wait else 0.0):
            return {"message": "galleries and registries were asked"}
        return {"message": "galleries and registries are being asked"}

    for prefix in ("/api/backends", "/backends"):
        router.get(f"{prefix}/upgrades")(list_upgrades)
        router.post(f"{prefix}/upgrades/check")(check_upgrades)

    @router.get("/api/backends/upgrades/unchecked")
    async def list_unchecked() -> Response:
        """By backend: nodes of which nobody can tell whether there is something newer, each with the reason."""
        return MsgspecJson(await checks.read_unchecked())

    @router.post("/api/backends/upgrades/apply", status_code=202)
    async def upgrade_all(actor: Actor) -> dict[str, dict[str, str]]:
        """Everything that has an upgrade, but for nodes that were rolled back from it; answers the operation of each
        backend, and why there is none of some (`refused`): they are frozen, or went meanwhile."""
        jobs, refused = {}, {}
        for name, upgrade in (await checks.read()).items():
            if all(node.rolled_back for node in upgrade.nodes):
                continue
            wanted = RequestedUpgrade(reference=name, skip_rolled_back=True)
            try:
                jobs[name] = (await fleet.upgrade(wanted, actor=actor)).id
            except (Conflict, NotFound) as error:
                refused[name] = str(error)
        return {"jobs": jobs, "refused": refused}

    return router
