"""Transactions that meet wait for one another in one order, so that none of them has to be broken."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import asyncpg
import pytest

from corral.core.backends.intents import AttemptConfirmed, AttemptRejected, RetryLimits, Verb, plan_next
from corral.core.backends.operations import NodeProgress, NodeProgressStatus
from corral.core.errors import Conflict
from corral.core.nodes.node import NodeId
from corral.store.backends.intents import Result
from corral.store.stores import Stores
from harness.databases import Rig
from harness.fleet_store import admission, healthy
from harness.waiting import wait_until_async

pytestmark = pytest.mark.postgres
LIMITS = RetryLimits()


@pytest.fixture
def kind() -> str:
    return "postgresql"


class Other:
    """Another frontend's transaction, which locks as all do: generation, operations, intents, nodes of operations."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def lock(self, *tables: str) -> None:
        for table in tables:
            key = "operation_id, node_id" if table == "operation_nodes" else "id"
            await self._connection.execute(f"SELECT 1 FROM {table} ORDER BY {key} FOR UPDATE")

    async def is_waited_for(self) -> bool:
        found = await self._connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        )
        return bool(found)


async def connect(rig: Rig) -> asyncpg.Connection:
    """Where the two wait for each other this one is broken, and the test with it: the store has a second until then,
    and would only try again."""
    assert rig.server is not None
    return await asyncpg.connect(
        f"postgresql://corral@127.0.0.1:{rig.server.port}/{rig.name}",
        server_settings={"search_path": rig.schema, "lock_timeout": "20s", "deadlock_timeout": "10ms"},
    )


async def meet(rig: Rig, first: tuple[str, ...], then: tuple[str, ...], work: Callable[[], Awaitable[object]]) -> None:
    """`work` begins while the other transaction holds `first` and wants `then`; both must get to their end."""
    connection = await connect(rig)
    try:
        transaction = connection.transaction()
        await transaction.start()
        other = Other(connection)
        await other.lock(*first)
        working = asyncio.ensure_future(work())
        await wait_until_async(other.is_waited_for, what="the two have met", within_s=10)
        await other.lock(*then)
        await transaction.commit()
        await asyncio.wait_for(working, 20)
    finally:
        await connection.close()


ALL = ("fleet_generation", "operations", "intents", "operation_nodes")


Orders = tuple[Stores, str, list[NodeId]]
"""An operation on three nodes."""


@pytest.fixture
async def orders(stores: Stores) -> Orders:
    nodes = [await healthy(stores, name) for name in ("a", "b", "c")]
    job = (await stores.admission.admit(admission(Verb.INSTALL, *nodes))).id
    return stores, job, [node.id for node in nodes]


async def test_a_claim(orders: Orders, rig: Rig) -> None:
    stores, _, _ = orders
    claimed: list[object] = []

    async def work() -> None:
        claimed.extend(await stores.intents.claim("fe", lease_s=15, limit=10))

    await meet(rig, ALL[:2], ALL[2:], work)
    assert len(claimed) == 3


async def test_progress_that_is_saved(orders: Orders, rig: Rig) -> None:
    stores, job, nodes = orders
    await stores.intents.claim("fe", lease_s=15, limit=10)
    progress = [
        (job, NodeProgress(node_id=node, node_name="", status=NodeProgressStatus.DOWNLOADING, sequence=1))
        for node in nodes
    ]
    await meet(rig, ALL[:2], ALL[2:], lambda: stores.operations.save_progress(progress))


async def test_results_one_of_which_needs_a_higher_generation(orders: Orders, rig: Rig) -> None:
    stores, _, _ = orders
    first, *rest = await stores.intents.claim("fe", lease_s=15, limit=10)
    results = [
        Result(first.intent, plan_next(first.intent, AttemptRejected("old", outdated=True), draw=0.0, limits=LIMITS)),
        *(Result(one.intent, plan_next(one.intent, AttemptConfirmed("x"), draw=0.0, limits=LIMITS)) for one in rest),
    ]
    await meet(rig, ALL[:1], ALL[1:], lambda: stores.intents.record(results))


async def test_an_intent_that_replaces_others_of_several_operations(orders: Orders, rig: Rig) -> None:
    """One of them has ended, and is being retried."""
    stores, job, _ = orders
    for one in await stores.intents.claim("fe", lease_s=15, limit=10):
        step = plan_next(one.intent, AttemptRejected("full"), draw=0.0, limits=RetryLimits(attempts=1))
        await stores.intents.record([Result(one.intent, step)])
    nodes = await stores.nodes.read_all()
    newer = admission(Verb.UPGRADE, *nodes)
    await meet(rig, ALL[1:2], ALL[2:], lambda: stores.admission.admit(newer))
    assert (await stores.operations.read_one(newer.id)).state.value == "running"
    with pytest.raises(Conflict, match="newer operation"):
        await stores.operations.retry(job, node_id=None, actor="me")


@pytest.fixture
def in_the_tables_order(rig: Rig) -> Iterator[None]:
    """Stores opened from now on read rows as the table has them, whatever the planner would like better."""
    ways = ("enable_indexscan", "enable_bitmapscan")
    for way in ways:
        rig.run_sql(f"ALTER DATABASE {rig.name} SET {way} = off")
    yield
    for way in ways:
        rig.run_sql(f"ALTER DATABASE {rig.name} RESET {way}")


async def test_claims_that_are_renewed(orders: Orders, rig: Rig, in_the_tables_order: None) -> None:
    """By their ids, whatever order the table has them in."""
    stores, _, _ = orders
    claims = await stores.intents.claim("fe", lease_s=15, limit=10)
    ids = sorted(claim.intent.id for claim in claims)
    rig.run_sql(f"UPDATE intents SET fence = fence WHERE id = '{ids[0]}'")  # now the last one in the table
    renewer = Stores(await rig.open())
    connection = await connect(rig)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT 1 FROM intents WHERE id = $1 FOR UPDATE", ids[0])
        renewing = asyncio.ensure_future(renewer.intents.renew("fe", ids, lease_s=15))
        await wait_until_async(Other(connection).is_waited_for, what="the two have met", within_s=10)
        await connection.execute("SELECT 1 FROM intents WHERE id = $1 FOR UPDATE", ids[-1])
        await transaction.commit()
        assert await asyncio.wait_for(renewing, 20) == set(ids)
    finally:
        await connection.close()
