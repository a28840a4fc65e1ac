"""Deleting a backend on every node or some, and the models that depend on it."""

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from corral.controller.backends.create_operation import Fleet
from corral.core.backends.dependents import describe_dependents, find_dependents
from corral.core.backends.operations import Operation
from corral.core.backends.planning import as_known
from corral.core.backends.requests import RequestedDelete
from corral.core.errors import InvalidInput
from corral.core.models.load_plan import backend_of
from corral.core.nodes.node import NodeStatus
from corral.core.nodes.targets import Target
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.routes import OperationStarted, started
from corral.frontend.api.backends.targets import (
    IdempotencyKey,
    NodeQuery,
    SelectorQuery,
    Targeted,
    read_target,
    targeted_by,
)
from corral.frontend.api.operations.view import current_error
from corral.store.serving.models import StoredModel
from corral.store.stores import Stores

DELETE_WAIT_S = 20.0
READ_EVERY_S = 0.1


class DependentModel(BaseModel):
    model: str
    replicas: int
    """How many of its replicas stop."""


class Dependents(BaseModel):
    models: list[DependentModel]
    consequence: str
    """The same as a sentence; empty when no model uses the backend."""


class DeleteStarted(OperationStarted, Dependents):
    pass


class DeleteResult(BaseModel):
    """Answers leave out fields that are null."""

    message: str
    success: bool | None = None
    jobID: str | None = None
    """The operation, while it has not ended."""
    models: list[DependentModel] | None = None
    consequence: str | None = None


class DependentsReader:
    def __init__(self, stores: Stores, fleet: Fleet) -> None:
        self._stores, self._fleet = stores, fleet

    async def read(self, reference: str, target: Target) -> Dependents:
        models = {model.name: _backend(model) for model in await self._stores.models.read_all() if model.served}
        states = await self._fleet.read_targeted(target)
        backend = as_known(reference, states).rpartition("@")[2]
        uses = find_dependents(states, backend, models, await self._stores.replicas.read_all())
        return Dependents(
            models=[DependentModel(model=use.model, replicas=use.replicas) for use in uses],
            consequence=describe_dependents(uses),
        )


def delete_routes(stores: Stores, fleet: Fleet, dependents: DependentsReader) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.post("/api/backends/delete/{reference:path}")
    async def delete(
        reference: str, actor: Actor, body: Targeted | None = None, key: IdempotencyKey = None
    ) -> DeleteStarted:
        """Deletes a backend. The delete is declarative: no load installs the backend again. The answer lists the models
        that stop."""
        request = RequestedDelete(reference=reference, target=await read_target(body, stores.nodes))
        affected = await dependents.read(reference, request.target)
        operation = started(await fleet.delete(request, actor=actor, key=key), "backend deletion started")
        return DeleteStarted(**operation.model_dump(), **affected.model_dump())

    @router.get("/api/backends/{reference:path}/dependents")
    async def show_dependents(reference: str, node: NodeQuery, selector: SelectorQuery) -> Dependents:
        """Lists the models that use a backend, and how many of their replicas its deletion would stop. `node` (id or
        name) and `selector` (`key=value`) limit it to some nodes and may be repeated."""
        return await dependents.read(reference, await read_target(targeted_by(node, selector), stores.nodes))

    return router


async def wait_for_end(stores: Stores, operation_id: str) -> Operation:
    """Waits until the operation ends, fails, or depends on a node that is offline; for 20 seconds at most."""
    operation = await stores.operations.read_one(operation_id)
    try:
        async with asyncio.timeout(DELETE_WAIT_S):
            while operation.finished_at is None and not current_error(operation) and await _can_end(stores, operation):
                await asyncio.sleep(READ_EVERY_S)
                operation = await stores.operations.read_one(operation_id)
    except TimeoutError:
        pass
    return operation


async def _can_end(stores: Stores, operation: Operation) -> bool:
    """Whether some healthy node has still work to do for it."""
    open_ids = {node.node_id for node in operation.nodes if not node.status.settled}
    return any(node.id in open_ids and node.status is NodeStatus.HEALTHY for node in await stores.nodes.read_all())


def delete_response(operation: Operation, affected: Dependents, *, success: bool | None = None) -> Response:
    """The answer of a route that waits for a delete, in LocalAI's shape."""
    if error := current_error(operation):
        return JSONResponse({"error": error, "jobID": operation.id}, status_code=500)
    result = DeleteResult(message="backend deleted", success=success)
    if operation.finished_at is None:
        result = DeleteResult(message="queued: an offline node deletes it when it is back", jobID=operation.id)
    if affected.models:
        result.models, result.consequence = affected.models, affected.consequence
    return JSONResponse(result.model_dump(exclude_none=True), status_code=200 if result.jobID is None else 202)


def _backend(model: StoredModel) -> str:
    try:
        return backend_of(model.config)
    except InvalidInput:
        return ""
