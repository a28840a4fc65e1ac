"""What only a server behind a network can suffer, done to a real one."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from corral.core.errors import CorralError, OutcomeUnknown, Unavailable
from corral.store.engine.database import CONFLICT_TRIES, Database, StoreConflict, Tx
from corral.store.engine.postgres import PostgresDatabase
from corral.system import SystemClock, SystemIds
from harness.databases import Rig
from harness.machine_speed import promised
from harness.number_table import count_up, read_thing, write_thing
from harness.ports import free_port
from harness.postgres import Postgres
from harness.proxy import Proxy
from harness.waiting import wait_until_async

pytestmark = pytest.mark.postgres


@pytest.fixture
async def rig(make_rig: Callable[[str], Rig]) -> AsyncIterator[Rig]:
    rig = make_rig("postgresql")
    rig.run_sql("CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)")
    yield rig
    await rig.close()


@pytest.fixture
async def proxy(postgres: Postgres) -> AsyncIterator[Proxy]:
    async with Proxy(postgres.port).running() as running:
        yield running


@pytest.fixture
async def through(rig: Rig, proxy: Proxy) -> Database:
    """A frontend behind the proxy; its waits are short."""
    return await rig.open(port=proxy.port, acquire_within_s=1.0, statement_within_s=0.5)


def held(event: asyncio.Event, entered: asyncio.Event) -> Callable[[Tx], Coroutine[Any, Any, None]]:
    async def body(tx: Tx) -> None:
        await tx.execute("SELECT 1")
        entered.set()
        await event.wait()

    return body


# The connection goes


async def test_a_connection_lost_before_the_commit_is_definitely_not_done(
    through: Database, proxy: Proxy, rig: Rig
) -> None:
    await write_thing(through, "warm", 1)
    proxy.cut_when_sent(b"INSERT INTO things", forward=False)
    with pytest.raises(Unavailable, match="Nothing was changed"):
        await asyncio.wait_for(_insert_fresh(through), 30)
    assert proxy.did_cut.is_set()
    assert rig.run_sql("SELECT id FROM things ORDER BY id") == ["warm"]
    await write_thing(through, "after", 1)


async def _insert_fresh(database: Database) -> None:
    async def body(tx: Tx) -> None:
        # Not the text that is already prepared on this connection: the words themselves go over the wire.
        await tx.execute("INSERT INTO things (id, n) VALUES ('fresh', 1)")

    await database.write(body)


@pytest.mark.parametrize(
    ("arrives", "expected"),
    [
        pytest.param(True, ["a|1"], id="the-answer-was-lost-so-the-row-is-there"),
        pytest.param(False, [], id="the-commit-was-lost-so-the-row-is-not-there"),
    ],
)
async def test_a_connection_lost_around_the_commit_leaves_the_outcome_unknown(
    through: Database, proxy: Proxy, rig: Rig, arrives: bool, expected: list[str]
) -> None:
    proxy.cut_when_sent(b"COMMIT", forward=arrives)
    with pytest.raises(OutcomeUnknown):
        await asyncio.wait_for(write_thing(through, "a", 1), 30)
    assert proxy.did_cut.is_set()
    assert rig.run_sql("SELECT id, n FROM things") == expected
    await write_thing(through, "a", 2)
    assert await read_thing(through, "a") == 2


async def test_a_write_whose_outcome_is_unknown_is_not_tried_again_by_the_store(
    through: Database, proxy: Proxy, rig: Rig
) -> None:
    proxy.cut_when_sent(b"COMMIT", forward=True)
    with pytest.raises(OutcomeUnknown):
        await count_up(through, "a")
    assert rig.run_sql("SELECT n FROM things") == ["1"]


async def test_a_read_that_loses_its_connection_is_never_unknown(through: Database, proxy: Proxy) -> None:
    proxy.cut_when_sent(b"COMMIT", forward=True)
    with pytest.raises(Unavailable):
        await read_thing(through, "a")


async def test_a_link_that_went_silent_is_abandoned_within_the_bound(through: Database, proxy: Proxy) -> None:
    await write_thing(through, "a", 1)
    proxy.swallow()
    with promised("to give it up", within_s=6), pytest.raises(Unavailable):
        await read_thing(through, "a")
    proxy.mend()
    assert await read_thing(through, "a") == 1


async def test_connections_that_died_in_the_pool_are_replaced_unnoticed(through: Database, proxy: Proxy) -> None:
    async with asyncio.TaskGroup() as tasks:  # fill the pool
        for number in range(8):
            tasks.create_task(write_thing(through, f"thing{number}", 1))
    proxy.cut()
    assert await read_thing(through, "thing0") == 1
    await write_thing(through, "thing0", 2)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_the_first_call_after_a_restart_of_the_server_works(rig: Rig, postgres: Postgres, how: int) -> None:
    database = await rig.open()
    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(write_thing(database, f"thing{number}", 1))
    postgres.stop(how)
    postgres.start()
    await count_up(database, "thing0")
    assert await read_thing(database, "thing0") == 2


async def test_while_the_server_is_down_every_call_says_so_and_then_works_again(rig: Rig, postgres: Postgres) -> None:
    database = await rig.open(acquire_within_s=1.0)
    await write_thing(database, "a", 1)
    postgres.stop()
    try:
        for _ in range(3):
            with pytest.raises(Unavailable, match=rig.name):
                await asyncio.wait_for(count_up(database, "a"), 30)
            with pytest.raises(Unavailable):
                await asyncio.wait_for(read_thing(database, "a"), 30)
    finally:
        postgres.start()
    await count_up(database, "a")
    assert await read_thing(database, "a") == 2


async def test_a_server_killed_in_the_middle_of_a_write_means_not_done(rig: Rig, postgres: Postgres) -> None:
    database = await rig.open(acquire_within_s=1.0)

    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        postgres.stop(signal.SIGQUIT)
        postgres.start()
        await tx.execute("INSERT INTO things (id, n) VALUES ('b', 1)")

    with pytest.raises(Unavailable):
        await database.write(body)
    assert rig.run_sql("SELECT count(*) FROM things") == ["0"]


async def test_a_store_that_cannot_be_reached_is_named_with_what_to_check() -> None:
    with pytest.raises(Unavailable, match=r"the store db: .*Check that PostgreSQL is running there"):
        await PostgresDatabase.connect(
            f"postgresql://corral@127.0.0.1:{free_port()}/x",
            "db",
            connections=1,
            clock=SystemClock(),
            ids=SystemIds(),
            acquire_within_s=1.0,
        )


# The driver stumbles

STUMBLES = [
    pytest.param(asyncpg.InternalClientError("cannot switch to state 15"), id="the-driver-lost-track"),
    pytest.param(asyncpg.ProtocolError("unexpected message"), id="an-answer-nobody-understands"),
    pytest.param(RuntimeError("unable to perform operation on <TCPTransport closed=True>"), id="a-closed-transport"),
    pytest.param(AttributeError("'NoneType' object has no attribute 'write'"), id="a-defect-of-the-driver"),
    pytest.param(asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"), id="the-connection-is-gone"),
    pytest.param(asyncpg.InterfaceError("connection is closed"), id="the-connection-is-closed"),
    pytest.param(asyncpg.InternalServerError("cache lookup failed"), id="the-server-has-a-defect"),
    pytest.param(ConnectionResetError(104, "reset by peer"), id="reset"),
]


class _Stumbling:
    """A connection of the real pool whose driver raises at one word."""

    def __init__(self, connection: Any, word: str, error: Exception) -> None:
        self._connection, self._word, self._error = connection, word, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, sql: str, *args: Any) -> Any:
        done = await self._connection.execute(sql, *args)
        if self._word in sql:
            raise self._error
        return done


class _StumblingPool:
    def __init__(self, pool: Any, word: str, error: Exception) -> None:
        self._pool, self._word, self._error = pool, word, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def acquire(self, **options: Any) -> Any:
        if self._word == "acquire":
            raise self._error
        return _Stumbling(await self._pool.acquire(**options), self._word, self._error)

    async def release(self, connection: Any) -> None:
        await self._pool.release(connection._connection)
        if self._word == "release":
            raise self._error


def stumble(database: Database, word: str, error: Exception) -> None:
    assert isinstance(database, PostgresDatabase)
    database._pool = _StumblingPool(database._pool, word, error)


def stand_up(database: Database) -> None:
    assert isinstance(database, PostgresDatabase)
    database._pool = database._pool._pool


@pytest.mark.parametrize("error", STUMBLES)
@pytest.mark.parametrize("word", ["acquire", "BEGIN", "INSERT INTO things"])
async def test_whatever_the_driver_raises_before_the_commit_means_not_done(
    rig: Rig, word: str, error: Exception
) -> None:
    database = await rig.open(connections=1)
    stumble(database, word, error)
    with pytest.raises(Unavailable, match="Nothing was changed"):
        await write_thing(database, "a", 1)
    stand_up(database)
    assert rig.run_sql("SELECT count(*) FROM things") == ["0"]
    await write_thing(database, "a", 1)


@pytest.mark.parametrize("error", STUMBLES)
async def test_whatever_the_driver_raises_at_the_commit_leaves_the_outcome_unknown(rig: Rig, error: Exception) -> None:
    database = await rig.open(connections=1)
    stumble(database, "COMMIT", error)
    with pytest.raises(OutcomeUnknown):
        await write_thing(database, "a", 1)
    with pytest.raises(Unavailable):
        await read_thing(database, "a")
    stand_up(database)
    assert await read_thing(database, "a") == 1


@pytest.mark.parametrize("error", STUMBLES)
async def test_a_connection_that_cannot_be_given_back_changes_nothing_about_what_was_done(
    rig: Rig, error: Exception
) -> None:
    database = await rig.open(connections=1)
    stumble(database, "release", error)
    await write_thing(database, "a", 1)
    assert await read_thing(database, "a") == 1


async def test_a_rollback_the_driver_cannot_make_hides_nothing(rig: Rig) -> None:
    database = await rig.open(connections=1)
    stumble(database, "ROLLBACK", asyncpg.InternalClientError("cannot switch to state 15"))

    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(body)
    stand_up(database)
    assert await read_thing(database, "a") is None


async def test_a_server_restarted_under_many_writers_raises_only_errors_of_ours(rig: Rig, postgres: Postgres) -> None:
    database = await rig.open(connections=8, acquire_within_s=1.0)
    over = asyncio.Event()
    strange: list[BaseException] = []
    done = 0

    async def hammer(number: int) -> None:
        nonlocal done
        while not over.is_set():
            try:
                await count_up(database, f"thing{number}")
                await read_thing(database, f"thing{number}")
                done += 1
            except CorralError:
                await asyncio.sleep(0.005)
            except BaseException as error:
                strange.append(error)
                raise

    hammering = [asyncio.create_task(hammer(number)) for number in range(24)]
    for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
        before = done

        async def is_busy(before: int = before) -> bool:
            return done > before + 100

        await wait_until_async(is_busy, what="the writers are at work")
        await asyncio.to_thread(postgres.stop, how)
        await asyncio.to_thread(postgres.start)
    over.set()
    await asyncio.wait_for(asyncio.gather(*hammering, return_exceptions=True), 60)
    assert not strange
    await count_up(database, "after")


async def test_a_row_that_refers_to_one_that_is_gone_is_a_conflict(rig: Rig) -> None:
    rig.run_sql("CREATE TABLE parts (thing TEXT NOT NULL REFERENCES things (id))")
    database = await rig.open()

    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO parts (thing) VALUES ('nowhere')")

    with pytest.raises(StoreConflict):
        await database.write(body)


# Transactions meet


async def test_a_serialisation_failure_is_tried_again_and_nothing_is_lost(rig: Rig) -> None:
    database = await rig.open()
    await write_thing(database, "a", 0)
    tries = 0
    both_have_read = asyncio.Barrier(2)

    async def body(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        await tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        row = await tx.fetch_one("SELECT n FROM things WHERE id = 'a'")
        assert row is not None
        if tries <= 2:
            await both_have_read.wait()
        await tx.execute("UPDATE things SET n = $1 WHERE id = 'a'", row["n"] + 1)

    await asyncio.wait_for(asyncio.gather(database.write(body), database.write(body)), 60)
    assert await read_thing(database, "a") == 2
    assert tries == 3


async def test_a_deadlock_is_resolved_by_trying_again(rig: Rig) -> None:
    rig.run_sql(f"ALTER DATABASE {rig.name} SET deadlock_timeout = '50ms'")
    database = await rig.open()
    await write_thing(database, "a", 0)
    await write_thing(database, "b", 0)
    tries = 0
    both_hold_one = asyncio.Barrier(2)

    async def body(tx: Tx, first: str, second: str) -> None:
        nonlocal tries
        tries += 1
        await tx.execute("UPDATE things SET n = n + 1 WHERE id = $1", first)
        if tries <= 2:
            await both_hold_one.wait()
        await tx.execute("UPDATE things SET n = n + 1 WHERE id = $1", second)

    await asyncio.wait_for(
        asyncio.gather(
            database.write(lambda tx: body(tx, "a", "b")),
            database.write(lambda tx: body(tx, "b", "a")),
        ),
        10,
    )
    assert (await read_thing(database, "a"), await read_thing(database, "b")) == (2, 2)
    assert tries == 3


async def lock_thing(database: Database) -> tuple[asyncio.Event, "asyncio.Future[None]"]:
    """Locks the row `a` until the event is set; the future ends with its transaction."""
    release, locked = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.execute("SELECT 1 FROM things WHERE id = 'a' FOR UPDATE")
        locked.set()
        await release.wait()

    holding = asyncio.ensure_future(database.write(hold))
    await locked.wait()
    return release, holding


async def test_a_row_that_stays_locked_is_a_conflict_after_a_bounded_number_of_tries(rig: Rig) -> None:
    rig.run_sql(f"ALTER DATABASE {rig.name} SET lock_timeout = '20ms'")
    database, other = await rig.open(), await rig.open()
    await write_thing(database, "a", 0)
    release, holding = await lock_thing(other)
    tries = 0

    async def body(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        await tx.execute("UPDATE things SET n = n + 1 WHERE id = 'a'")

    with pytest.raises(StoreConflict, match="try again"):
        await asyncio.wait_for(database.write(body), 60)
    assert tries == CONFLICT_TRIES
    release.set()
    await holding
    await database.write(body)
    assert await read_thing(database, "a") == 1


async def test_a_lock_that_is_released_while_others_try_is_noticed_by_nobody(rig: Rig) -> None:
    rig.run_sql(f"ALTER DATABASE {rig.name} SET lock_timeout = '20ms'")
    database, other = await rig.open(), await rig.open()
    await write_thing(database, "a", 0)
    release, holding = await lock_thing(other)
    tries = 0

    async def body(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            release.set()
            await holding
        await tx.execute("UPDATE things SET n = n + 1 WHERE id = 'a'")

    await asyncio.wait_for(database.write(body), 60)
    assert tries == 3
    assert await read_thing(database, "a") == 1


async def test_a_transaction_that_goes_on_after_a_failed_statement_is_not_called_done(rig: Rig) -> None:
    database = await rig.open()

    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        try:
            await tx.execute("INSERT INTO nowhere VALUES (1)")
        except Exception:
            return

    with pytest.raises(RuntimeError, match="nothing was written"):
        await database.write(body)
    assert rig.run_sql("SELECT count(*) FROM things") == ["0"]


# Connections are few


async def test_when_all_connections_are_taken_the_next_call_waits_briefly_and_then_fails(rig: Rig) -> None:
    database = await rig.open(connections=1, acquire_within_s=0.2)
    release, entered = asyncio.Event(), asyncio.Event()
    holding = asyncio.create_task(database.read(held(release, entered)))
    await entered.wait()
    told = pytest.raises(Unavailable, match=r"no connection became free within 0\.2 s")
    with promised("a brief wait", within_s=2), told:
        await write_thing(database, "a", 1)
    release.set()
    await holding
    await write_thing(database, "a", 1)


async def test_no_connection_is_held_while_a_conflict_waits_for_its_next_try(rig: Rig) -> None:
    rig.run_sql(f"ALTER DATABASE {rig.name} SET lock_timeout = '10ms'")
    database, other = await rig.open(connections=1), await rig.open()
    await write_thing(database, "a", 0)
    release, locked = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.execute("SELECT 1 FROM things WHERE id = 'a' FOR UPDATE")
        locked.set()
        await release.wait()

    holding = asyncio.ensure_future(other.write(hold))
    await locked.wait()
    blocked = asyncio.ensure_future(count_up(database, "a"))
    await write_thing(database, "b", 1)
    assert not blocked.done()
    release.set()
    await asyncio.gather(holding, blocked)
    assert await read_thing(database, "a") == 1


async def test_a_cancelled_write_leaves_nothing_and_gives_its_connection_back(rig: Rig) -> None:
    database = await rig.open(connections=1)
    entered = asyncio.Event()

    async def body(tx: Tx) -> None:
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        entered.set()
        await asyncio.Event().wait()

    writing = asyncio.ensure_future(database.write(body))
    await entered.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await read_thing(database, "a") is None


async def test_a_write_cancelled_in_the_middle_of_a_statement_gives_its_connection_back(rig: Rig) -> None:
    database = await rig.open(connections=1)

    async def body(tx: Tx) -> None:
        await tx.execute("SELECT pg_sleep(30)")

    writing = asyncio.ensure_future(database.write(body))

    async def sleeping() -> bool:
        return rig.run_sql("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(30)'") == ["1"]

    await wait_until_async(sleeping, what="the statement runs")
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await asyncio.wait_for(write_thing(database, "a", 1), 30)


async def test_a_server_without_free_connections_is_unavailable_not_broken(rig: Rig) -> None:
    rig.run_sql("CREATE ROLE few LOGIN CONNECTION LIMIT 1")
    try:
        rig.run_sql("GRANT ALL ON things TO few")
        assert rig.server is not None
        url = f"postgresql://few@127.0.0.1:{rig.server.port}/{rig.name}"
        database = await PostgresDatabase.connect(url, "db", connections=2, clock=SystemClock(), ids=SystemIds())
        release, entered = asyncio.Event(), asyncio.Event()
        holding = asyncio.create_task(database.read(held(release, entered)))
        await entered.wait()
        with pytest.raises(Unavailable, match="too many connections"):
            await write_thing(database, "a", 1)
        release.set()
        await holding
        await write_thing(database, "a", 1)
        await database.close()
    finally:
        rig.run_sql("DROP OWNED BY few; DROP ROLE few")


# Slow, frozen, read-only


async def test_a_slow_statement_is_ended_on_the_server_too(rig: Rig) -> None:
    database = await rig.open(statement_within_s=0.3, connections=1)

    async def body(tx: Tx) -> None:
        await tx.execute("SELECT pg_sleep(60)")

    with promised("to end it", within_s=5), pytest.raises(Unavailable):
        await database.write(body)
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)'"
    assert rig.run_sql(running) == ["0"]
    await write_thing(database, "a", 1)


async def test_a_frontend_frozen_inside_a_transaction_cannot_keep_its_locks(rig: Rig) -> None:
    database = await rig.open()

    async def body(tx: Tx) -> str:
        row = await tx.fetch_one("SHOW idle_in_transaction_session_timeout")
        assert row is not None
        shown: str = row["idle_in_transaction_session_timeout"]
        return shown

    assert await database.read(body) == "5s"


async def test_a_transaction_the_server_aborted_is_definitely_not_done(rig: Rig) -> None:
    database = await rig.open(connections=1)

    async def body(tx: Tx) -> None:
        await tx.execute("SELECT set_config('idle_in_transaction_session_timeout', '20ms', false)")
        await tx.execute("INSERT INTO things (id, n) VALUES ('a', 1)")
        me = await tx.fetch_one("SELECT pg_backend_pid() AS pid")
        assert me is not None

        async def thrown_out() -> bool:
            return rig.run_sql(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {me['pid']}") == ["0"]

        await wait_until_async(thrown_out, what="the server ends the session")
        await tx.execute("INSERT INTO things (id, n) VALUES ('b', 1)")

    with pytest.raises(Unavailable):
        await database.write(body)
    assert rig.run_sql("SELECT count(*) FROM things") == ["0"]


async def test_a_read_only_store_refuses_writes_clearly_goes_on_reading_and_recovers(
    rig: Rig, postgres: Postgres
) -> None:
    database = await rig.open()
    await write_thing(database, "a", 1)

    def switch(setting: str) -> None:
        """As a failover does: the sessions end, the next ones find another server."""
        postgres.run_sql("postgres", f"ALTER DATABASE {rig.name} {setting}")
        end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname ="
        postgres.run_sql("postgres", f"{end} '{rig.name}'")

    switch("SET default_transaction_read_only = on")
    with pytest.raises(Unavailable, match="read-only"):
        await write_thing(database, "a", 2)
    assert await read_thing(database, "a") == 1
    switch("RESET default_transaction_read_only")
    await write_thing(database, "a", 3)
    assert await read_thing(database, "a") == 3


async def test_a_now_ms_in_another_schema_is_not_taken_for_ours(rig: Rig) -> None:
    rig.run_sql("CREATE SCHEMA theirs; CREATE FUNCTION theirs.now_ms() RETURNS text LANGUAGE sql AS 'SELECT 1::text'")
    database = await rig.open()
    await database.migrate()

    async def body(tx: Tx) -> int:
        row = await tx.fetch_one("SELECT now_ms() AS now")
        assert row is not None
        now: int = row["now"]
        return now

    assert abs(await database.read(body) - time.time() * 1000) < 60_000


async def test_the_hosts_clock_is_not_the_stores_clock(rig: Rig) -> None:
    class FiveMinutesAhead(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + 300_000

    database = await rig.open(host_clock=FiveMinutesAhead())
    await database.migrate()

    async def body(tx: Tx) -> int:
        row = await tx.fetch_one("SELECT now_ms() AS now")
        assert row is not None
        now: int = row["now"]
        return now

    assert abs(await database.read(body) - time.time() * 1000) < 60_000
