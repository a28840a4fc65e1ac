"""`/api/rollouts`: running and past rollouts, and how to steer them."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.frontend.api.access.principal import Actor
from corral.frontend.api.rollouts.view import RolloutList, RolloutView, view_model_rollout, view_rollout
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores


class PauseBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(max_length=500)] = ""
    """Why, for people."""


def rollout_routes(stores: Stores, notify: Callable[[str], Awaitable[None]]) -> APIRouter:
    router = APIRouter(tags=["rollouts"])
    store = stores.rollouts

    async def show(rollout_id: str) -> Response:
        rollout = await store.read_one(rollout_id)
        events = await store.read_events(rollout.operation_id)
        return MsgspecJson(
            view_rollout(rollout, events, statuses=await stores.nodes.read_statuses(), now_ms=await store.now_ms())
        )

    async def changed(rollout_id: str) -> Response:
        await notify("operations")
        return await show(rollout_id)

    @router.get("/api/rollouts", response_model=RolloutList)
    async def list_rollouts() -> Response:
        """Lists the rollouts that run, and the last fifty that ended; newest first. Edits of models, which are proven
        on one replica before they replace the others, are listed beside them."""
        statuses, now_ms = await stores.nodes.read_statuses(), await store.now_ms()
        found = RolloutList(
            rollouts=[view_rollout(one, statuses=statuses, now_ms=now_ms) for one in await store.read_recent()],
            revisions=[view_model_rollout(one) for one in await stores.revision_changes.read_recent()],
        )
        return MsgspecJson(found)

    @router.get("/api/rollouts/{rollout_id}", response_model=RolloutView)
    async def show_rollout(rollout_id: str) -> Response:
        """Shows a rollout: its waves, nodes, gates and what happened. The id is that of its operation, or the
        beginning of it."""
        return await show(rollout_id)

    @router.post("/api/rollouts/{rollout_id}/pause", response_model=RolloutView)
    async def pause_rollout(rollout_id: str, actor: Actor, body: PauseBody | None = None) -> Response:
        """Lets no further wave begin. Nodes that have begun go on, and a failed gate still rolls back."""
        reason = body.reason if body is not None else ""
        return await changed(await store.pause(rollout_id, actor=actor, reason=reason))

    @router.post("/api/rollouts/{rollout_id}/resume", response_model=RolloutView)
    async def resume_rollout(rollout_id: str, actor: Actor) -> Response:
        """Continues a paused rollout."""
        return await changed(await store.resume(rollout_id, actor=actor))

    @router.post("/api/rollouts/{rollout_id}/promote", response_model=RolloutView)
    async def promote_rollout(rollout_id: str, actor: Actor) -> Response:
        """Begins the next wave now: after the canaries, or without watching the current wave any longer."""
        return await changed(await store.promote(rollout_id, actor=actor))

    @router.post("/api/rollouts/{rollout_id}/abort", response_model=RolloutView)
    async def abort_rollout(rollout_id: str, actor: Actor) -> Response:
        """Ends a rollout that has not ended. Nodes that have the new version go back to the previous one."""
        rollout = await store.read_one(rollout_id)
        await stores.operations.abort(rollout.operation_id, actor=actor)
        return await changed(rollout.operation_id)

    @router.post("/api/rollouts/{rollout_id}/allow", response_model=RolloutView)
    async def allow_version(rollout_id: str, actor: Actor) -> Response:
        """Offers the version of a failed rollout again."""
        return await changed(await store.allow(rollout_id, actor=actor))

    return router
