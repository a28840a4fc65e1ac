"""SQLite in WAL mode: reads inline (a few microseconds, cheaper than any thread hop), writes on one thread.

Writes are committed with `synchronous=FULL`: what was acknowledged survives a power cut.
"""

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import structlog

from corral.core.errors import OutcomeUnknown, Unavailable
from corral.store.database import CONFLICT_TRIES, Body, Row, StoreConflict, conflict_delay_s
from corral.store.migrations import apply_migrations
from corral.system import Clock, Ids

T = TypeVar("T")
log = structlog.get_logger()

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@cache
def _translate(sql: str) -> str:
    """SQLite has one writer at a time, so row locks are already held."""
    return sql.replace(" FOR UPDATE SKIP LOCKED", "").replace(" FOR UPDATE", "")


def _bind(args: Sequence[Any]) -> dict[str, Any]:
    return {str(position): value for position, value in enumerate(args, 1)}


class _SqliteTx:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        return self._connection.execute(_translate(sql), _bind(args)).fetchall()

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        row: Row | None = self._connection.execute(_translate(sql), _bind(args)).fetchone()
        return row

    async def execute(self, sql: str, *args: Any) -> int:
        return self._connection.execute(_translate(sql), _bind(args)).rowcount

    async def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(_translate(sql), [_bind(row) for row in rows])


def _run_to_end(body: Coroutine[Any, Any, T]) -> T:
    """Drive a body that awaits only its transaction, and so never suspends."""
    try:
        body.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    body.close()
    raise RuntimeError("a transaction waited for something other than the store")


class SqliteDatabase:
    dialect = "sqlite"

    def __init__(self, path: Path, *, clock: Clock, ids: Ids) -> None:
        self.location = str(path)
        self._clock = clock
        self._ids = ids
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._writer = self._connect(path)
            self._writer.execute("PRAGMA journal_mode=WAL")
            self._writer.execute("PRAGMA synchronous=FULL")
            self._reader = self._connect(path)
            self._reader.execute("PRAGMA query_only=ON")
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                f"cannot open the database {path}: {error}. Check that the directory exists, is writable and has space."
            ) from error
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-writer")

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        connection.row_factory = sqlite3.Row
        connection.create_function("now_ms", 0, self._clock.now_ms)
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    async def read(self, body: Body[T]) -> T:
        try:
            self._reader.execute("BEGIN")
            try:
                return _run_to_end(body(_SqliteTx(self._reader)))
            finally:
                self._reader.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise Unavailable(f"cannot read the database {self.location}: {error}") from error

    async def write(self, body: Body[T]) -> T:
        for attempt in range(CONFLICT_TRIES):
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._write_once, body)
            except StoreConflict:
                await asyncio.sleep(conflict_delay_s(attempt, draw=self._ids.draw()))
        raise StoreConflict(f"the database {self.location} stayed locked by another process; try again")

    def _write_once(self, body: Body[T]) -> T:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                result = _run_to_end(body(_SqliteTx(self._writer)))
            except BaseException:
                self._rollback()
                raise
            self._commit()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in _BUSY:
                raise StoreConflict(str(error)) from error
            raise Unavailable(
                f"cannot write to the database {self.location}: {error}. Nothing was changed."
                " Check free space and permissions of its directory."
            ) from error
        return result

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._writer.in_transaction:
                self._rollback()
                raise
            raise OutcomeUnknown(f"the commit to {self.location} ended with: {error}") from error

    def _rollback(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    async def migrate(self) -> None:
        async def body(tx: Any) -> list[str]:
            return [migration.name for migration in await apply_migrations(tx, self.dialect)]

        applied = await self.write(body)
        if applied:
            log.info("store.migrated", store=self.location, applied=applied)

    async def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._reader.close()
        self._writer.close()
