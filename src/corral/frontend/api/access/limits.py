"""Limits of API keys as the API shows them: `/api/key-defaults`, and what a key has used of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from corral.core.access.calendar import DAY_MS, ends_in_ms
from corral.core.access.key_limits import LIMIT_MAX, KeyLimits, LimitsInForce, Priority
from corral.core.access.key_meter import KeyMeter
from corral.core.errors import NotFound
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.times import time_of
from corral.frontend.auth.rules import Authorizer
from corral.store.serving.usage import RETENTION_DAYS
from corral.store.stores import Stores

Limit = Annotated[int | None, Field(ge=0, le=LIMIT_MAX)]


class LimitsView(BaseModel):
    """Null: the default applies. 0: no limit, whatever the default."""

    requests_per_minute: Limit = None
    tokens_per_minute: Limit = None
    concurrent_requests: Limit = None
    tokens_per_day: Limit = None
    tokens_per_month: Limit = None
    priority: Priority | None = None

    @classmethod
    def of(cls, limits: KeyLimits) -> "LimitsView":
        return cls(**asdict(limits))

    def given(self) -> dict[str, Any]:
        """The limits that the client sent, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class LimitsInForceView(BaseModel):
    """0: no limit."""

    requests_per_minute: int
    tokens_per_minute: int
    concurrent_requests: int
    tokens_per_day: int
    tokens_per_month: int
    priority: Priority

    @classmethod
    def of(cls, limits: LimitsInForce) -> "LimitsInForceView":
        return cls(**asdict(limits))


class UsedNow(BaseModel):
    """What counts towards the limits now, on all frontends, as far as this one knows."""

    requests_per_minute: int
    tokens_per_minute: int
    concurrent_requests: int
    tokens_per_day: int
    tokens_per_month: int


class DayUsage(BaseModel):
    day: date
    requests: int
    tokens: int


class KeyUsageView(BaseModel):
    id: str
    name: str
    limits: LimitsInForceView
    used: UsedNow
    day_ends_at: datetime
    month_ends_at: datetime
    days: list[DayUsage]
    """Oldest first, without days on which the key was not used."""


class Meters(Protocol):
    def find(self, key_id: str) -> KeyMeter | None: ...


def limit_routes(
    stores: Stores, authorizer: Authorizer, meters: Meters, notify: Callable[[str], Awaitable[None]], *, kind: str
) -> APIRouter:
    """`kind`: of the notification that keys changed."""
    router = APIRouter(tags=["access"])

    @router.get("/api/key-defaults")
    async def show_key_defaults() -> LimitsView:
        """Shows the limits of keys that have none of their own."""
        return LimitsView.of(await stores.access.read_default_limits())

    @router.patch("/api/key-defaults")
    async def edit_key_defaults(body: LimitsView, actor: Actor) -> LimitsView:
        """Changes the limits of keys that have none of their own; limits that are absent stay as they are. Every
        frontend applies it within five seconds."""
        changed = await stores.access.edit_default_limits(body.given(), actor=actor)
        authorizer.forget()
        await notify(kind)
        return LimitsView.of(changed)

    @router.get("/api/keys/{id_or_name}/usage")
    async def show_key_usage(
        id_or_name: str, days: Annotated[int, Query(ge=1, le=RETENTION_DAYS)] = 30
    ) -> KeyUsageView:
        """Shows what a key has used, day by day and of its limits."""
        keys = [key for key in await stores.access.read_keys() if id_or_name in (key.id, key.name)]
        if not keys:
            raise NotFound(f"there is no key {id_or_name!r}; list the keys with `corral keys list`")
        key = min(keys, key=lambda key: (key.id != id_or_name, key.revoked_at is not None))
        rows = [row for row in await stores.usage.read(days=days, by=["day", "key_id"]) if row.key_id == key.id]
        sums = await stores.usage.read_key_tokens()
        today, earlier = sums.today.get(key.id, 0), (sums.earlier or {}).get(key.id, 0)
        meter = meters.find(key.id)
        day_ms, month_ms = ends_in_ms(sums.now_ms)
        return KeyUsageView(
            id=key.id,
            name=key.name,
            limits=LimitsInForceView.of(key.in_force),
            used=UsedNow(
                requests_per_minute=meter.requests if meter else 0,
                tokens_per_minute=meter.tokens if meter else 0,
                concurrent_requests=meter.open + meter.open_elsewhere if meter else 0,
                tokens_per_day=max(today, meter.day_tokens if meter else 0),
                tokens_per_month=max(today + earlier, meter.month_tokens if meter else 0),
            ),
            day_ends_at=time_of(sums.now_ms + day_ms),
            month_ends_at=time_of(sums.now_ms + month_ms),
            days=[
                DayUsage(
                    day=datetime.fromtimestamp((row.day or 0) * DAY_MS / 1000, UTC).date(),
                    requests=row.used.requests,
                    tokens=row.used.tokens_in + row.used.tokens_out,
                )
                for row in rows
            ],
        )

    return router
