"""`/api/nodes/scheduling`: how many replicas of a model, and where. LocalAI's shapes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel, StrictBool, StrictStr

from corral.core.errors import CorralError
from corral.core.nodes.targets import pick_serving, why_nowhere
from corral.core.replicas.scaling import Scheduling, check_prefix_match
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.models.loads import Desk
from corral.frontend.api.replicas.view import show_time
from corral.frontend.http.json_response import MsgspecJson
from corral.store.serving.scheduling import SchedulingRecord
from corral.store.stores import Stores
from corral.system import Ids

log = structlog.get_logger()

FIT_WITHIN_S = 5.0


class SchedulingRequest(BaseModel):
    """The last four keep what is stored when they are left out; the others are replaced."""

    model_name: str
    node_selector: Mapping[str, StrictStr] | None = None
    min_replicas: int = 0
    max_replicas: int = 0
    spread_all: StrictBool = False
    route_policy: str | None = None
    balance_abs_threshold: int | None = None
    balance_rel_threshold: float | None = None
    min_prefix_match: float | None = None

    def merged(self, before: Scheduling | None) -> Scheduling:
        check_prefix_match(self.min_prefix_match)
        wanted = Scheduling(
            model=self.model_name,
            selector=dict(self.node_selector or {}),
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            spread_all=self.spread_all,
        )
        kept = before or wanted
        return replace(
            wanted,
            route_policy=kept.route_policy if self.route_policy is None else self.route_policy,
            balance_abs_threshold=_given(self.balance_abs_threshold, kept.balance_abs_threshold),
            balance_rel_threshold=_given(self.balance_rel_threshold, kept.balance_rel_threshold),
        )


def _given(value: Any, kept: Any) -> Any:
    return kept if value is None else value


def view_scheduling(record: SchedulingRecord) -> dict[str, Any]:
    wanted, state = record.scheduling, record.state
    found: dict[str, Any] = {
        "id": record.id,
        "model_name": wanted.model,
        "min_replicas": wanted.min_replicas,
        "max_replicas": wanted.max_replicas,
        "unsatisfiable_ticks": state.unsatisfiable_ticks,
        "created_at": show_time(record.created_at),
        "updated_at": show_time(record.updated_at),
    }
    optional = {
        # JSON text, not an object: LocalAI's clients expect it so.
        "node_selector": msgspec.json.encode(dict(wanted.selector)).decode() if wanted.selector else None,
        "spread_all": wanted.spread_all,
        "route_policy": wanted.route_policy,
        "balance_abs_threshold": wanted.balance_abs_threshold,
        "balance_rel_threshold": wanted.balance_rel_threshold,
        "unsatisfiable_until": show_time(state.unsatisfiable_until),
        "unsatisfiable_reason": state.unsatisfiable_reason,
    }
    return found | {name: value for name, value in optional.items() if value}


async def _possible(stores: Stores, desk: Desk, wanted: Scheduling) -> dict[str, Any]:
    """How many of the replicas that are wanted fit now, and what keeps the others out; nothing when nobody can say."""
    if wanted.spread_all:
        count = len(pick_serving(await stores.nodes.read_all(), wanted.selector))
        return {"possible_replicas": count} | ({} if count else {"possible_reason": why_nowhere(wanted.selector)})
    if not wanted.min_replicas:
        return {}
    try:
        async with asyncio.timeout(FIT_WITHIN_S):
            fit = await desk.fit(wanted.model, wanted.min_replicas)
    except (CorralError, TimeoutError) as error:
        log.info("scheduling.fit_unknown", model=wanted.model, error=str(error))
        return {}
    return {"possible_replicas": fit.replicas} | ({"possible_reason": fit.reason} if fit.reason else {})


def scheduling_routes(stores: Stores, ids: Ids, desk: Desk, changed: Callable[[], Awaitable[None]]) -> APIRouter:
    """Before the routes of nodes, one of whose ids `scheduling` would be."""
    router = APIRouter(prefix="/api/nodes/scheduling", tags=["scheduling"])

    @router.get("")
    async def list_scheduling() -> Response:
        return MsgspecJson([view_scheduling(record) for record in await stores.scheduling.read_all()])

    @router.post("")
    async def save_scheduling(wanted: SchedulingRequest, actor: Actor) -> Response:
        stored = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        record = await stores.scheduling.save(wanted.merged(stored.get(wanted.model_name)), actor=actor, ids=ids)
        await changed()
        return MsgspecJson(view_scheduling(record) | await _possible(stores, desk, record.scheduling))

    @router.get("/{model:path}")
    async def show_scheduling(model: str) -> Response:
        return MsgspecJson(view_scheduling(await stores.scheduling.read(model)))

    @router.delete("/{model:path}", status_code=204)
    async def delete_scheduling(model: str, actor: Actor) -> Response:
        await stores.scheduling.delete(model, actor=actor)
        await changed()
        return Response(status_code=204)

    return router
