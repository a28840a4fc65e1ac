"""Backends with a newer version in the galleries, and upgrading all of them."""

from dataclasses import dataclass

from fastapi import APIRouter, Response
from pydantic import BaseModel

from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.upgrades import UpgradeCheck
from corral.core.backends.requests import RequestedUpgrade
from corral.core.backends.upgrades import OutdatedNode, Unchecked, Upgrade, describe_held_back, describe_pinned
from corral.core.errors import Conflict, NotFound
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.message import Message
from corral.frontend.http.json_response import MsgspecJson

WAIT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeView:
    """The versions are those of the first node that lags behind; `node_drift` has all of them."""

    backend_name: str
    installed_version: str
    available_version: str
    installed_digest: str
    available_digest: str
    node_drift: tuple[OutdatedNode, ...]
    held_back: str
    """In which rollout the available version failed, when and why, if that holds for all these nodes."""


class UpgradesStarted(BaseModel):
    jobs: dict[str, str]
    """The operation of each backend that is upgraded."""
    refused: dict[str, str]
    """Why the others are not upgraded: their version is frozen, or they were deleted meanwhile."""
    pinned: dict[str, str]
    """Backends that are pinned on all nodes that have an older version: to what, and what is available."""
    held_back: dict[str, str]
    """Backends whose newer version failed in a rollout, or is being rolled out: which, since when and why."""


def upgrade_routes(fleet: Fleet, checks: UpgradeCheck) -> APIRouter:
    router = APIRouter(tags=["backends"])

    async def list_upgrades() -> Response:
        """Lists, by backend, the version nodes have and the version the galleries offer."""
        return MsgspecJson({name: _view(name, upgrade) for name, upgrade in (await checks.read()).items()})

    async def check_upgrades(wait: bool = False) -> Message:
        """Refreshes galleries and registries in the background. With `wait` it answers when they are refreshed, or
        after 15 seconds."""
        if await checks.check_now(wait_s=WAIT_S if wait else 0.0):
            return Message(message="galleries and registries were refreshed")
        return Message(message="galleries and registries are being refreshed")

    for prefix in ("/api/backends", "/backends"):
        router.get(f"{prefix}/upgrades", response_model=dict[str, UpgradeView])(list_upgrades)
        router.post(f"{prefix}/upgrades/check")(check_upgrades)

    @router.get("/api/backends/upgrades/unchecked", response_model=dict[str, list[Unchecked]])
    async def list_unchecked() -> Response:
        """Lists, by backend, the nodes for which it is unknown whether a newer version exists, and why."""
        return MsgspecJson(await checks.read_unchecked())

    @router.post("/api/backends/upgrades/apply", status_code=202)
    async def upgrade_all(actor: Actor) -> UpgradesStarted:
        """Upgrades every backend that has a newer version, except on nodes where its version is pinned, and versions
        that failed in a rollout or are being rolled out."""
        answer = UpgradesStarted(jobs={}, refused={}, pinned={}, held_back={})
        for name, upgrade in (await checks.read()).items():
            if all(node.pinned for node in upgrade.nodes):
                answer.pinned[name] = describe_pinned(upgrade.nodes)
                continue
            if all(node.is_skipped for node in upgrade.nodes):
                answer.held_back[name] = describe_held_back(upgrade.nodes)
                continue
            request = RequestedUpgrade(reference=name)
            try:
                answer.jobs[name] = (await fleet.upgrade(request, actor=actor)).id
            except (Conflict, NotFound) as error:
                answer.refused[name] = str(error)
        return answer

    return router


def _view(name: str, upgrade: Upgrade) -> UpgradeView:
    first = upgrade.nodes[0]
    return UpgradeView(
        backend_name=name,
        installed_version=first.version,
        available_version=first.available_version,
        installed_digest=first.digest,
        available_digest=first.available_digest,
        node_drift=upgrade.nodes,
        held_back=describe_held_back(upgrade.nodes) if all(node.held_back for node in upgrade.nodes) else "",
    )
