"""Loads and those who wait for them, while the store is away or the unforeseen happens."""

import asyncio
from typing import TypeVar

import pytest

from bus.conftest import Connect
from controller.loads.test_needs import NoBuilds, has
from corral.bus.client import Bus, BusMessage
from corral.bus.messages import NodeReport
from corral.bus.subjects import CANCEL, MODEL_FETCH, node_subject
from corral.controller.loads.coordinator import LoadOutcome
from corral.controller.loop import ReconcileRuntime
from corral.controller.replicas.wiring import Replication
from corral.core.errors import NotFound, OutcomeUnknown, Unavailable
from corral.core.replicas.placement import Need
from corral.core.replicas.scaling import ScalingPace
from corral.store.engine.database import AfterMigration, Body, Database, StoreConflict
from corral.store.engine.retrying import MOST_CONFLICTS, RetryingDatabase
from corral.store.stores import Stores
from corral.system import SystemClock
from harness.databases import Rig
from harness.reconcile import make_runtime
from harness.waiting import wait_until_async
from sim.world import Builds, NoPeers, NoTraffic
from store.serving.test_replicas import IDS, TINY, add_nodes, decide, loaded, make_node, reserve

T = TypeVar("T")
AWAY = Unavailable("the store does not answer")


class Faulty:
    """A real database that fails as often as it is told to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reads_fail: list[Exception] = []
        self.writes_fail: list[Exception] = []
        self.failed = 0

    @property
    def dialect(self) -> str:
        return self._database.dialect

    @property
    def location(self) -> str:
        return self._database.location

    async def read(self, body: Body[T]) -> T:
        self._perhaps(self.reads_fail)
        return await self._database.read(body)

    async def read_large(self, body: Body[T]) -> T:
        return await self.read(body)

    async def write(self, body: Body[T]) -> T:
        self._perhaps(self.writes_fail)
        return await self._database.write(body)

    async def migrate(self, then: AfterMigration | None = None) -> None:
        await self._database.migrate(then)

    async def close(self) -> None:
        await self._database.close()

    def _perhaps(self, failures: list[Exception]) -> None:
        if failures:
            self.failed += 1
            raise failures.pop()


@pytest.fixture
def faulty(stores: Stores) -> Faulty:
    return Faulty(stores.database)


async def _nothing(*_: object) -> None:
    pass


async def _no_report(_node: str) -> NodeReport:
    raise Unavailable("nobody is there to be asked")


@pytest.fixture
async def replication(faulty: Faulty, connect: Connect) -> Replication:
    return make_replication(Stores(faulty, IDS), await connect())


def make_replication(
    stores: Stores, bus: Bus, runtime: ReconcileRuntime | None = None, builds: Builds | None = None
) -> Replication:
    return Replication(
        runtime or make_runtime(stores, "f1"),
        stores=stores,
        bus=bus,
        builds=builds or Builds(),
        peers=NoPeers(),
        traffic=NoTraffic(),
        grpc=None,
        stager=None,
        shared_models=False,
        request_report=_no_report,
        notify_others=_nothing,
        pace=ScalingPace(),
        orphan_grace_s=20.0,
        lease_s=60.0,
        clock=SystemClock(),
        ids=IDS,
    )


async def become_ready(stores: Stores) -> None:
    """As another frontend would do it."""

    async def claimed() -> bool:
        jobs = await stores.load_claims.claim("f2", lease_s=60, most=1)
        for job in jobs:
            await reserve(stores, job)
            await stores.load_claims.finish(job, loaded())
        return bool(jobs)

    await wait_until_async(claimed, what="the load was asked for")


async def wait_for_it(replication: Replication, count: int = 3) -> list[asyncio.Task[LoadOutcome]]:
    return [asyncio.create_task(replication.coordinator.load("tiny", within_s=30)) for _ in range(count)]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(AWAY, id="away"),
        pytest.param(OutcomeUnknown("lost at the commit"), id="unknown"),
        pytest.param(StoreConflict("others keep changing it"), id="conflict"),
        pytest.param(RuntimeError("nobody thought of this"), id="unforeseen"),
    ],
)
@pytest.mark.processes
async def test_whoever_waits_for_a_model_waits_on_while_the_store_fails(
    replication: Replication, stores: Stores, faulty: Faulty, error: Exception
) -> None:
    await add_nodes(stores, make_node("a"))
    await stores.models.save(TINY, "ann")
    faulty.reads_fail, faulty.writes_fail = [error] * 2, [error]
    waiting = await wait_for_it(replication)
    await become_ready(stores)
    faulty.reads_fail += [error] * 2
    settled = await asyncio.gather(*waiting)
    assert settled == [LoadOutcome()] * 3
    assert faulty.failed >= 3


@pytest.mark.processes
async def test_a_watch_that_cannot_go_on_leaves_nobody_waiting(replication: Replication, faulty: Faulty) -> None:
    faulty.reads_fail = [RuntimeError("nobody thought of this")] * 100
    for settled in await asyncio.gather(*await wait_for_it(replication)):
        assert "internal error" in str(settled.cause)
    faulty.reads_fail = []
    [settled] = await asyncio.gather(*await wait_for_it(replication, 1))
    assert "tiny" in str(settled.cause), "the next who asks gets a watch of its own: no such model"


@pytest.mark.processes
async def test_a_wait_ends_in_its_own_time_and_says_what_it_waited_for(
    replication: Replication, faulty: Faulty
) -> None:
    faulty.reads_fail = [AWAY] * 1000
    settled = await replication.coordinator.load("tiny", within_s=0.2)
    assert settled.progress is not None
    assert settled.progress.reason == str(AWAY)


@pytest.mark.processes
async def test_a_model_is_refused_only_when_a_new_node_has_reported_its_backends(
    stores: Stores, connect: Connect
) -> None:
    await add_nodes(stores, make_node("a"))
    await stores.models.save(TINY, "ann")
    builds = NoBuilds()
    replication = make_replication(stores, await connect(), builds=builds)
    [waiting] = await wait_for_it(replication, 1)

    async def must_wait() -> bool:
        jobs = await stores.load_claims.claim("f2", lease_s=60, most=1)
        for job in jobs:
            decision = await decide(stores, Need(model="tiny"))
            await stores.load_claims.wait(job, decision, "no node can take it", again_in_s=300)
        return bool(jobs)

    async def was_examined_twice() -> bool:
        return builds.asked >= 2

    await wait_until_async(must_wait, what="the load was asked for")
    await wait_until_async(was_examined_twice, what="it was examined again, though the load waits for the same")
    assert not waiting.done()
    await has(stores, "a", [])
    settled = await waiting
    assert settled.is_lasting
    assert settled.cause is not None
    assert "No gallery has a backend named" in settled.cause


@pytest.mark.processes
async def test_claims_that_fail_end_no_load_that_runs(replication: Replication, stores: Stores, faulty: Faulty) -> None:
    """The load stands in its first question to a node that does not answer."""
    await add_nodes(stores, make_node("a", key_hash="k"))
    revision = (await stores.models.save(TINY, "ann")).revision
    running = asyncio.create_task(replication.runner.run())
    await stores.load_jobs.request_load("tiny", revision, cause="a request", ids=IDS)
    replication.runner.loop.notify()

    async def placed() -> bool:
        return bool(await stores.replicas.read_of_model("tiny"))

    await wait_until_async(placed, what="it has its place")
    [task] = [one for one in asyncio.all_tasks() if one.get_name() == "load tiny"]
    failed = faulty.failed
    faulty.writes_fail = [AWAY, RuntimeError("nobody thought of this"), OutcomeUnknown("lost")]
    replication.runner.loop.notify()

    async def all_failed() -> bool:
        replication.runner.loop.notify()
        return faulty.failed == failed + 3

    await wait_until_async(all_failed, what="claims have failed")
    assert not task.done()
    faulty.writes_fail = [AWAY] * 1000
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):  # who stops a frontend does not wait for the store
            await running


class Fetching:
    """The bus end of a worker that is asked for weights, and answers when it is told to."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.cancelled = 0

    async def serve(self, connect: Connect, node: str) -> None:
        bus = await connect("node")
        await bus.serve(node_subject(node, MODEL_FETCH), self._fetch, concurrency=1)
        await bus.serve(node_subject(node, CANCEL), self._cancel, concurrency=1)

    async def _fetch(self, _message: BusMessage) -> bytes:
        self.asked.set()
        await self.go.wait()
        return self._answer

    async def _cancel(self, _message: BusMessage) -> bytes:
        self.cancelled += 1
        return b'{"cancelled": 1}'


