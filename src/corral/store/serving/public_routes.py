"""Public routes: names for clients that lead to several models."""

from dataclasses import dataclass

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.replicas.public_routes import PublicRoute, RouteTarget, check_public_route
from corral.core.suggestions import near_names
from corral.store.access.audit_events import append_event
from corral.store.engine.counters import MODELS, ROUTES, bump_counter, lock_counter
from corral.store.engine.database import Database, Tx
from corral.store.serving.models import StoredModel, read_models
from corral.store.serving.public_route_rows import encode_tiers, read_public_routes, route_of

ROUTES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRoute:
    route: PublicRoute
    created_at: int
    changed_at: int
    changed_by: str


async def _read_all(tx: Tx) -> list[StoredRoute]:
    return [
        StoredRoute(
            route=route_of(row),
            created_at=row["created_at"],
            changed_at=row["changed_at"],
            changed_by=row["changed_by"],
        )
        for row in await tx.fetch("SELECT * FROM public_routes ORDER BY name")
    ]


class PublicRouteStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[StoredRoute]:
        """Sorted by name."""
        return await self._database.read(_read_all)

    async def save(self, route: PublicRoute, *, actor: str) -> StoredRoute:
        """Adds a route, or replaces the one of this name. An alias of a model stands for the model."""
        check_public_route(route)

        async def body(tx: Tx) -> StoredRoute:
            # Names are unique among models, aliases and routes together.
            await lock_counter(tx, MODELS)
            models = await read_models(tx)
            resolved = _resolve(route, models)
            check_public_route(resolved)
            _check_name(resolved, models)
            before = await read_public_routes(tx)
            is_new = route.name not in {one.name for one in before}
            if is_new and len(before) >= ROUTES_MAX:
                raise Conflict(f"there are already {ROUTES_MAX} routes, the most that are allowed")
            await tx.execute(
                "INSERT INTO public_routes (name, tiers, sticky, created_at, changed_at, changed_by)"
                " VALUES ($1, $2, $3, now_ms(), now_ms(), $4) ON CONFLICT (name) DO UPDATE SET tiers = excluded.tiers,"
                " sticky = excluded.sticky, changed_at = excluded.changed_at, changed_by = excluded.changed_by",
                resolved.name,
                encode_tiers(resolved),
                resolved.is_sticky,
                actor,
            )
            await bump_counter(tx, ROUTES)
            tiers = [{one.model: one.weight for one in tier} for tier in resolved.tiers]
            action = "route.added" if is_new else "route.changed"
            detail = {"tiers": tiers, "sticky": resolved.is_sticky}
            await append_event(tx, actor=actor, action=action, subject=resolved.name, detail=detail)
            return next(one for one in await _read_all(tx) if one.route.name == resolved.name)

        return await self._database.write(body)

    async def delete(self, name: str, *, actor: str) -> None:
        async def body(tx: Tx) -> None:
            await lock_counter(tx, MODELS)
            if not await tx.execute("DELETE FROM public_routes WHERE name = $1", name):
                near = near_names(name, [one.name for one in await read_public_routes(tx)])
                hint = f"did you mean {', '.join(near)}?" if near else "list the routes with `corral routes list`"
                raise NotFound(f"there is no route {name!r}; {hint}")
            await bump_counter(tx, ROUTES)
            await append_event(tx, actor=actor, action="route.deleted", subject=name)

        await self._database.write(body)


def _resolve(route: PublicRoute, models: list[StoredModel]) -> PublicRoute:
    """With the models' own names. Raises InvalidInput."""
    names = {model.name: model.alias_of or model.name for model in models}
    for model in models:
        names |= dict.fromkeys(model.config.aliases, model.name)
    unknown = [one.model for one in route.targets if one.model not in names]
    if unknown:
        near = near_names(unknown[0], list(names))
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `corral models list` lists all models"
        raise InvalidInput(f"there is no model {unknown[0]!r}{hint}")
    tiers = tuple(tuple(RouteTarget(names[one.model], one.weight) for one in tier) for tier in route.tiers)
    return PublicRoute(name=route.name, tiers=tiers, is_sticky=route.is_sticky)


def _check_name(route: PublicRoute, models: list[StoredModel]) -> None:
    for model in models:
        taken = {model.name, *model.config.aliases, *model.newest.config.aliases}
        own = model.alias_of or model.name
        if route.name in taken and own not in route.models:
            raise Conflict(
                f"the name {route.name!r} is taken by the model {model.name!r}; a route may have it only if it leads to"
                " that model"
            )
