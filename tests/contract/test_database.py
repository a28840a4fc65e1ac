"""What `corral.store.engine.database` promises, on SQLite and on PostgreSQL alike."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from corral.core.errors import CorralError, InvalidInput, Unavailable
from corral.store.engine.database import Database, StoreConflict, Tx
from corral.store.engine.migrations import Migration, OutdatedSchema, apply_migrations, read_migrations
from harness.databases import Rig
from harness.number_table import count_up, read_thing, write_thing

PARTS_OF_SQL = ["'; DROP TABLE things; --", '"', "$1", "%s", "\\", "naïve \N{SNOWMAN}", "a\nb"]


@pytest.fixture
async def database(rig: Rig) -> Database:
    opened = await rig.open()
    await opened.migrate()

    async def make(tx: Tx) -> None:
        await tx.execute("CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL, note TEXT)")

    await opened.write(make)
    return opened


async def test_what_a_write_did_is_there_for_everyone_when_it_returns(database: Database, rig: Rig) -> None:
    await write_thing(database, "a", 1)
    assert await read_thing(await rig.open(), "a") == 1


async def test_a_body_that_raises_leaves_nothing_and_its_own_error_is_raised(database: Database) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        await tx.execute_many("INSERT INTO things (id, n) VALUES ($1, $2)", [("b", 2), ("c", 3)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(body)
    assert [await read_thing(database, name) for name in "abc"] == [None, None, None]


async def test_a_failing_statement_takes_the_whole_transaction_back(database: Database) -> None:
    await write_thing(database, "taken", 1)

    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        await tx.execute("INSERT INTO things (id, n) VALUES ('taken', 2)")

    with pytest.raises(StoreConflict):
        await database.write(body)
    assert await read_thing(database, "a") is None
    assert await read_thing(database, "taken") == 1


async def test_others_see_nothing_of_a_write_before_it_is_committed(database: Database, rig: Rig) -> None:
    async def body(tx: Tx) -> list[str]:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        return rig.run_sql("SELECT count(*) FROM things")

    assert await database.write(body) == ["0"]
    assert rig.run_sql("SELECT count(*) FROM things") == ["1"]


async def test_a_write_sees_what_it_has_written_itself(database: Database) -> None:
    async def body(tx: Tx) -> int:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 7)")
        row = await tx.fetch_one("SELECT n FROM things WHERE id = 'a'")
        assert row is not None
        seen: int = row["n"]
        return seen

    assert await database.write(body) == 7


async def test_a_read_sees_one_moment_however_many_statements_it_has(database: Database, rig: Rig) -> None:
    await write_thing(database, "a", 1)

    async def body(tx: Tx) -> list[int]:
        first = await tx.fetch("SELECT n FROM things WHERE id = 'a'")
        rig.run_sql("UPDATE things SET n = 2 WHERE id = 'a'")
        second = await tx.fetch("SELECT n FROM things WHERE id = 'a'")
        return [first[0]["n"], second[0]["n"]]

    assert await database.read(body) == [1, 1]
    assert await read_thing(database, "a") == 2


async def test_a_read_cannot_write(database: Database) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")

    for read in (database.read, database.read_large):
        with pytest.raises(Unavailable):
            await read(body)
    assert await read_thing(database, "a") is None


async def test_a_large_read_sees_one_moment_and_what_was_written_before_it(database: Database, rig: Rig) -> None:
    async def body(tx: Tx) -> list[int]:
        first = await tx.fetch("SELECT n FROM things WHERE id = 'a'")
        rig.run_sql("UPDATE things SET n = n + 1 WHERE id = 'a'")
        second = await tx.fetch("SELECT n FROM things WHERE id = 'a'")
        return [first[0]["n"], second[0]["n"]]

    for n in (1, 5):
        await database.write(lambda tx: tx.execute("DELETE FROM things"))
        await write_thing(database, "a", n)
        assert await database.read_large(body) == [n, n]


async def test_execute_tells_how_many_rows_it_changed(database: Database) -> None:
    async def body(tx: Tx) -> list[int]:
        await tx.execute_many("INSERT INTO things (id, n) VALUES ($1, $2)", [("a", 1), ("b", 1)])
        return [
            await tx.execute("UPDATE things SET n = 2 WHERE n = 1"),
            await tx.execute("UPDATE things SET n = 2 WHERE n = 1"),
            await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1) ON CONFLICT (id) DO NOTHING"),
            await tx.execute("DELETE FROM things WHERE id = 'a'"),
        ]

    assert await database.write(body) == [2, 0, 0, 1]


async def test_execute_many_of_nothing_is_nothing(database: Database) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute_many("INSERT INTO things (id, n) VALUES ($1, $2)", [])

    await database.write(body)


async def test_of_many_writers_on_one_row_none_is_lost(database: Database, rig: Rig) -> None:
    await write_thing(database, "a", 0)
    frontends = [database, await rig.open(), await rig.open()]
    async with asyncio.TaskGroup() as tasks:
        for turn in range(24):
            tasks.create_task(count_up(frontends[turn % 3], "a"))
    assert await read_thing(database, "a") == 24


async def test_of_many_who_insert_the_same_key_one_inserts_and_none_is_lost(database: Database, rig: Rig) -> None:
    frontends = [database, await rig.open(), await rig.open()]
    async with asyncio.TaskGroup() as tasks:
        for turn in range(9):
            tasks.create_task(count_up(frontends[turn % 3], "new"))
    assert await read_thing(database, "new") == 9


@pytest.mark.parametrize("text", PARTS_OF_SQL)
async def test_text_with_the_signs_of_sql_in_it_is_kept_as_it_is(database: Database, text: str) -> None:
    async def body(tx: Tx) -> str:
        await tx.execute("INSERT INTO things (id, n, note) VALUES ($1, 1, $1)", text)
        row = await tx.fetch_one("SELECT note FROM things WHERE id = $1", text)
        assert row is not None
        note: str = row["note"]
        return note

    assert await database.write(body) == text


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(("nul\0", 1), id="text-with-nul"),
        pytest.param(("half a letter \ud800", 1), id="text-that-is-not-unicode"),
        pytest.param(("big", 1 << 63), id="more-than-64-bits"),
    ],
)
async def test_a_value_that_does_not_fit_is_the_callers_mistake(database: Database, values: tuple[str, int]) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('before', 1)")
        await tx.execute("INSERT INTO things (id, n) VALUES ($1, $2)", *values)

    with pytest.raises(InvalidInput):
        await database.write(body)
    assert await read_thing(database, "before") is None


async def test_a_store_that_was_closed_is_unavailable(database: Database) -> None:
    await database.close()
    with pytest.raises(Unavailable):
        await write_thing(database, "a", 1)
    with pytest.raises(Unavailable):
        await read_thing(database, "a")
    with pytest.raises(Unavailable):
        await database.read_large(lambda tx: tx.fetch("SELECT n FROM things"))


async def test_wrong_sql_is_not_taken_for_a_store_that_is_unavailable(database: Database) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute("SELECT no_such_column FROM things")

    for run in (database.read, database.read_large, database.write):
        with pytest.raises(Exception, match="no_such_column") as caught:
            await run(body)
        assert not isinstance(caught.value, CorralError)


async def test_absent_is_kept_apart_from_zero_and_empty(database: Database) -> None:
    async def body(tx: Tx) -> list[object]:
        await tx.execute("INSERT INTO things (id, n, note) VALUES ('a', 0, NULL), ('b', 0, '')")
        return [row["note"] for row in await tx.fetch("SELECT note FROM things ORDER BY id")]

    assert await database.write(body) == [None, ""]


async def test_the_store_works_again_after_every_kind_of_failure(database: Database) -> None:
    async def mistaken(tx: Tx) -> None:
        await tx.execute("INSERT INTO nowhere VALUES (1)")

    for _ in range(8):  # more often than the pool has connections
        with pytest.raises(Exception, match="nowhere"):
            await database.write(mistaken)
    await write_thing(database, "a", 1)
    assert await read_thing(database, "a") == 1


async def test_now_ms_follows_the_stores_clock_only(rig: Rig) -> None:
    rig.use_movable_clock()
    database = await rig.open()
    await database.migrate()

    async def body(tx: Tx) -> int:
        row = await tx.fetch_one("SELECT now_ms() AS now")
        assert row is not None
        now: int = row["now"]
        return now

    before = await database.read(body)
    await rig.advance(90)
    assert await database.read(body) == before + 90_000
    assert await database.write(body) == before + 90_000


HISTORY = "SELECT version, name, checksum, applied_at FROM schema_migrations ORDER BY version"


async def test_migrating_again_changes_nothing(database: Database, rig: Rig) -> None:
    before = rig.run_sql(HISTORY)
    await database.migrate()
    assert rig.run_sql(HISTORY) == before
    assert [row.split("|")[0] for row in before] == [str(one.version) for one in read_migrations(rig.kind)]


async def test_a_schema_of_a_newer_version_is_left_as_it_is(database: Database, rig: Rig) -> None:
    rig.run_sql("INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (9999, 'tomorrow', '', 1)")
    await database.migrate()
    assert rig.run_sql("SELECT name FROM schema_migrations WHERE version = 9999") == ["tomorrow"]


ADDS_A_TABLE = Migration(2, "adds_a_table", ("CREATE TABLE added (id TEXT PRIMARY KEY)",))
FAILS_HALFWAY = Migration(
    3, "fails_halfway", ("CREATE TABLE half (id TEXT PRIMARY KEY)", "ALTER TABLE nowhere ADD n TEXT")
)


async def test_only_the_missing_migrations_are_applied_in_order(database: Database, rig: Rig) -> None:
    async def body(tx: Tx) -> list[str]:
        applied = await apply_migrations(tx, database, [*read_migrations(rig.kind), ADDS_A_TABLE])
        return [migration.name for migration in applied]

    assert await database.write(body) == ["adds_a_table"]
    assert await database.write(body) == []
    assert rig.run_sql("SELECT count(*) FROM added") == ["0"]


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(database: Database, rig: Rig) -> None:
    before = rig.run_sql(HISTORY)

    async def body(tx: Tx) -> None:
        await apply_migrations(tx, database, [*read_migrations(rig.kind), ADDS_A_TABLE, FAILS_HALFWAY])

    with pytest.raises(Exception, match="nowhere"):
        await database.write(body)
    assert rig.run_sql(HISTORY) == before
    for table in ("added", "half"):
        with pytest.raises((AssertionError, sqlite3.OperationalError), match=table):
            rig.run_sql(f"SELECT count(*) FROM {table}")
    await database.migrate()


async def test_a_database_of_the_first_development_versions_is_refused_with_what_to_do(rig: Rig) -> None:
    """They applied many migrations, and recorded no checksums."""
    rig.run_sql("CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT)")
    rig.run_sql("INSERT INTO schema_migrations VALUES (1, 'nodes', 1), (10, 'fleet', 1)")
    database = await rig.open()
    with pytest.raises(OutdatedSchema, match="unreleased development version") as caught:
        await database.migrate()
    assert database.location in str(caught.value)
    assert "Remove the file" in str(caught.value) or "Drop the database" in str(caught.value)
    assert rig.run_sql("SELECT version FROM schema_migrations ORDER BY version") == ["1", "10"]


async def test_a_database_whose_migrations_were_edited_since_is_refused(database: Database, rig: Rig) -> None:
    rig.run_sql("UPDATE schema_migrations SET checksum = 'of another text' WHERE version = 1")
    with pytest.raises(OutdatedSchema):
        await database.migrate()


def test_comments_and_layout_do_not_change_a_migrations_checksum(kind: str) -> None:
    (initial, *_) = read_migrations(kind)
    spaced = tuple(statement.replace("\n", "\n\n   ") for statement in initial.statements)
    assert Migration(initial.version, initial.name, spaced).checksum == initial.checksum
    assert not any("--" in statement for statement in initial.statements)


START = """
import asyncio, sys
from corral.store.open import open_database
from corral.system import SystemClock, SystemIds

