"""`/api/operations`: what runs, what ran, and how to stop it or try it again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from corral.core.backends.operations import Operation
from corral.core.errors import CorralError
from corral.core.nodes.targets import find_node
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.service import Progress
from corral.frontend.api.operations.open_operations import OpenOperations
from corral.frontend.api.operations.view import (
    OperationView,
    time_of,
    view_operation,
    with_live,
)
from corral.frontend.http.errors import status_of
from corral.frontend.http.json_response import MsgspecJson
from corral.store.backends.operations import OperationCancelled, OperationStore, Places
from corral.store.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationList:
    operations: list[OperationView]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    id: str
    name: str
    jobID: str
    isBackend: bool
    nodeID: str | None
    taskType: str
    outcome: str
    error: str
    startedAt: datetime | None
    finishedAt: datetime | None
    actor: str
    cause: str
    verb: str
    nodes: list[str]
    """Names of the first few machines it was for."""
    node_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    operations: list[HistoryEntry]


class Retry(BaseModel):
    node_id: str | None = None
    """Id or name; every node that failed when left out."""


def operation_routes(
    stores: Stores, listed: OpenOperations, live: Progress, hint: Callable[[str], Awaitable[None]]
) -> APIRouter:
    router = APIRouter(tags=["operations"])

    def show(operation: Operation) -> OperationView:
        return view_operation(with_live(operation, live.of(operation.id)))

    @router.get("/api/operations", response_model=OperationList)
    async def list_operations() -> Response:
        """What runs, and what failed and was not dismissed."""
        return Response(await listed.read(), media_type="application/json")

    _add_history_routes(router, stores.operations, hint)  # before the next, which would take it for an operation

    @router.get("/api/operations/{operation_id}", response_model=OperationView)
    async def show_operation(operation_id: str) -> Response:
        return MsgspecJson(show(await stores.operations.read_one(operation_id)))

    @router.post("/api/operations/{operation_id}/retry", response_model=OperationView)
    async def retry_operation(operation_id: str, actor: Actor, wanted: Retry | None = None) -> Response:
        """Failed nodes, or one of them, are tried again now, with all attempts before them."""
        node_id = None
        if wanted is not None and wanted.node_id:
            node_id = find_node(await stores.nodes.read_all(), wanted.node_id).id
        operation = await stores.operations.retry(operation_id, node_id=node_id, actor=actor)
        await hint("operations")
        return MsgspecJson(show(operation))

    _add_ending_routes(router, stores.operations, hint)
    return router


def _add_history_routes(router: APIRouter, operations: OperationStore, hint: Callable[[str], Awaitable[None]]) -> None:
    @router.get("/api/operations/history", response_model=History)
    async def list_history() -> Response:
        """The last fifty that ended, newest first."""
        ended = await operations.read_history()
        places = await operations.read_places([operation.id for operation in ended])
        return MsgspecJson(
            History(operations=[_history(operation, places.get(operation.id, Places())) for operation in ended])
        )

    @router.delete("/api/operations/history")
    async def clear_history(actor: Actor) -> dict[str, bool]:
        await operations.clear_history(actor=actor)
        await hint("operations")
        return {"success": True}


def _add_ending_routes(router: APIRouter, operations: OperationStore, hint: Callable[[str], Awaitable[None]]) -> None:
    """Answers in LocalAI's shape, also where it fails."""

    async def cancel(operation_id: str, actor: str) -> Response:
        try:
            cancelled = await operations.cancel(operation_id, actor=actor)
        except CorralError as error:
            return _not_done(error)
        await hint("operations")
        return JSONResponse({"success": True, "message": _say_cancelled(cancelled)})

    @router.post("/api/operations/{operation_id}/cancel")
    async def cancel_operation(operation_id: str, actor: Actor) -> Response:
        """From any frontend; what workers have begun is stopped there. What they have downloaded so far is kept for at
        least a day, and a retry continues from it."""
        return await cancel(operation_id, actor)

    @router.post("/api/operations/{operation_id}/pause")
    async def pause_operation(operation_id: str, actor: Actor) -> Response:
        """As cancel; a retry within a day continues with what was downloaded so far."""
        return await cancel(operation_id, actor)

    @router.post("/api/operations/{operation_id}/dismiss")
    async def dismiss_operation(operation_id: str, actor: Actor) -> Response:
        try:
            await operations.dismiss(operation_id, actor=actor)
        except CorralError as error:
            return _not_done(error)
        await hint("operations")
        return JSONResponse({"success": True, "message": "operation dismissed"})


def _say_cancelled(cancelled: OperationCancelled) -> str:
    state, told = cancelled.operation.state.value, len(cancelled.running)
    if cancelled.was_over:
        return f"operation has already ended ({state}); nothing was cancelled"
    if cancelled.operation.finished_at is not None:
        return f"operation {state}"
    return f"operation is being cancelled; {told} {'node is' if told == 1 else 'nodes are'} told"


def _not_done(error: CorralError) -> JSONResponse:
    """A job nobody knows is a bad request there."""
    status = status_of(error)
    return JSONResponse({"error": str(error)}, status_code=400 if status == 404 else status)


def _history(operation: Operation, places: Places) -> HistoryEntry:
    return HistoryEntry(
        id=operation.reference,
        name=operation.reference.rpartition("@")[2],
        jobID=operation.id,
        isBackend=True,
        nodeID=operation.node_id,
        taskType=view_operation(operation).taskType,
        outcome=operation.state.value,
        error=operation.error,
        startedAt=time_of(operation.created_at),
        finishedAt=time_of(operation.finished_at),
        actor=operation.actor,
        cause=operation.cause,
        nodes=list(places.names),
        node_count=places.count,
        verb=operation.verb.value,
    )