FAILURES = pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'{"success": false, "error": "no such file"}', id="here"),
        pytest.param(b"\xff not JSON", id="anywhere"),
    ],
)


async def begin_to_fetch(replication: Replication, stores: Stores, fetching: Fetching) -> None:
    await add_nodes(stores, make_node("a", key_hash="k"))
    revision = (await stores.models.save(TINY, "ann")).revision
    await stores.load_jobs.request_load("tiny", revision, cause="a request", ids=IDS)
    replication.runner.loop.notify()
    await asyncio.wait_for(fetching.asked.wait(), 20)


@FAILURES
async def test_a_load_that_fails_after_it_was_taken_over_leaves_its_successors_work_alone(
    replication: Replication, stores: Stores, rig: Rig, connect: Connect, answer: bytes
) -> None:
    fetching = Fetching(answer)
    await fetching.serve(connect, "a")
    running = asyncio.create_task(replication.runner.run())
    await begin_to_fetch(replication, stores, fetching)
    taken_over = "UPDATE load_jobs SET owner = 'f2', fence = fence + 1, lease_until = 9999999999999"
    await asyncio.to_thread(rig.run_sql, taken_over)  # the load may be writing: it must not stand still
    fetching.go.set()
    await wait_until_async(lambda: _is_idle(replication), what="the load has ended here")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    [job] = await stores.load_jobs.read_all()
    assert (job.owner, job.active, fetching.cancelled) == ("f2", True, 0)


