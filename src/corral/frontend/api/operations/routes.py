"""`/api/operations`: running and finished operations, and how to cancel or retry them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from corral.controller.backends.progress import LiveProgress
from corral.core.backends.intents import Verb
from corral.core.backends.operations import Operation, OperationState
from corral.core.errors import CorralError
from corral.core.nodes.targets import find_node
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.operations.open_operations import OpenOperations
from corral.frontend.api.operations.view import OperationList, OperationView, view_operation, with_live
from corral.frontend.api.times import time_of
from corral.frontend.http.errors import status_of
from corral.frontend.http.json_response import MsgspecJson
from corral.store.backends.operations import OperationCancelled, OperationStore, Places
from corral.store.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    id: str
    name: str
    jobID: str
    isBackend: bool
    nodeID: str | None
    taskType: str
    outcome: OperationState
    error: str
    startedAt: datetime | None
    finishedAt: datetime | None
    actor: str
    cause: str
    verb: Verb
    nodes: list[str]
    """Names of the first few nodes it was for."""
    node_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    operations: list[HistoryEntry]


class Retry(BaseModel):
    node_id: str | None = None
    """Id or name of a node; by default every failed node is retried."""


class ChangeResult(BaseModel):
    """LocalAI's answer."""

    success: bool
    message: str


class HistoryCleared(BaseModel):
    success: bool


def operation_routes(
    stores: Stores, listed: OpenOperations, live: LiveProgress, notify: Callable[[str], Awaitable[None]]
) -> APIRouter:
    router = APIRouter(tags=["operations"])

    def show(operation: Operation) -> OperationView:
        return view_operation(with_live(operation, live.of(operation.id)))

    @router.get("/api/operations", response_model=OperationList)
    async def list_operations() -> Response:
        """Lists running operations, and failed ones that were not dismissed."""
        return Response(await listed.read(), media_type="application/json")

    _add_history_routes(router, stores.operations, notify)  # before the next route, whose path parameter would match it

    @router.get("/api/operations/{operation_id}", response_model=OperationView)
    async def show_operation(operation_id: str) -> Response:
        """Shows an operation with its progress on each node."""
        return MsgspecJson(show(await stores.operations.read_one(operation_id)))

    @router.post("/api/operations/{operation_id}/retry", response_model=OperationView)
    async def retry_operation(operation_id: str, actor: Actor, body: Retry | None = None) -> Response:
        """Retries the failed nodes, or one of them, now and with all attempts."""
        node_id = None
        if body is not None and body.node_id:
            node_id = find_node(await stores.nodes.read_all(), body.node_id).id
        operation = await stores.operations.retry(operation_id, node_id=node_id, actor=actor)
        await notify("operations")
        return MsgspecJson(show(operation))

    _add_end_routes(router, stores.operations, notify)
    return router


def _add_history_routes(
    router: APIRouter, operations: OperationStore, notify: Callable[[str], Awaitable[None]]
) -> None:
    @router.get("/api/operations/history", response_model=History)
    async def list_history() -> Response:
        """Lists the last fifty finished operations, newest first."""
        ended = await operations.read_history()
        places = await operations.read_places([operation.id for operation in ended])
        return MsgspecJson(
            History(operations=[_history(operation, places.get(operation.id, Places())) for operation in ended])
        )

    @router.delete("/api/operations/history")
    async def clear_history(actor: Actor) -> HistoryCleared:
        """Deletes the finished operations from the history."""
        await operations.clear_history(actor=actor)
        await notify("operations")
        return HistoryCleared(success=True)


def _add_end_routes(router: APIRouter, operations: OperationStore, notify: Callable[[str], Awaitable[None]]) -> None:
    """Answers have LocalAI's shape, errors too."""

    async def cancel(operation_id: str, actor: str) -> Response:
        try:
            cancelled = await operations.cancel(operation_id, actor=actor)
        except CorralError as error:
            return _error_response(error)
        await notify("operations")
        return JSONResponse({"success": True, "message": _describe_cancel(cancelled)})

    @router.post("/api/operations/{operation_id}/cancel", response_model=ChangeResult)
    async def cancel_operation(operation_id: str, actor: Actor) -> Response:
        """Cancels an operation on all nodes. Nodes that have started stop. Completed nodes go back to what was desired
        before; only a first install stays, and what a completed rollout has changed. Partial downloads are kept for at
        least a day, and a retry continues from them."""
        return await cancel(operation_id, actor)

    @router.post("/api/operations/{operation_id}/pause", response_model=ChangeResult)
    async def pause_operation(operation_id: str, actor: Actor) -> Response:
        """The same as cancel; a retry within a day continues the downloads."""
        return await cancel(operation_id, actor)

    @router.post("/api/operations/{operation_id}/dismiss", response_model=ChangeResult)
    async def dismiss_operation(operation_id: str, actor: Actor) -> Response:
        """Removes a failed operation from the list."""
        try:
            await operations.dismiss(operation_id, actor=actor)
        except CorralError as error:
            return _error_response(error)
        await notify("operations")
        return JSONResponse({"success": True, "message": "operation dismissed"})


def _describe_cancel(cancelled: OperationCancelled) -> str:
    state, running = cancelled.operation.state.value, len(cancelled.running)
    if cancelled.was_over:
        return f"operation has already ended ({state}); nothing was cancelled"
    if cancelled.operation.finished_at is not None:
        return f"operation {state}"
    return f"operation is being cancelled on {running} {'node' if running == 1 else 'nodes'}"


def _error_response(error: CorralError) -> JSONResponse:
    """LocalAI answers 400 for an unknown job."""
    status = status_of(error)
    return JSONResponse({"error": str(error)}, status_code=400 if status == 404 else status)


def _history(operation: Operation, places: Places) -> HistoryEntry:
    return HistoryEntry(
        id=operation.reference,
        name=operation.name,
        jobID=operation.id,
        isBackend=True,
        nodeID=operation.node_id,
        taskType=view_operation(operation).taskType,
        outcome=operation.state,
        error=operation.error,
        startedAt=time_of(operation.created_at),
        finishedAt=time_of(operation.finished_at),
        actor=operation.actor,
        cause=operation.cause,
        nodes=list(places.names),
        node_count=places.count,
        verb=operation.verb,
    )
