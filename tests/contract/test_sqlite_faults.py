"""What only SQLite can suffer: another process that writes, a body that waits, a file that is none of ours."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from corral.core.errors import Unavailable
from corral.store.engine.database import Database, StoreConflict, Tx
from corral.store.engine.sqlite import SqliteDatabase
from corral.system import SystemClock, SystemIds
from harness.databases import Rig
from harness.number_table import read_thing, write_thing


@pytest.fixture
async def sqlite_rig(make_rig: Callable[[str], Rig]) -> AsyncIterator[Rig]:
    rig = make_rig("sqlite")
    yield rig
    await rig.close()


@pytest.fixture
async def database(sqlite_rig: Rig) -> Database:
    opened = await sqlite_rig.open(locked_within_s=0.01)

    async def make(tx: Tx) -> None:
        await tx.execute("CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)")

    await opened.write(make)
    return opened


async def test_a_body_that_waits_for_something_else_is_refused_and_leaves_nothing(database: Database) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        await asyncio.sleep(0)

    for run in (database.write, database.read):
        with pytest.raises((RuntimeError, Unavailable)):
            await run(body)
    with pytest.raises(RuntimeError, match="awaited something other than the database"):
        await database.write(body)
    assert await read_thing(database, "a") is None


async def test_a_database_that_stays_locked_is_a_conflict_after_a_bounded_number_of_tries(
    database: Database, sqlite_rig: Rig
) -> None:
    other = sqlite3.connect(sqlite_rig.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tries = 0

    async def body(tx: Tx) -> None:
        nonlocal tries
        tries += 1

    with pytest.raises(StoreConflict, match="locked by another process"):
        await database.write(body)
    assert tries == 0
    other.execute("ROLLBACK")
    other.close()
    await write_thing(database, "a", 1)
    assert await read_thing(database, "a") == 1


async def test_a_lock_released_in_time_is_noticed_by_nobody(database: Database, sqlite_rig: Rig) -> None:
    other = sqlite3.connect(sqlite_rig.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(write_thing(database, "a", 1))
    assert await read_thing(database, "a") is None  # a read needs no lock
    other.execute("COMMIT")
    other.close()
    await writing
    assert await read_thing(database, "a") == 1


async def test_a_read_goes_on_while_another_process_writes(database: Database, sqlite_rig: Rig) -> None:
    await write_thing(database, "a", 1)
    other = sqlite3.connect(sqlite_rig.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE things SET n = 2")
    assert await read_thing(database, "a") == 1
    other.execute("COMMIT")
    other.close()
    assert await read_thing(database, "a") == 2


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear store,\n" * 1000)
    with pytest.raises(Unavailable, match=r"letter\.txt"):
        SqliteDatabase(path, clock=SystemClock(), ids=SystemIds())


def test_a_place_where_no_file_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"corral\.db"):
        SqliteDatabase(tmp_path / "file" / "corral.db", clock=SystemClock(), ids=SystemIds())


async def test_what_was_acknowledged_is_on_disk(database: Database) -> None:
    async def settings(tx: Tx) -> list[object]:
        return [
            dict(row).popitem()[1]
            for pragma in ("journal_mode", "synchronous", "foreign_keys")
            for row in await tx.fetch(f"PRAGMA {pragma}")
        ]

    assert await database.write(settings) == ["wal", 2, 1]
