"""The worker's HTTP application."""

from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from corral.artifacts.sources.site import BLOB_PATH
from corral.core.errors import CorralError
from corral.system import Clock
from corral.worker.processes.logs import ProcessLogs
from corral.worker.web.auth import Keys, RequireToken
from corral.worker.web.blobs import WAIT_HEADER, GrowingBlob, GrowingBlobs, Watch
from corral.worker.web.files import FileAreas, file_routes
from corral.worker.web.logs import log_routes


def build_worker_app(
    *,
    not_ready: Callable[[], str],
    keys: Callable[[], Keys],
    areas: FileAreas,
    logs: ProcessLogs,
    find_blob: Callable[[str], Path | None],
    find_partial: Callable[[str], Path | None],
    watch_blob: Watch,
    clock: Clock,
) -> Starlette:
    """`not_ready` returns why the worker is not ready; empty if it is."""

    async def alive(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_request: Request) -> Response:
        reason = not_ready()
        return PlainTextResponse(f"not ready: {reason}", status_code=503) if reason else PlainTextResponse("ok")

    growing = GrowingBlobs(find_partial, find_blob, watch_blob)

    async def blob(request: Request) -> Response:
        """Serves a blob to other workers, which verify its digest."""
        digest = request.path_params["digest"]
        try:
            path = find_blob(digest)
            if path is None and WAIT_HEADER in request.headers and find_partial(digest) is not None:
                return GrowingBlob(growing, digest, request.headers.get("range", ""))
        except CorralError as error:
            return PlainTextResponse(str(error), status_code=400)
        if path is None:
            return PlainTextResponse("no such blob", status_code=404)
        return FileResponse(path, media_type="application/octet-stream")

    return Starlette(
        routes=[
            Route("/healthz", alive),
            Route("/readyz", ready),
            Route(BLOB_PATH + "{digest}", blob),
            *file_routes(areas),
            *log_routes(logs),
        ],
        middleware=[Middleware(RequireToken, keys=keys, clock=clock)],
    )
