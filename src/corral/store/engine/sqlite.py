"""SQLite in WAL mode: reads inline (a few microseconds, cheaper than any thread hop), writes on one thread, large reads
on another.

Writes are committed with `synchronous=FULL`: an acknowledged write survives a power cut.
"""

import asyncio
import os
import sqlite3
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import structlog

from corral.core.errors import InvalidInput, OutcomeUnknown, Unavailable
from corral.store.engine.database import CONFLICT_RETRIES, CONFLICT_TRIES, AfterMigration, Body, Row, StoreConflict
from corral.store.engine.migrations import migrate_schema
from corral.system import Clock, Ids
from corral.system.clock import pause
from corral.system.secret_files import keep_to_owner

T = TypeVar("T")
log = structlog.get_logger()

LOCKED_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.01
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _code(error: sqlite3.Error) -> int:
    """The primary result code: `SQLITE_BUSY_SNAPSHOT` counts as `SQLITE_BUSY`."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@cache
def _translate(sql: str) -> str:
    """Remove row locks: SQLite has one writer at a time."""
    return sql.replace(" FOR UPDATE SKIP LOCKED", "").replace(" FOR UPDATE", "")


def _bind(args: Sequence[Any]) -> dict[str, Any]:
    """Number the arguments. Values that PostgreSQL would reject are rejected here too."""
    for value in args:
        if isinstance(value, str) and "\0" in value:
            raise InvalidInput("cannot store this value: the text contains a NUL character")
        if isinstance(value, str) and not value.isascii() and _has_surrogates(value):
            raise InvalidInput("cannot store this value: the text is not valid Unicode")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise InvalidInput("cannot store this value: the integer needs more than 64 bits")
    return {str(position): value for position, value in enumerate(args, 1)}


def _has_surrogates(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_mistake(error: sqlite3.Error) -> bool:
    """Whether the statement or its use is wrong, rather than the database unavailable."""
    if isinstance(error, sqlite3.ProgrammingError):
        return "closed database" not in str(error)
    return _code(error) == sqlite3.SQLITE_ERROR


class _Locked(Exception):
    """Another process holds the write lock; nothing was changed."""


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
    """Run a body that awaits only its transaction, and therefore never suspends."""
    try:
        body.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    body.close()
    raise RuntimeError("a transaction awaited something other than the database")


def _roll_back(connection: sqlite3.Connection) -> None:
    """Ignores errors: the caller reports the original one, and a rollback fails only if SQLite has already done it."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _advice(error: sqlite3.Error) -> str:
    return (
        ". Free space on its disk; Corral then continues automatically" if _code(error) == sqlite3.SQLITE_FULL else ""
    )


def _keep_to_owner(path: Path) -> None:
    """Only the owner may read it: it contains the audit log and tokens of processes. SQLite gives its other files the
    same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        keep_to_owner(file)


class SqliteDatabase:
    dialect = "sqlite"

    def __init__(self, path: Path, *, clock: Clock, ids: Ids, locked_within_s: float = LOCKED_WITHIN_S) -> None:
        self.location = str(path)
        self._clock = clock
        self._ids = ids
        self._locked_within_s = locked_within_s
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _keep_to_owner(path)
            self._writer = self._connect(path)
            self._write_ahead(self._writer)
            self._writer.execute("PRAGMA synchronous=FULL")
            self._reader, self._large_reader = self._connect(path), self._connect(path)
            for reader in (self._reader, self._large_reader):
                reader.execute("PRAGMA query_only=ON")
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                f"cannot open the database {path}: {error}."
                " Check that its directory exists, is writable and has free space."
            ) from error
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-writer")
        self._large_reads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-reader")

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """SQLite waits for other transactions, except for this change of mode: it fails at once while another process
        writes, as when several start on a new database."""
        deadline_s = self._clock.monotonic_s() + self._locked_within_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or self._clock.monotonic_s() >= deadline_s:
                    raise
            pause(LOOK_AGAIN_S)

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=self._locked_within_s)
        connection.row_factory = sqlite3.Row
        connection.create_function("now_ms", 0, self._clock.now_ms)
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    async def read(self, body: Body[T]) -> T:
        return self._read_once(self._reader, body)

    async def read_large(self, body: Body[T]) -> T:
        try:
            reading = asyncio.get_running_loop().run_in_executor(
                self._large_reads, self._read_once, self._large_reader, body
            )
        except RuntimeError as error:  # the thread has ended
            raise Unavailable(f"the database {self.location} was closed") from error
        return await reading

    def _read_once(self, reader: sqlite3.Connection, body: Body[T]) -> T:
        try:
            reader.execute("BEGIN")
            try:
                result = _run_to_end(body(_SqliteTx(reader)))
            except BaseException:  # also when cancelled, the transaction ends
                _roll_back(reader)
                raise
            reader.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(reader)
            if _is_mistake(error):
                raise
            raise Unavailable(f"cannot read the database {self.location}: {error}") from error
        return result

    async def write(self, body: Body[T]) -> T:
        for attempt in range(CONFLICT_TRIES):
            try:
                return await self._on_writer(body)
            except _Locked:
                await asyncio.sleep(CONFLICT_RETRIES.delay_s(attempt + 1, self._ids.draw()))
        raise StoreConflict(f"the database {self.location} is locked by another process; try again")

    def _on_writer(self, body: Body[T]) -> "asyncio.Future[T]":
        try:
            return asyncio.get_running_loop().run_in_executor(self._thread, self._write_once, body)
        except RuntimeError as error:  # the thread has ended
            raise Unavailable(f"the database {self.location} was closed. Nothing was changed.") from error

    def _write_once(self, body: Body[T]) -> T:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                result = _run_to_end(body(_SqliteTx(self._writer)))
            except BaseException:  # also when cancelled, the transaction ends
                _roll_back(self._writer)
                raise
            self._commit()
        except sqlite3.IntegrityError as error:
            raise StoreConflict(f"the database {self.location} already contains this row: {error}") from error
        except sqlite3.Error as error:
            if _is_mistake(error):
                raise
            if _code(error) in _BUSY:
                raise _Locked(str(error)) from error
            raise Unavailable(
                f"cannot write to the database {self.location}: {error}. Nothing was changed."
                " Check the free space and the permissions of its directory."
            ) from error
        return result

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            if self._writer.in_transaction:
                _roll_back(self._writer)
                raise
            raise OutcomeUnknown(f"the commit to {self.location} failed: {error}{_advice(error)}") from error

    async def migrate(self, then: AfterMigration | None = None) -> None:
        async def body(tx: Any) -> list[str]:
            return await migrate_schema(tx, self, then)

        applied = await self.write(body)
        if applied:
            log.info("store.migrated", store=self.location, applied=applied)

    async def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._large_reads.shutdown(wait=True)
        self._reader.close()
        self._large_reader.close()
        self._writer.close()
