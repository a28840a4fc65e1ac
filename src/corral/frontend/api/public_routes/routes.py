"""`/api/routes`: names for clients that lead to several models, with weights and an order of fallbacks."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.core.replicas.public_routes import TARGETS_MAX, TIERS_MAX, WEIGHT_MAX, PublicRoute, RouteTarget
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.times import time_of
from corral.store.serving.public_routes import StoredRoute
from corral.store.stores import Stores


class TargetBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: Annotated[str, Field(min_length=1, max_length=300)]
    """A model, or an alias of one."""
    weight: Annotated[int, Field(ge=1, le=WEIGHT_MAX)] = 1
    """Its share of the requests, relative to the other models of its tier."""


class RouteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tiers: Annotated[
        list[Annotated[list[TargetBody], Field(min_length=1, max_length=TARGETS_MAX)]],
        Field(min_length=1, max_length=TIERS_MAX),
    ]
    """The first is preferred. Each next one gets requests while no model before it can serve them."""
    sticky: bool = False
    """Requests of one session (`X-Corral-Session`) go to the same model of a tier, as long as it serves."""


class RouteTargetView(BaseModel):
    model: str
    weight: int
    ready: int
    """Its replicas and attached endpoints that can get requests now."""


class RouteView(BaseModel):
    name: str
    tiers: list[list[RouteTargetView]]
    sticky: bool
    created_at: datetime
    changed_at: datetime
    changed_by: str


def _view(stored: StoredRoute, ready: Mapping[str, int]) -> RouteView:
    route = stored.route
    return RouteView(
        name=route.name,
        tiers=[
            [RouteTargetView(model=one.model, weight=one.weight, ready=ready.get(one.model, 0)) for one in tier]
            for tier in route.tiers
        ],
        sticky=route.is_sticky,
        created_at=time_of(stored.created_at),
        changed_at=time_of(stored.changed_at),
        changed_by=stored.changed_by,
    )


def public_route_routes(stores: Stores, notify_routes: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(prefix="/api/routes", tags=["routes"])

    async def count_ready() -> Mapping[str, int]:
        return {route.model: len(route.replicas) for route in (await stores.replicas.read_routes()).routes}

    @router.get("")
    async def list_routes() -> list[RouteView]:
        """Lists all routes."""
        ready = await count_ready()
        return [_view(one, ready) for one in await stores.public_routes.read_all()]

    @router.put("/{name:path}")
    async def save_route(name: str, body: RouteBody, actor: Actor) -> RouteView:
        """Adds a route, or replaces the one of this name."""
        tiers = tuple(tuple(RouteTarget(one.model, one.weight) for one in tier) for tier in body.tiers)
        route = PublicRoute(name=name, tiers=tiers, is_sticky=body.sticky)
        stored = await stores.public_routes.save(route, actor=actor)
        await notify_routes()
        return _view(stored, await count_ready())

    @router.delete("/{name:path}", status_code=204)
    async def delete_route(name: str, actor: Actor) -> Response:
        """Deletes a route. Its models stay."""
        await stores.public_routes.delete(name, actor=actor)
        await notify_routes()
        return Response(status_code=204)

    return router
