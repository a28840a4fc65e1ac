"""PostgreSQL over asyncpg: a bounded pool, read-committed transactions with explicit row locks."""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
import structlog

from corral.core.errors import InvalidInput, OutcomeUnknown, Unavailable
from corral.store.engine.database import CONFLICT_RETRIES, CONFLICT_TRIES, AfterMigration, Body, Row, StoreConflict
from corral.store.engine.migrations import migrate_schema
from corral.system import Clock, Ids

T = TypeVar("T")
log = structlog.get_logger()

ACQUIRE_WITHIN_S = 5.0
STATEMENT_WITHIN_S = 10.0
# The server ends a slow statement itself; the client's own limit is for a server that does not answer.
GRACE_S = 2.0
# A frontend that freezes inside a transaction must not hold its row locks for long.
IDLE_IN_TRANSACTION_S = 5.0
SLOW_TRANSACTION_S = 1.0
MIGRATION_LOCK = 0x0C0_22A1

_CONFLICTS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    # Two transactions inserted the same key, or one deleted what the other refers to; the next attempt sees it.
    asyncpg.IntegrityConstraintViolationError,
)
# The statement or its use is wrong; the server is fine.
_MISTAKES = (asyncpg.SyntaxOrAccessError, asyncpg.InFailedSQLTransactionError)


class _DriverFailed(Exception):
    """An internal error of the driver, mostly because a connection was lost in use. The server reported nothing."""


# Everything that a call of the driver can raise, see `_ask`.
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, _DriverFailed)
# Errors of a connection that was lost while idle in the pool.
_DIED = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    _DriverFailed,
)

_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITE = "BEGIN"
_NOW_MS = (
    "CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE AS"
    " $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$"
)


async def _skip_reset(_connection: object) -> None:
    """No setting, lock or cursor outlives a transaction, so a reset would only cost a round trip. Open transactions are
    rolled back before (`_abandon`)."""


async def _ask(answer: Awaitable[T]) -> T:
    """Wraps every call of the driver, so that its errors are of known types. A connection that is lost during a call
    shows as `InternalClientError`, as uvloop's RuntimeError of a closed transport, or as an AttributeError inside the
    driver, depending on its state."""
    try:
        return await answer
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):  # TimeoutError is an OSError
        raise
    except Exception as error:  # asyncpg lets errors of its own internals through
        raise _DriverFailed(f"{type(error).__name__}: {error}") from error


def _is_mistake(error: BaseException) -> bool:
    return isinstance(error, _MISTAKES) and not isinstance(error, asyncpg.InsufficientPrivilegeError)


class _PostgresTx:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await _ask(self._connection.fetch(sql, *args))
        return rows

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        row: Row | None = await _ask(self._connection.fetchrow(sql, *args))
        return row

    async def execute(self, sql: str, *args: Any) -> int:
        tag: str = await _ask(self._connection.execute(sql, *args))
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        await _ask(self._connection.executemany(sql, list(rows)))


