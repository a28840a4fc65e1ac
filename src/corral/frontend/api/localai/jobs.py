"""Operations as LocalAI's clients know them: jobs, polled one by one."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from corral.controller.backends.progress import LiveProgress
from corral.core.backends.operations import NodeProgressStatus, Operation, OperationState
from corral.core.errors import NotFound
from corral.frontend.api.operations.view import OperationNodeView, describe, view_operation, with_live
from corral.frontend.http.json_response import MsgspecJson
from corral.store.backends.operations import OperationStore

UNCONFIRMED = "worker still installing in background"
"""LocalAI's message for a job whose worker has not replied in time: the job has ended, the worker has not."""
_ANSWERED = frozenset((NodeProgressStatus.SUCCESS, NodeProgressStatus.ERROR, NodeProgressStatus.RUNNING_ON_WORKER))
_UNKNOWN_JOB = {
    "progress": 0,
    "message": "",
    "galleryElementName": "",
    "processed": False,
    "deletion": False,
    "queued": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status object of LocalAI's progress broadcasts."""

    deletion: bool
    file_name: str
    message: str
    file_size: str
    downloaded_size: str
    gallery_element_name: str
    error: str | None
    processed: bool
    progress: float
    phase: str
    current_bytes: int | None
    total_bytes: int | None
    cancelled: bool
    cancellable: bool
    nodes: Sequence[OperationNodeView]


def job_routes(operations: OperationStore, live: LiveProgress) -> APIRouter:
    router = APIRouter(tags=["localai"])

    def show(operation: Operation) -> JobStatus:
        return job_status(with_live(operation, live.of(operation.id)))

    @router.get("/api/backends/job/{operation_id}")
    async def show_backend_job(operation_id: str) -> Response:
        """Shows a job in the shape of LocalAI's UI, which takes an unknown job for one that is queued."""
        try:
            operation = await operations.read_one(operation_id)
        except NotFound:
            return JSONResponse(_UNKNOWN_JOB)
        status = show(operation)
        answer = {
            "progress": status.progress,
            "message": status.message,
            "galleryElementName": status.gallery_element_name,
            "processed": status.processed,
            "deletion": status.deletion,
            "queued": view_operation(operation).isQueued,
            **({"error": status.error} if status.error else {}),
            **({"completed": True} if status.processed and not status.error else {}),
        }
        return JSONResponse(answer)

    @router.get("/backends/jobs/{operation_id}", response_model=JobStatus)
    async def show_job(operation_id: str) -> Response:
        """Shows the status of a job."""
        return MsgspecJson(show(await operations.read_one(operation_id)))

    @router.get("/backends/jobs", response_model=dict[str, JobStatus])
    async def list_jobs() -> Response:
        """Lists the status of all open jobs by id."""
        return MsgspecJson({operation.id: show(operation) for operation in await operations.read_open()})

    return router


def job_status(operation: Operation) -> JobStatus:
    view = view_operation(operation)
    settled = _is_settled(operation)
    cancelled = operation.state is OperationState.CANCELLED
    unconfirmed = settled and not view.error and _is_unconfirmed(operation)
    completed = settled and not view.error and not unconfirmed and not cancelled
    return JobStatus(
        deletion=view.isDeletion,
        file_name=next((node.file_name for node in view.nodes if node.file_name), ""),
        message="completed" if completed else UNCONFIRMED if unconfirmed else describe(operation),
        file_size="",
        downloaded_size="",
        gallery_element_name=view.name,
        error=view.error or None,
        processed=settled,
        progress=100.0 if completed else round(operation.percentage, 1),
        phase=view.phase,
        current_bytes=view.currentBytes,
        total_bytes=view.totalBytes,
        cancelled=cancelled,
        cancellable=view.cancellable,
        nodes=view.nodes,
    )


def _is_settled(operation: Operation) -> bool:
    """Whether no reply of a worker is awaited now. Remaining nodes are offline, wait for their next attempt, or are
    unconfirmed."""
    if operation.finished_at is not None:
        return True
    statuses = {node.status for node in operation.nodes}
    return NodeProgressStatus.DOWNLOADING not in statuses and not statuses.isdisjoint(_ANSWERED)


def _is_unconfirmed(operation: Operation) -> bool:
    """Whether some worker has not replied in time and may still be working."""
    return any(node.status is NodeProgressStatus.RUNNING_ON_WORKER for node in operation.nodes)
