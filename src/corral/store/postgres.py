"""PostgreSQL over asyncpg: a bounded pool, read-committed transactions with explicit row locks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
import structlog

from corral.core.errors import OutcomeUnknown, Unavailable
from corral.store.database import CONFLICT_TRIES, Body, Row, StoreConflict, conflict_delay_s
from corral.store.migrations import apply_migrations
from corral.system import Clock, Ids

T = TypeVar("T")
log = structlog.get_logger()

ACQUIRE_WITHIN_S = 5.0
STATEMENT_WITHIN_S = 10.0
HELD_LONG_S = 1.0
MIGRATION_LOCK = 0x0C0_22A1

_CONFLICTS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    # Two transactions inserted the same key at once; the second try sees the first one's row.
    asyncpg.UniqueViolationError,
)
_UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)

_NOW_MS = (
    "CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE AS"
    " $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$"
)


class _PostgresTx:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self._connection.fetch(sql, *args)
        return rows

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        row: Row | None = await self._connection.fetchrow(sql, *args)
        return row

    async def execute(self, sql: str, *args: Any) -> int:
        tag = await self._connection.execute(sql, *args)
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        await self._connection.executemany(sql, list(rows))


class PostgresDatabase:
    dialect = "postgresql"

    def __init__(self, pool: Any, location: str, *, clock: Clock, ids: Ids) -> None:
        self._pool = pool
        self.location = location
        self._clock = clock
        self._ids = ids

    @classmethod
    async def connect(cls, url: str, location: str, *, connections: int, clock: Clock, ids: Ids) -> "PostgresDatabase":
        try:
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=connections,
                command_timeout=STATEMENT_WITHIN_S,
                timeout=ACQUIRE_WITHIN_S,
                server_settings={"application_name": "corral"},
            )
        except (*_UNREACHABLE, asyncpg.PostgresError, ValueError) as error:
            raise Unavailable(
                f"cannot reach the store {location}: {str(error) or type(error).__name__}."
                " Check that PostgreSQL runs there, and the name and password in the setting `store`."
            ) from error
        return cls(pool, location, clock=clock, ids=ids)

    async def read(self, body: Body[T]) -> T:
        try:
            async with self._pool.acquire(timeout=ACQUIRE_WITHIN_S) as connection:
                return await body(_PostgresTx(connection))
        except _UNREACHABLE as error:
            raise self._unreachable(error) from error

    async def write(self, body: Body[T]) -> T:
        async def transaction(connection: Any) -> T:
            return await body(_PostgresTx(connection))

        last: Exception | None = None
        for attempt in range(CONFLICT_TRIES):
            try:
                return await self._write_once(transaction)
            except _CONFLICTS as error:
                last = error
                await asyncio.sleep(conflict_delay_s(attempt, draw=self._ids.draw()))
        raise StoreConflict(f"others kept changing the same rows of {self.location}; try again ({last})") from last

    async def _write_once(self, transaction: Callable[[Any], Awaitable[T]]) -> T:
        committing = False
        try:
            async with self._pool.acquire(timeout=ACQUIRE_WITHIN_S) as connection:
                began = self._clock.monotonic_s()
                await connection.execute("BEGIN")
                try:
                    result = await transaction(connection)
                    committing = True
                    await connection.execute("COMMIT")
                except BaseException:
                    await self._rollback(connection)
                    raise
                held_s = self._clock.monotonic_s() - began
        except _UNREACHABLE as error:
            if committing:
                raise OutcomeUnknown(
                    f"the connection to {self.location} was lost during a commit; it may or may not have happened"
                ) from error
            raise self._unreachable(error) from error
        if held_s > HELD_LONG_S:
            log.warning("store.held_long", held_s=round(held_s, 3))
        return result

    async def _rollback(self, connection: Any) -> None:
        # A connection that is gone has rolled back by itself; the error that brought us here is the one to tell.
        with suppress(*_UNREACHABLE):
            if connection.is_in_transaction():
                await connection.execute("ROLLBACK")

    def _unreachable(self, error: Exception) -> Unavailable:
        what = str(error) or type(error).__name__
        return Unavailable(f"the store {self.location} does not answer: {what}. Nothing was changed.")

    async def migrate(self) -> None:
        async def body(tx: Any) -> list[str]:
            # Held to the end of this transaction: of several frontends that start at once, one migrates.
            await tx.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
            if await tx.fetch_one("SELECT 1 AS found FROM pg_proc WHERE proname = 'now_ms'") is None:
                await tx.execute(_NOW_MS)
            return [migration.name for migration in await apply_migrations(tx, self.dialect)]

        applied = await self.write(body)
        if applied:
            log.info("store.migrated", store=self.location, applied=applied)

    async def close(self) -> None:
        with suppress(*_UNREACHABLE):
            await asyncio.wait_for(self._pool.close(), timeout=5.0)