@FAILURES
async def test_a_load_that_fails_stops_its_own_work_before_another_can_take_it_over(
    replication: Replication, stores: Stores, connect: Connect, answer: bytes
) -> None:
    fetching = Fetching(answer)
    await fetching.serve(connect, "a")
    running = asyncio.create_task(replication.runner.run())
    await begin_to_fetch(replication, stores, fetching)
    fetching.go.set()
    await wait_until_async(lambda: _has_failed(stores), what="the failure is written")
    assert fetching.cancelled >= 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def _is_idle(replication: Replication) -> bool:
    return not replication.runner.loads("tiny")


async def _has_failed(stores: Stores) -> bool:
    return any(job.last_error for job in await stores.load_jobs.read_all())


# The patient store


@pytest.mark.parametrize("error", [AWAY, StoreConflict("others keep changing it")])
async def test_patience_outlasts_what_was_definitely_not_done(stores: Stores, faulty: Faulty, error: Exception) -> None:
    patient = Stores(RetryingDatabase(faulty), IDS)
    faulty.writes_fail = [error] * 3
    await patient.models.save(TINY, "ann")
    faulty.reads_fail = [error] * 3
    assert (await patient.models.read("tiny")).name == "tiny"
    assert faulty.failed == 6


async def test_patience_asks_again_only_where_that_can_do_no_harm(stores: Stores, faulty: Faulty) -> None:
    patient = Stores(RetryingDatabase(faulty), IDS)
    unknown = OutcomeUnknown("lost at the commit")
    faulty.reads_fail = [unknown]
    with pytest.raises(NotFound):
        await patient.models.read("tiny")
    faulty.writes_fail = [unknown]
    with pytest.raises(OutcomeUnknown):
        await patient.models.save(TINY, "ann")
    assert await stores.models.read_all() == []


async def test_patience_with_conflicts_has_an_end(faulty: Faulty) -> None:
    patient = Stores(RetryingDatabase(faulty), IDS)
    faulty.writes_fail = [StoreConflict("it is there already") for _ in range(2 * MOST_CONFLICTS)]
    with pytest.raises(StoreConflict):
        await patient.models.save(TINY, "ann")
    assert faulty.failed == MOST_CONFLICTS


async def test_a_place_reserved_without_our_hearing_of_it_is_found_again(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=4))
    revision = (await stores.models.save(TINY, "ann")).revision
    await stores.load_jobs.request_load("tiny", revision, cause="a request", ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=60, most=1)
    first = await reserve(stores, job)
    assert (await reserve(stores, job)).id == first.id
    assert len(await stores.replicas.read_of_model("tiny")) == 1
