"""Deleting a backend on every node or some, and what that would end."""

from fastapi import APIRouter
from pydantic import BaseModel

from corral.core.backends.requests import DeleteIntent
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.dependents import BackendUses
from corral.frontend.api.backends.routes import OperationStarted, started
from corral.frontend.api.backends.service import FleetService
from corral.frontend.api.backends.targets import IdempotencyKey, Targeted, read_target
from corral.store.nodes.nodes import NodeStore


class ModelUse(BaseModel):
    model: str
    replicas: int
    """That stop."""


class Uses(BaseModel):
    models: list[ModelUse]
    consequence: str
    """The same in words; empty when no model uses it."""


class Deleting(OperationStarted, Uses):
    pass


def delete_routes(fleet: FleetService, nodes: NodeStore, uses: BackendUses) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.post("/api/backends/delete/{reference:path}")
    async def delete(
        reference: str, actor: Actor, wanted: Targeted | None = None, key: IdempotencyKey = None
    ) -> Deleting:
        """It holds: no load brings the backend back. Answers which models that ends."""
        request = DeleteIntent(reference=reference, target=await read_target(wanted, nodes))
        ended = await uses.read(reference, request.target)
        begun = started(await fleet.delete(request, actor=actor, key=key), "backend deletion started")
        return Deleting(**begun.model_dump(), **ended)

    @router.post("/api/backends/uses/{reference:path}")
    async def show_uses(reference: str, wanted: Targeted | None = None) -> Uses:
        """Changes nothing: which models use it, and how many of their replicas its deletion would stop."""
        return Uses(**await uses.read(reference, await read_target(wanted, nodes)))

    return router
