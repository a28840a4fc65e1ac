"""Operations as LocalAI's clients know them: jobs, asked for one by one."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from corral.core.backends.operations import Operation
from corral.core.errors import NotFound
from corral.frontend.api.backends.service import Progress
from corral.frontend.api.operations.view import describe, is_in_background, is_settled, view_operation, with_live
from corral.frontend.http.json_response import MsgspecJson
from corral.store.backends.operations import OperationStore


def job_routes(operations: OperationStore, live: Progress) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/api/backends/job/{operation_id}")
    async def show_backend_job(operation_id: str) -> Response:
        """As LocalAI's UI asks for it; there, a job nobody knows yet is one that waits."""
        try:
            operation = await operations.read_one(operation_id)
        except NotFound:
            return JSONResponse(_UNKNOWN_JOB)
        status = job_status(with_live(operation, live.of(operation.id)))
        answer = {
            "progress": status["progress"],
            "message": status["message"],
            "galleryElementName": status["gallery_element_name"],
            "processed": status["processed"],
            "deletion": status["deletion"],
            "queued": view_operation(operation).isQueued,
            **({"error": status["error"]} if status["error"] else {}),
            **({"completed": True} if status["processed"] and not status["error"] else {}),
        }
        return JSONResponse(answer)

    @router.get("/backends/jobs/{operation_id}")
    async def show_job(operation_id: str) -> Response:
        operation = await operations.read_one(operation_id)
        return MsgspecJson(job_status(with_live(operation, live.of(operation.id))))

    @router.get("/backends/jobs")
    async def list_jobs() -> Response:
        return MsgspecJson(
            {
                operation.id: job_status(with_live(operation, live.of(operation.id)))
                for operation in await operations.read_open()
            }
        )

    return router


UNCONFIRMED = "worker still installing in background"
"""As LocalAI says it of a job whose worker has not answered in time: the job has ended, the worker has not."""
_UNKNOWN_JOB = {
    "progress": 0,
    "message": "",
    "galleryElementName": "",
    "processed": False,
    "deletion": False,
    "queued": True,
}


def job_status(operation: Operation) -> dict[str, Any]:
    """The status object of LocalAI's progress broadcasts."""
    view = view_operation(operation)
    settled = is_settled(operation)
    failed = view.error
    behind = is_in_background(operation) and not failed
    clean = settled and not failed and not behind and operation.state.value != "cancelled"
    return {
        "deletion": view.isDeletion,
        "file_name": next((node.file_name for node in view.nodes if node.file_name), ""),
        "message": "completed" if clean else UNCONFIRMED if behind else describe(operation),
        "file_size": "",
        "downloaded_size": "",
        "gallery_element_name": view.name,
        "error": failed or None,
        "processed": settled,
        "progress": 100.0 if clean else round(operation.percentage, 1),
        "phase": view.phase,
        "current_bytes": view.currentBytes,
        "total_bytes": view.totalBytes,
        "cancelled": operation.state.value == "cancelled",
        "cancellable": view.cancellable,
        "nodes": view.nodes,
    }
