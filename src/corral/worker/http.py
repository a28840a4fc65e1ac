"""The worker's HTTP server: liveness and readiness for now."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


def build_worker_app(not_ready: Callable[[], str]) -> Starlette:
    """`not_ready` tells what is missing; empty when this worker can work now."""

    async def alive(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def ready(_request: Request) -> PlainTextResponse:
        reason = not_ready()
        return PlainTextResponse(f"not ready: {reason}", status_code=503) if reason else PlainTextResponse("ok")

    return Starlette(routes=[Route("/healthz", alive), Route("/readyz", ready)])
