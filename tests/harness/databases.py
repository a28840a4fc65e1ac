"""Both databases behind one rig: open as many frontends' views as a test wants, look from outside, move time."""

import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from corral.store.engine.database import Database, Tx
from corral.store.engine.postgres import PostgresDatabase
from corral.store.engine.sqlite import SqliteDatabase
from corral.store.stores import Stores
from corral.system import Clock, SystemClock, SystemIds
from harness.postgres import Postgres

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


class MovableClock:
    """Wall time stands still until a test moves it; durations are real."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return time.monotonic()

    def since_boot_s(self) -> float:
        return time.monotonic()

    def advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)


class Rig:
    """One empty database. `clock` is the store's own."""

    def __init__(self, kind: str, *, path: Path, server: Postgres | None, within: str | None = None) -> None:
        """`within`: an existing PostgreSQL database in which to use a schema of one's own; far cheaper to make."""
        self.kind = kind
        self.path = path
        self.server = server
        self.name = f"test_{uuid.uuid4().hex}"
        self.schema = "public" if within is None else self.name
        self.url = f"sqlite://{path}"
        if server is not None and within is None:
            self.url = server.create(self.name)
        elif server is not None and within is not None:
            self.name = within
            server.run_sql(within, f"CREATE SCHEMA {self.schema}")
        self.clock: Clock = SystemClock()
        self._opened: list[Database] = []

    async def open(
        self, *, port: int | None = None, host_clock: Clock | None = None, connections: int = 4, **options: Any
    ) -> Database:
        """As one more frontend would; `port` leads there through a proxy."""
        database: Database
        ids = SystemIds()
        if self.server is None:
            database = SqliteDatabase(self.path, clock=self.clock, ids=ids, **options)
        else:
            url = f"postgresql://corral@127.0.0.1:{port or self.server.port}/{self.name}?search_path={self.schema}"
            database = await PostgresDatabase.connect(
                url, url, connections=connections, clock=host_clock or SystemClock(), ids=ids, **options
            )
        self._opened.append(database)
        return database

    def run_sql(self, sql: str) -> list[str]:
        """From outside, at once and committed: one text per row, columns parted by `|`."""
        if self.server is not None:
            return self.server.run_sql(self.name, sql, schema=self.schema).splitlines()
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=5)
        try:
            return ["|".join(str(value) for value in row) for row in connection.execute(sql)]
        finally:
            connection.close()

    def use_movable_clock(self) -> None:
        """Before the first migration, which leaves a `now_ms()` alone that is already there."""
        clock = MovableClock()
        self.clock = clock
        if self.server is not None:
            self.run_sql(
                f"CREATE TABLE test_clock (now BIGINT NOT NULL); INSERT INTO test_clock VALUES ({clock.now_ms()});"
                " CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT now FROM test_clock'"
            )

    async def advance(self, seconds: float) -> None:
        assert isinstance(self.clock, MovableClock)
        self.clock.advance(seconds)
        now_ms = self.clock.now_ms()

        async def body(tx: Tx) -> None:
            await tx.execute("UPDATE test_clock SET now = $1", now_ms)

        if self.server is not None:
            await self._opened[0].write(body)

    def dump(self) -> bytes:
        """Everything at rest."""
        if self.server is not None:
            return self.server.dump(self.name, schema=self.schema)
        return b"".join(file.read_bytes() for file in sorted(self.path.parent.glob(self.path.name + "*")))

    async def close(self) -> None:
        for database in self._opened:
            await database.close()


@pytest.fixture(params=BOTH)
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def make_rig(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Rig]:
    def make(kind: str) -> Rig:
        server = request.getfixturevalue("postgres") if kind == "postgresql" else None
        return Rig(kind, path=tmp_path / "corral.db", server=server)

    return make


@pytest.fixture
def unopened(kind: str, make_rig: Callable[[str], Rig]) -> Rig:
    return make_rig(kind)


@pytest.fixture
async def rig(unopened: Rig) -> AsyncIterator[Rig]:
    yield unopened
    await unopened.close()


@pytest.fixture
async def stores(rig: Rig) -> Stores:
    """A migrated store whose clock the test moves."""
    rig.use_movable_clock()
    database = await rig.open()
    await database.migrate()
    return Stores(database)