class PostgresDatabase:
    dialect = "postgresql"

    def __init__(self, pool: Any, location: str, *, clock: Clock, ids: Ids, acquire_within_s: float) -> None:
        self._pool = pool
        self.location = location
        self._clock = clock
        self._ids = ids
        self._acquire_within_s = acquire_within_s

    @classmethod
    async def connect(
        cls,
        url: str,
        location: str,
        *,
        connections: int,
        clock: Clock,
        ids: Ids,
        acquire_within_s: float = ACQUIRE_WITHIN_S,
        statement_within_s: float = STATEMENT_WITHIN_S,
    ) -> "PostgresDatabase":
        try:
            pool = await _ask(
                asyncpg.create_pool(
                    url,
                    min_size=1,
                    max_size=connections,
                    command_timeout=statement_within_s + GRACE_S,
                    timeout=acquire_within_s,
                    reset=_skip_reset,
                    server_settings={
                        "application_name": "corral",
                        "statement_timeout": str(int(statement_within_s * 1000)),
                        "idle_in_transaction_session_timeout": str(int(IDLE_IN_TRANSACTION_S * 1000)),
                    },
                )
            )
        except (*_FAILURES, ValueError) as error:
            raise Unavailable(
                f"cannot connect to the store {location}: {str(error) or type(error).__name__}."
                " Check that PostgreSQL is running there, and check user and password in the setting `store`."
            ) from error
        return cls(pool, location, clock=clock, ids=ids, acquire_within_s=acquire_within_s)

    async def read(self, body: Body[T]) -> T:
        return await self._run_once(_BEGIN_READ, body)

    async def read_large(self, body: Body[T]) -> T:
        return await self.read(body)

    async def write(self, body: Body[T]) -> T:
        last: Exception | None = None
        for attempt in range(CONFLICT_TRIES):
            try:
                return await self._run_once(_BEGIN_WRITE, body)
            except _CONFLICTS as error:
                last = error
                await asyncio.sleep(CONFLICT_RETRIES.delay_s(attempt + 1, self._ids.draw()))
        raise StoreConflict(
            f"the transaction on {self.location} conflicted with other transactions {CONFLICT_TRIES} times;"
            f" try again ({last})"
        ) from last

    async def _run_once(self, begin: str, body: Body[T]) -> T:
        committing = False
        try:
            connection = await self._begin(begin)
            began = self._clock.monotonic_s()
            try:
                result = await body(_PostgresTx(connection))
                committing = begin == _BEGIN_WRITE
                ended = await _ask(connection.execute("COMMIT"))
            except BaseException as error:  # also when cancelled, the transaction ends
                await self._abandon(connection, error)
                raise
            finally:
                await self._give_back(connection)
            held_s = self._clock.monotonic_s() - began
        except asyncpg.DataError as error:
            raise InvalidInput(f"cannot store this value: {error}") from error
        except _CONFLICTS as error:
            if begin == _BEGIN_WRITE:
                raise  # the server has rolled it back, even if it reports so at the commit
            raise self._unreachable(error) from error
        except _FAILURES as error:
            if _is_mistake(error):
                raise
            if committing:
                raise OutcomeUnknown(
                    f"the connection to {self.location} was lost during a commit; the change may or may not be stored"
                ) from error
            raise self._unreachable(error) from error
        if ended != "COMMIT":
            # If a statement of the transaction failed, PostgreSQL answers the commit with a rollback, not an error.
            raise RuntimeError("a transaction continued after one of its statements failed; nothing was written")
        if held_s > SLOW_TRANSACTION_S:
            log.warning("store.transaction_slow", took_s=round(held_s, 3))
        return result

    async def _begin(self, how: str) -> Any:
        """Return a connection with an open transaction.

        Connections that were lost in the pool, for example by a restart of the server, are all replaced, once. Nothing
        was sent on them yet, so nothing can have happened."""
        try:
            return await self._begin_on_any(how)
        except TimeoutError:
            raise
        except _DIED:
            await self._pool.expire_connections()
            return await self._begin_on_any(how)

    async def _begin_on_any(self, how: str) -> Any:
        try:
            connection = await _ask(self._pool.acquire(timeout=self._acquire_within_s))
        except TimeoutError:
            raise TimeoutError(f"no connection became free within {self._acquire_within_s:g} s") from None
        try:
            await _ask(connection.execute(how))
        except BaseException as error:  # also when cancelled, the pool gets its connection back
            await self._abandon(connection, error)
            await self._give_back(connection)
            raise
        return connection

    async def _abandon(self, connection: Any, error: BaseException) -> None:
        """Roll back. The caller reports the original error."""
        if isinstance(error, (TimeoutError, _DriverFailed)):
            # The server does not answer: a rollback would only wait once more.
            connection.terminate()
            return
        try:
            if connection.is_in_transaction():
                await _ask(connection.execute("ROLLBACK"))
        except _FAILURES as failed:
            # The server rolls back when a connection is lost.
            log.info("store.connection_lost", store=self.location, error=str(failed) or type(failed).__name__)
            connection.terminate()

    async def _give_back(self, connection: Any) -> None:
        """Ignores errors: the transaction is over, and the pool replaces a connection that it cannot take back."""
        try:
            await _ask(self._pool.release(connection))
        except _FAILURES as failed:
            log.info("store.connection_lost", store=self.location, error=str(failed) or type(failed).__name__)

    def _unreachable(self, error: Exception) -> Unavailable:
        what = str(error) or type(error).__name__
        return Unavailable(f"the store {self.location} does not answer: {what}. Nothing was changed.")

    async def migrate(self, then: AfterMigration | None = None) -> None:
        async def body(tx: Any) -> list[str]:
            # Held until the transaction ends: if several frontends start at once, one of them migrates.
            await tx.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
            # Looked up as in a statement: a function of that name in another schema is not ours.
            if await tx.fetch_one("SELECT 1 AS found WHERE to_regprocedure('now_ms()') IS NOT NULL") is None:
                await tx.execute(_NOW_MS)
            return await migrate_schema(tx, self, then)

        applied = await self.write(body)
        if applied:
            log.info("store.migrated", store=self.location, applied=applied)

    async def close(self) -> None:
        with suppress(*_FAILURES):
            await _ask(asyncio.wait_for(self._pool.close(), timeout=5.0))
