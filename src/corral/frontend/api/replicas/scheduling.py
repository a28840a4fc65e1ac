"""`/api/nodes/scheduling`: how many replicas of a model, and on which nodes. LocalAI's shapes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel, StrictBool, StrictStr

from corral.controller.loads.coordinator import LoadCoordinator
from corral.core.errors import Conflict, CorralError
from corral.core.nodes.targets import describe_no_match, pick_serving
from corral.core.replicas.attached import NOT_STARTED
from corral.core.replicas.scaling import Scheduling, check_prefix_match
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.times import time_of
from corral.frontend.http.json_response import SparseJson
from corral.store.serving.scheduling import SchedulingRecord
from corral.store.stores import Stores
from corral.system import Ids

log = structlog.get_logger()

FIT_WITHIN_S = 5.0


class SchedulingRequest(BaseModel):
    """Replaces the stored scheduling. The last four fields keep their stored value when they are left out."""

    model_name: str
    node_selector: Mapping[str, StrictStr] | None = None
    min_replicas: int = 0
    max_replicas: int = 0
    spread_all: StrictBool = False
    route_policy: str | None = None
    balance_abs_threshold: int | None = None
    balance_rel_threshold: float | None = None
    min_prefix_match: float | None = None

    def merged(self, stored: Scheduling | None) -> Scheduling:
        check_prefix_match(self.min_prefix_match)
        requested = Scheduling(
            model=self.model_name,
            selector=dict(self.node_selector or {}),
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            spread_all=self.spread_all,
        )
        kept = stored or requested
        absolute, relative = self.balance_abs_threshold, self.balance_rel_threshold
        return replace(
            requested,
            route_policy=kept.route_policy if self.route_policy is None else self.route_policy,
            balance_abs_threshold=kept.balance_abs_threshold if absolute is None else absolute,
            balance_rel_threshold=kept.balance_rel_threshold if relative is None else relative,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingView:
    """Answers leave out fields that have their default, as LocalAI does."""

    id: str
    model_name: str
    min_replicas: int
    max_replicas: int
    unsatisfiable_ticks: int
    created_at: datetime
    updated_at: datetime
    node_selector: str | None = None
    """JSON text, not an object: LocalAI's clients expect it so."""
    spread_all: bool | None = None
    route_policy: str | None = None
    balance_abs_threshold: int | None = None
    balance_rel_threshold: float | None = None
    unsatisfiable_until: datetime | None = None
    unsatisfiable_reason: str | None = None
    possible_replicas: int | None = None
    """Only after a change: how many of the desired replicas fit now."""
    possible_reason: str | None = None
    """Why the others do not fit."""


def view_scheduling(record: SchedulingRecord) -> SchedulingView:
    desired, state = record.scheduling, record.state
    return SchedulingView(
        id=record.id,
        model_name=desired.model,
        min_replicas=desired.min_replicas,
        max_replicas=desired.max_replicas,
        unsatisfiable_ticks=state.unsatisfiable_ticks,
        created_at=time_of(record.created_at),
        updated_at=time_of(record.updated_at),
        node_selector=msgspec.json.encode(dict(desired.selector)).decode() if desired.selector else None,
        spread_all=desired.spread_all or None,
        route_policy=desired.route_policy or None,
        balance_abs_threshold=desired.balance_abs_threshold or None,
        balance_rel_threshold=desired.balance_rel_threshold or None,
        unsatisfiable_until=time_of(state.unsatisfiable_until or None),
        unsatisfiable_reason=state.unsatisfiable_reason or None,
    )


async def _check_started(stores: Stores, body: SchedulingRequest) -> None:
    """Raises Conflict if replicas are desired of a model for which nothing can be started."""
    if not body.min_replicas and not body.spread_all:
        return
    found = next((model for model in await stores.models.read_all() if model.name == body.model_name), None)
    if found is not None and found.config.is_attached:
        raise Conflict(f"{found.name} has no replicas to scale: {NOT_STARTED}")


async def _with_fit(
    view: SchedulingView, stores: Stores, loads: LoadCoordinator, desired: Scheduling
) -> SchedulingView:
    """Adds how many of the desired replicas fit now, and why the others do not; nothing when that is unknown."""
    if desired.spread_all:
        count = len(pick_serving(await stores.nodes.read_all(), desired.selector))
        reason = None if count else describe_no_match(desired.selector)
        return replace(view, possible_replicas=count, possible_reason=reason)
    if not desired.min_replicas:
        return view
    try:
        async with asyncio.timeout(FIT_WITHIN_S):
            fit = await loads.fit(desired.model, desired.min_replicas)
    except (CorralError, TimeoutError) as error:
        log.info("scheduling.fit_unknown", model=desired.model, error=str(error))
        return view
    return replace(view, possible_replicas=fit.replicas, possible_reason=fit.reason or None)


def scheduling_routes(
    stores: Stores, ids: Ids, loads: LoadCoordinator, notify_routes: Callable[[], Awaitable[None]]
) -> APIRouter:
    """Goes before the routes of nodes, which would take `scheduling` for the id of a node."""
    router = APIRouter(prefix="/api/nodes/scheduling", tags=["scheduling"])

    @router.get("", response_model=list[SchedulingView])
    async def list_scheduling() -> Response:
        """Lists the scheduling of all models."""
        return SparseJson([view_scheduling(record) for record in await stores.scheduling.read_all()])

    @router.post("", response_model=SchedulingView)
    async def save_scheduling(body: SchedulingRequest, actor: Actor) -> Response:
        """Sets how many replicas a model has and on which nodes. The answer shows how many fit now."""
        stored = {record.scheduling.model: record.scheduling for record in await stores.scheduling.read_all()}
        await _check_started(stores, body)
        record = await stores.scheduling.save(body.merged(stored.get(body.model_name)), actor=actor, ids=ids)
        await notify_routes()
        return SparseJson(await _with_fit(view_scheduling(record), stores, loads, record.scheduling))

    @router.get("/{model:path}", response_model=SchedulingView)
    async def show_scheduling(model: str) -> Response:
        """Shows the scheduling of a model."""
        return SparseJson(view_scheduling(await stores.scheduling.read(model)))

    @router.delete("/{model:path}", status_code=204)
    async def delete_scheduling(model: str, actor: Actor) -> Response:
        """Deletes the scheduling of a model, which is then loaded on demand."""
        await stores.scheduling.delete(model, actor=actor)
        await notify_routes()
        return Response(status_code=204)

    return router
