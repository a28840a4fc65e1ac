"""Install, upgrade and roll back a backend on every node or some."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.controller.backends.create_operation import Fleet
from corral.core.backends.policies import OnDrift
from corral.core.backends.requests import (
    RequestedFollow,
    RequestedInstall,
    RequestedPin,
    RequestedRollback,
    RequestedUpgrade,
)
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.preview import DryRun, PreviewView, preview_view
from corral.frontend.api.backends.targets import IdempotencyKey, Targeted, read_target
from corral.frontend.api.rollouts.request import RolloutBody, read_rollout
from corral.store.backends.create_operation import Admitted
from corral.store.nodes.nodes import NodeStore

Reason = Annotated[str, Field(max_length=500)]
Version = Annotated[str, Field(min_length=1, max_length=200)]


class InstallBody(Targeted):
    force: bool = False
    on_drift: OnDrift | None = None
    version: Annotated[str, Field(max_length=200)] = ""
    """A version, or the beginning of a digest, that is installed and pinned. Only for backends of a gallery."""
    rollout: RolloutBody | None = None
    """For nodes that have another version."""


class ExternalInstallBody(InstallBody):
    uri: Annotated[str, Field(min_length=1, max_length=2000)]
    name: str = ""
    alias: str = ""


class UpgradeBody(Targeted):
    unpin: bool = False
    """Upgrade pinned nodes too, and let them follow the galleries again. Otherwise they are skipped."""
    rollout: RolloutBody | None = None


class RollbackBody(Targeted):
    to: str | None = None
    """The version to roll back to, or the beginning of its digest; by default the version before the current one."""
    reason: Reason = ""
    """Why, for people."""


class PinBody(Targeted):
    version: Version
    """A version, or the beginning of a digest."""
    rollout: RolloutBody | None = None
    reason: Reason = ""
    """Why, for people."""


class FollowBody(Targeted):
    reason: Reason = ""
    """Why, for people."""


class OperationStarted(BaseModel):
    jobID: str
    message: str
    uuid: str
    statusUrl: str


def started(admitted: Admitted, message: str) -> OperationStarted:
    return OperationStarted(
        jobID=admitted.id, uuid=admitted.id, statusUrl=f"/api/backends/job/{admitted.id}", message=message
    )


def backend_routes(fleet: Fleet, nodes: NodeStore) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.post("/api/backends/install-external")
    async def install_external(
        body: ExternalInstallBody, actor: Actor, key: IdempotencyKey = None, dry_run: DryRun = False
    ) -> OperationStarted | PreviewView:
        """Installs a backend from a location outside the galleries. With `dry_run`, only the plan is answered."""
        request = RequestedInstall(
            uri=body.uri,
            name=body.name or name_of(body.uri),
            alias=body.alias,
            force=body.force,
            on_drift=body.on_drift,
            rollout=read_rollout(body.rollout),
            target=await read_target(body, nodes),
        )
        if dry_run:
            return preview_view(await fleet.preview(request))
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/backends/install/{reference:path}")
    async def install(
        reference: str,
        actor: Actor,
        body: InstallBody | None = None,
        key: IdempotencyKey = None,
        dry_run: DryRun = False,
    ) -> OperationStarted | PreviewView:
        """Installs a backend by its reference, `name` or `gallery@name`, on every node that a build of it supports,
        and on such nodes that join later. With `@version` after it, that version is installed and pinned."""
        request = RequestedInstall(
            reference=reference,
            force=body.force if body is not None else False,
            on_drift=body.on_drift if body is not None else None,
            version=body.version if body is not None else "",
            rollout=read_rollout(body.rollout if body is not None else None),
            target=await read_target(body, nodes),
        )
        if dry_run:
            return preview_view(await fleet.preview(request))
        return started(await fleet.install(request, actor=actor, key=key), "backend installation started")

    @router.post("/api/backends/upgrade/{reference:path}")
    async def upgrade(
        reference: str,
        actor: Actor,
        body: UpgradeBody | None = None,
        key: IdempotencyKey = None,
        dry_run: DryRun = False,
    ) -> OperationStarted | PreviewView:
        """Upgrades a backend to the version the galleries offer now, on the nodes that have it."""
        request = RequestedUpgrade(
            reference=reference,
            target=await read_target(body, nodes),
            unpin=body.unpin if body is not None else False,
            rollout=read_rollout(body.rollout if body is not None else None),
        )
        if dry_run:
            return preview_view(await fleet.preview(request))
        return started(await fleet.upgrade(request, actor=actor, key=key), "backend upgrade started")

    @router.post("/api/backends/{reference}/rollback", status_code=202)
    async def rollback(
        reference: str, actor: Actor, body: RollbackBody | None = None, key: IdempotencyKey = None
    ) -> OperationStarted:
        """Rolls a backend back to its previous version, and pins that. It is still on the nodes' disks, so nothing is
        downloaded."""
        request = RequestedRollback(
            reference=reference,
            to=body.to if body is not None else None,
            reason=body.reason if body is not None else "",
            target=await read_target(body, nodes),
        )
        return started(await fleet.rollback(request, actor=actor, key=key), "backend rollback started")

    @router.post("/api/backends/{reference}/pin", status_code=202)
    async def pin(
        reference: str, body: PinBody, actor: Actor, key: IdempotencyKey = None, dry_run: DryRun = False
    ) -> OperationStarted | PreviewView:
        """Pins a backend to a version: nodes with another one change to it, and nodes that join later get it."""
        request = RequestedPin(
            reference=reference,
            version=body.version,
            reason=body.reason,
            rollout=read_rollout(body.rollout),
            target=await read_target(body, nodes),
        )
        if dry_run:
            return preview_view(await fleet.preview(request))
        return started(await fleet.pin(request, actor=actor, key=key), "the version is pinned")

    @router.post("/api/backends/{reference}/follow", status_code=202)
    async def follow(
        reference: str, actor: Actor, body: FollowBody | None = None, key: IdempotencyKey = None
    ) -> OperationStarted:
        """Ends the pins of a backend: installs and upgrades get the newest version again. This changes nothing on the
        nodes."""
        reason = body.reason if body is not None else ""
        request = RequestedFollow(reference=reference, reason=reason, target=await read_target(body, nodes))
        return started(await fleet.follow(request, actor=actor, key=key), "the backend follows the galleries")

    return router


def name_of(uri: str) -> str:
    """The default name of the backend at a location: `name` for `registry/owner/name:tag`."""
    last = uri.rstrip("/").rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0]
