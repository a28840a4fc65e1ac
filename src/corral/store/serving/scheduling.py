"""Scheduling of models as set by administrators, and whether the cluster has capacity for it."""

from dataclasses import dataclass

import msgspec

from corral.core.errors import NotFound
from corral.core.replicas.scaling import Scheduling
from corral.store.access.audit_events import append_event
from corral.store.engine.counters import ROUTES, bump_counter
from corral.store.engine.database import Database, Row, Tx
from corral.system import Ids

_decode_selector = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingState:
    acted_at: int | None = None
    unsatisfiable_until: int | None = None
    unsatisfiable_ticks: int = 0
    unsatisfiable_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingRecord:
    id: str
    scheduling: Scheduling
    state: ScalingState
    created_at: int
    updated_at: int


_SELECT = (
    "SELECT s.*, t.acted_at, t.unsatisfiable_until, t.unsatisfiable_ticks, t.unsatisfiable_reason"
    " FROM scheduling s LEFT JOIN scaling_states t ON t.model = s.model"
)


def _record(row: Row) -> SchedulingRecord:
    return SchedulingRecord(
        id=row["id"],
        scheduling=Scheduling(
            model=row["model"],
            selector=_decode_selector(row["selector"]),
            min_replicas=row["min_replicas"],
            max_replicas=row["max_replicas"],
            spread_all=bool(row["spread_all"]),
            route_policy=row["route_policy"],
            balance_abs_threshold=row["balance_abs_threshold"],
            balance_rel_threshold=row["balance_rel_threshold"],
        ),
        state=ScalingState(
            acted_at=row["acted_at"],
            unsatisfiable_until=row["unsatisfiable_until"],
            unsatisfiable_ticks=row["unsatisfiable_ticks"] or 0,
            unsatisfiable_reason=row["unsatisfiable_reason"] or "",
        ),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


async def read_all_scheduling(tx: Tx) -> list[SchedulingRecord]:
    return [_record(row) for row in await tx.fetch(f"{_SELECT} ORDER BY s.model")]


async def find_scheduling(tx: Tx, model: str) -> SchedulingRecord | None:
    row = await tx.fetch_one(f"{_SELECT} WHERE s.model = $1", model)
    return _record(row) if row else None


async def record_unsatisfiable(tx: Tx, model: str, reason: str, *, for_ms: int) -> None:
    await tx.execute(
        "INSERT INTO scaling_states (model, unsatisfiable_until, unsatisfiable_ticks, unsatisfiable_reason)"
        " VALUES ($1, now_ms() + $2, 1, $3) ON CONFLICT (model) DO UPDATE SET"
        " unsatisfiable_until = excluded.unsatisfiable_until, unsatisfiable_reason = excluded.unsatisfiable_reason,"
        " unsatisfiable_ticks = scaling_states.unsatisfiable_ticks + 1",
        model,
        for_ms,
        reason,
    )


async def clear_unsatisfiable(tx: Tx, model: str | None = None) -> None:
    """Of one model, or of all after new capacity became available."""
    await tx.execute(
        "UPDATE scaling_states SET unsatisfiable_until = NULL, unsatisfiable_ticks = 0, unsatisfiable_reason = ''"
        " WHERE unsatisfiable_until IS NOT NULL AND (CAST($1 AS TEXT) IS NULL OR model = $1)",
        model,
    )


class SchedulingStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[SchedulingRecord]:
        return await self._database.read(read_all_scheduling)

    async def read(self, model: str) -> SchedulingRecord:
        async def body(tx: Tx) -> SchedulingRecord:
            record = await find_scheduling(tx, model)
            if record is None:
                raise NotFound(f"the model {model!r} has no scheduling; set it with `corral models scale`")
            return record

        return await self._database.read(body)

    async def save(self, scheduling: Scheduling, *, actor: str, ids: Ids) -> SchedulingRecord:
        identity = ids.uuid()

        async def body(tx: Tx) -> SchedulingRecord:
            before = await find_scheduling(tx, scheduling.model)
            if before is not None and before.scheduling == scheduling:
                return before
            selector = msgspec.json.encode(dict(scheduling.selector), order="sorted").decode()
            await tx.execute(
                "INSERT INTO scheduling (model, id, selector, min_replicas, max_replicas, spread_all, route_policy,"
                " balance_abs_threshold, balance_rel_threshold, created_at, updated_at)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now_ms(), now_ms())"
                " ON CONFLICT (model) DO UPDATE SET selector = excluded.selector,"
                " min_replicas = excluded.min_replicas, max_replicas = excluded.max_replicas,"
                " spread_all = excluded.spread_all, route_policy = excluded.route_policy,"
                " balance_abs_threshold = excluded.balance_abs_threshold,"
                " balance_rel_threshold = excluded.balance_rel_threshold, updated_at = excluded.updated_at",
                scheduling.model,
                identity,
                selector,
                scheduling.min_replicas,
                scheduling.max_replicas,
                scheduling.spread_all,
                scheduling.route_policy,
                scheduling.balance_abs_threshold,
                scheduling.balance_rel_threshold,
            )
            await clear_unsatisfiable(tx, scheduling.model)
            detail = {"min": scheduling.min_replicas, "max": scheduling.max_replicas, "all": scheduling.spread_all}
            await append_event(tx, actor=actor, action="model.scheduled", subject=scheduling.model, detail=detail)
            await bump_counter(tx, ROUTES)
            record = await find_scheduling(tx, scheduling.model)
            assert record is not None
            return record

        return await self._database.write(body)

    async def delete(self, model: str, *, actor: str) -> None:
        async def body(tx: Tx) -> None:
            if await tx.execute("DELETE FROM scheduling WHERE model = $1", model):
                await tx.execute("DELETE FROM scaling_states WHERE model = $1", model)
                await append_event(tx, actor=actor, action="model.unscheduled", subject=model)
                await bump_counter(tx, ROUTES)

        await self._database.write(body)

    async def note_action(self, model: str) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "INSERT INTO scaling_states (model, acted_at, unsatisfiable_ticks, unsatisfiable_reason)"
                " VALUES ($1, now_ms(), 0, '') ON CONFLICT (model) DO UPDATE SET acted_at = excluded.acted_at",
                model,
            )

        await self._database.write(body)
