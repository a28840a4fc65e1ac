"""`/metrics`, for Prometheus."""

from collections.abc import Callable

from fastapi import APIRouter, Response

from corral.telemetry.metrics import CONTENT_TYPE


def metrics_routes(read: Callable[[], str]) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Requests, times, tokens, queues and open requests by model and node, in Prometheus's text form."""
        return Response(read(), headers={"Content-Type": CONTENT_TYPE})

    return router
