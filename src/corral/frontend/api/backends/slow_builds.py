"""`/api/fleet/slow-builds`: nodes that have only the CPU build of a backend although they have an accelerator."""

from fastapi import APIRouter, Response

from corral.controller.backends.slow_builds import SlowBuilds
from corral.core.backends.slow_builds import SlowBuild
from corral.frontend.http.json_response import MsgspecJson


def slow_build_routes(slow: SlowBuilds) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.get("/api/fleet/slow-builds", response_model=list[SlowBuild])
    async def list_slow_builds() -> Response:
        """Lists CPU builds on nodes with an accelerator, with the reason and what corrects it."""
        return MsgspecJson(await slow.read())

    return router