async def main():
    print("here", flush=True)
    sys.stdin.readline()
    database = await open_database(sys.argv[1], connections=2, clock=SystemClock(), ids=SystemIds())
    await database.close()

asyncio.run(main())
"""


@pytest.fixture
def starters(rig: Rig) -> Iterator[list[subprocess.Popen[str]]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", START, rig.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(4)
    ]
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def test_frontends_that_start_at_once_migrate_once(starters: list[subprocess.Popen[str]], rig: Rig) -> None:
    for process in starters:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "here\n"
    for process in starters:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [(await asyncio.to_thread(process.communicate, timeout=30))[1] for process in starters]
    assert [process.returncode for process in starters] == [0, 0, 0, 0], errors
    assert rig.run_sql("SELECT count(*) FROM schema_migrations") == [str(len(read_migrations(rig.kind)))]


# A disk that fills up


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "corral-test", str(directory)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a small disk needs the right to mount one")
    directory.chmod(0o777)
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture
async def on_small_disk(rig: Rig, small_disk: Path) -> AsyncIterator[Database]:
    # PostgreSQL walks down to its tablespace as another user.
    for parent in small_disk.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    tablespace = ""
    if rig.kind == "sqlite":
        rig.path = small_disk / "corral.db"
    else:
        tablespace = f" TABLESPACE {rig.name}"
        inside = small_disk / "space"
        inside.mkdir()
        assert rig.server is not None
        rig.server.give(inside)
        rig.run_sql(f"CREATE TABLESPACE {rig.name} LOCATION '{inside}'")
    database = await rig.open()

    async def make(tx: Tx) -> None:
        await tx.execute(f"CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL, note TEXT){tablespace}")

    await database.write(make)
    yield database
    if tablespace:
        rig.run_sql("DROP TABLE things")
        rig.run_sql(f"DROP TABLESPACE {rig.name}")


async def test_a_full_disk_refuses_the_write_clearly_and_it_works_when_there_is_space(
    on_small_disk: Database, small_disk: Path
) -> None:
    await write_thing(on_small_disk, "before", 1)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)) == 4096 and shutil.disk_usage(small_disk).free:
            pass
    noise = json.dumps(list(range(20_000)))

    async def body(tx: Tx) -> None:
        for number in range(40):
            await tx.execute("INSERT INTO things (id, n, note) VALUES ($1, 1, $2)", f"big{number}", noise[number:])

    with pytest.raises(Unavailable, match=r"(?i)full|space"):
        await on_small_disk.write(body)
    assert await read_thing(on_small_disk, "before") == 1
    assert await read_thing(on_small_disk, "big0") is None
    ballast.unlink()
    await write_thing(on_small_disk, "after", 2)
    assert await read_thing(on_small_disk, "after") == 2
