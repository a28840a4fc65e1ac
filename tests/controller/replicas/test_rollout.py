"""A rollout of another version is waited for; what failed before it is distinguished from what fails now."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from corral.controller.replicas.rollout import READ_EVERY_S, ReplicaRollout, SharedSnapshot
from corral.controller.replicas.smoke_test import Restored, RolloutStalled, VersionFailed
from corral.core.backends.intents import Verb
from corral.core.backends.rollout import OTHERS_FIRST_REASON, STOP_FIRST_REASON, ReplicaChange
from corral.core.errors import Fenced, TimedOut, Unavailable
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedProcess, ProcessStatus
from corral.core.replicas.placement import Need
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.scaling import Add, Scheduling
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.replacements import ReplacementView
from corral.store.stores import Stores
from corral.system import Clock, SystemClock
from harness.clocks import HeldClock
from harness.fleet_store import admission
from harness.waiting import wait_until_async
from store.serving.test_replicas import IDS, LEASE_S, add_nodes, decide, loaded, make_node, reserve, serve, start
from store.serving.test_stop_first import reserve as reserve_instead
from store.serving.test_stop_first import serve_on, succeed


class Nobody:
    async def find_models(self, families: Collection[str]) -> frozenset[str]:
        raise AssertionError("all of these are ours")

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        raise AssertionError("all of these are ours")

    async def note_stopped(self, node_id: NodeId, process_keys: Sequence[str]) -> None:
        raise AssertionError("only LocalAI's workers stop processes unasked")

    async def find_stopped(self, node_id: NodeId, backend: str, models: Collection[str] = ()) -> str | None:
        raise AssertionError("all of these are ours")

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        raise AssertionError("all of these are ours")


class Words:
    """What was said of an operation's node."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def tell(self, _operation: str, _node: NodeId, words: str) -> None:
        self.told.append(words)

    async def has(self, words: str) -> bool | None:
        return words in self.told or None


PROCESS = ObservedProcess(
    process_key="tiny#0", model="tiny", replica=0, backend="llama-cpp", digest="sha256:1", state=ProcessStatus.READY
)
CHANGES = [ReplicaChange(process=PROCESS, digest="sha256:2")]


def make_rollout(stores: Stores, words: Words, clock: Clock | None = None, **limits: float) -> ReplicaRollout:
    clock = clock or SystemClock()
    return ReplicaRollout(
        stores, notify=lambda: None, others=Nobody(), report_step=words.tell, clock=clock, ids=IDS, **limits
    )


async def roll_out(
    rollout: ReplicaRollout,
    changes: Sequence[ReplicaChange],
    *,
    backend: str = "llama-cpp",
    operation_id: str = "o",
) -> None:
    async with asyncio.timeout(60):  # by itself it waits for a quarter of an hour
        await rollout.roll_out(NodeId("a"), changes, backend=backend, digest="sha256:2", operation_id=operation_id)


async def request_upgrade(stores: Stores) -> str:
    return (await stores.admission.admit(admission(Verb.UPGRADE, make_node("a"), backend="llama-cpp"))).id


async def methods(stores: Stores, operation_id: str) -> list[str]:
    return [one.method for one in (await stores.operations.read_one(operation_id)).nodes]


async def restore(rollout: ReplicaRollout, *, backend: str = "llama-cpp") -> Restored:
    async with asyncio.timeout(60):
        return await rollout.restore(NodeId("a"), backend=backend, digest="sha256:1")


async def fail_start(stores: Stores, job: LoadJob, error: str, *, digest: str = "sha256:2") -> None:
    """A version could not be started at its place."""
    await stores.load_claims.fail_on_node(job, error, draw=1.0, stop=False, digest=digest)


async def begin(stores: Stores, replica: Replica) -> LoadJob:
    """A load that is to take its place, under way."""
    successor = Add(why="it takes over", replaces=replica.id)
    await stores.load_jobs.request_loads(replica.model, replica.revision, [successor], ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    return job


async def fail_everywhere(stores: Stores, job: LoadJob) -> None:
    await reserve(stores, job)
    await fail_start(stores, job, "it does not start on a")
    [again] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    decision = await decide(stores, Need(model=job.model))
    error = "it does not start on a; it does not start on b"
    await stores.load_claims.cool_down(again, decision, error, until_ms=1 << 50)


async def rest(stores: Stores, model: str) -> None:
    """No machine is left to be tried."""
    [job] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    decision = await decide(stores, Need(model=model))
    await stores.load_claims.cool_down(job, decision, "it failed everywhere", until_ms=1 << 50)


async def stop_old(stores: Stores, job: LoadJob, old: Replica) -> Replica:
    """It makes room for the load that takes its place, which has got that."""
    new = await reserve_instead(stores, job, old)
    await stores.load_claims.stop_first(job, "its successor needs its memory")
    await stores.replicas.request_stop([old.id], why="idle")
    await stores.replicas.stopped(old)
    return new


async def are_forgotten(stores: Stores) -> bool | None:
    return not await stores.load_jobs.read_all() or None


async def test_a_load_that_fails_with_the_previous_version_proves_nothing_against_this_one(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=2))
    replica = await serve(stores)
    under_way = await begin(stores, replica)
    rollout = make_rollout(stores, Words())

    async def happen() -> None:
        await stores.load_claims.fail(under_way, "the version before does not start", again_in_s=300, stop=False)
        await wait_until_async(lambda: are_forgotten(stores), what="that is forgotten")
        await fail_everywhere(stores, await begin(stores, replica))

    rolled_out, happened = await asyncio.gather(roll_out(rollout, CHANGES), happen(), return_exceptions=True)
    assert happened is None
    assert isinstance(rolled_out, VersionFailed)
    assert str(rolled_out) == "it does not start on a", "of its own node, as others tell of theirs"


async def test_a_rollout_is_not_over_while_the_old_version_still_answers(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=2))
    replica, words = await serve(stores), Words()
    under_way = await begin(stores, replica)
    await reserve(stores, under_way)
    rollout, job = make_rollout(stores, words), await request_upgrade(stores)
    rolling_out = asyncio.create_task(roll_out(rollout, CHANGES, operation_id=job))
    await wait_until_async(lambda: words.has("starting the new version alongside the old one"), what="it starts")
    assert await methods(stores, job) == [""], "a replica may still be stopped first"
    await stores.load_claims.finish(under_way, loaded(process_key="tiny#1", backend_digest="sha256:2"))
    await wait_until_async(lambda: words.has("waiting for open requests on the old version"), what="it drains")
    assert not rolling_out.done()
    await stores.replicas.request_stop([replica.id], why="idle")
    await stores.replicas.stopped(replica)
    await asyncio.wait_for(rolling_out, 10)
    assert await methods(stores, job) == ["rolling"]


async def test_a_rollout_that_stopped_the_old_version_first_waits_for_the_new_one(stores: Stores) -> None:
    """Also where another frontend began it: the worker shows no old process any more, and nothing serves yet."""
    served, words = await serve_on(stores, "a"), Words()
    [job] = await succeed(stores, served["a"])
    await stop_old(stores, job, served["a"])
    rollout, operation = make_rollout(stores, words), await request_upgrade(stores)
    rolling_out = asyncio.create_task(roll_out(rollout, [], operation_id=operation))
    await wait_until_async(lambda: words.has(STOP_FIRST_REASON), what="that is said")
    assert not rolling_out.done()
    await stores.load_claims.finish(job, loaded(process_key="tiny#1", backend_digest="sha256:2"))
    await asyncio.wait_for(rolling_out, 10)
    assert await methods(stores, operation) == ["stop-first"]


async def test_what_was_stopped_for_a_version_that_does_not_start_is_started_again(stores: Stores) -> None:
    served = await serve_on(stores, "a")
    [job] = await succeed(stores, served["a"])
    await stop_old(stores, job, served["a"])
    await fail_start(stores, job, "the engine is on fire")
    await rest(stores, "tiny")
    rollout = make_rollout(stores, Words())
    with pytest.raises(VersionFailed, match="the engine is on fire"):
        await roll_out(rollout, [])
    restoring = asyncio.create_task(restore(rollout))

    async def claimed() -> list[LoadJob] | None:
        return await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9) or None

    [again] = await wait_until_async(claimed, what="it is tried again at once")
    await reserve(stores, again)
    await stores.load_claims.finish(again, loaded())
    assert (await asyncio.wait_for(restoring, 10)).was_stopped
    assert not (await restore(rollout)).was_stopped


async def test_a_load_that_was_there_before_the_rollout_and_stops_the_old_version_for_a_broken_one_fails_the_rollout(
    stores: Stores,
) -> None:
    served, words = await serve_on(stores, "a"), Words()
    [job] = await succeed(stores, served["a"])
    rollout = make_rollout(stores, words)
    rolling_out = asyncio.create_task(roll_out(rollout, CHANGES))
    await wait_until_async(lambda: words.has("starting the new version alongside the old one"), what="it is looked at")
    await stop_old(stores, job, served["a"])
    await fail_start(stores, job, "the engine is on fire")
    await rest(stores, "tiny")
    with pytest.raises(VersionFailed, match="the engine is on fire"):
        await asyncio.wait_for(rolling_out, 10)
    [left] = await stores.load_jobs.read_all()
    assert (left.id, left.stop_first_node) == (job.id, "a"), "what brings the old one back is still there"


async def test_a_rollout_is_not_over_when_the_load_for_which_the_old_version_was_stopped_has_ended(
    stores: Stores,
) -> None:
    served, words = await serve_on(stores, "a"), Words()
    await stores.scheduling.save(Scheduling(model="tiny", min_replicas=1), actor="ann", ids=IDS)
    [job] = await succeed(stores, served["a"])
    new = await stop_old(stores, job, served["a"])
    rolling_out = asyncio.create_task(roll_out(make_rollout(stores, words), []))
    await wait_until_async(lambda: words.has(STOP_FIRST_REASON), what="that is said")
    await stores.load_claims.end(job, "its model was changed")
    await stores.replicas.stopped(new)
    await wait_until_async(lambda: words.has("waiting for the new version to serve"), what="nothing serves")
    assert not rolling_out.done()
    again = await start(stores)
    await reserve(stores, again)
    await stores.load_claims.finish(again, loaded(process_key="tiny#0", backend_digest="sha256:2"))
    await asyncio.wait_for(rolling_out, 10)


async def test_a_rollout_ends_when_the_model_that_was_stopped_for_it_is_unloaded(stores: Stores) -> None:
    served, words = await serve_on(stores, "a"), Words()
    [job] = await succeed(stores, served["a"])
    await stop_old(stores, job, served["a"])
    rolling_out = asyncio.create_task(roll_out(make_rollout(stores, words), []))
    await wait_until_async(lambda: words.has(STOP_FIRST_REASON), what="that is said")
    await stores.load_jobs.cancel("tiny", why="somebody unloads it")
    await asyncio.wait_for(rolling_out, 10)


async def test_what_another_backend_stopped_on_the_node_is_not_this_switchs(stores: Stores) -> None:
    served, words = await serve_on(stores, "a"), Words()
    [job] = await succeed(stores, served["a"])
    await stop_old(stores, job, served["a"])
    await fail_start(stores, job, "the engine is on fire")
    await rest(stores, "tiny")
    rollout = make_rollout(stores, words)
    await asyncio.wait_for(roll_out(rollout, [], backend="whisper"), 10)
    assert not (await restore(rollout, backend="whisper")).was_stopped
    [left] = await stores.load_jobs.read_all()
    assert not left.active, "it is its own operation's to be tried again"


async def test_a_load_that_fails_for_another_reason_proves_nothing_against_the_version(stores: Stores) -> None:
    served, words = await serve_on(stores, "a"), Words()
    rolling_out = asyncio.create_task(roll_out(make_rollout(stores, words), CHANGES))
    await wait_until_async(lambda: words.has("starting the new version alongside the old one"), what="it is looked at")
    [job] = await succeed(stores, served["a"])
    await stores.load_claims.fail(job, "its place was taken by others 16 times", again_in_s=0.0, stop=False)
    failed = "retrying the new version, because its last load failed: its place was taken by others 16 times"
    await wait_until_async(lambda: words.has(failed), what="it is said")
    [again] = await succeed(stores, served["a"])
    await reserve_instead(stores, again, served["a"])
    await fail_start(stores, again, "its weights cannot be fetched", digest="")
    await rest(stores, "tiny")
    failed = "retrying the new version, because its last load failed: it failed everywhere"
    await wait_until_async(lambda: words.has(failed), what="that was looked at, too")
    assert not rolling_out.done(), "nor does what fails before the start"
    rolling_out.cancel()


async def test_a_failed_start_of_the_previous_version_proves_nothing_against_this_one(stores: Stores) -> None:
    """The fix for what does not start has to get its turn."""
    served, words = await serve_on(stores, "a"), Words()
    [job] = await succeed(stores, served["a"])
    await stop_old(stores, job, served["a"])
    await fail_start(stores, job, "the engine is on fire", digest="sha256:broken")
    await rest(stores, "tiny")
    rolling_out = asyncio.create_task(roll_out(make_rollout(stores, words), []))

    async def claimed() -> list[LoadJob] | None:
        return await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9) or None

    [again] = await wait_until_async(claimed, what="it is tried again at once")
    assert not rolling_out.done()
    await reserve(stores, again)
    await stores.load_claims.finish(again, loaded(process_key="tiny#1", backend_digest="sha256:2"))
    await asyncio.wait_for(rolling_out, 10)


async def test_what_was_stopped_first_is_known_to_another_frontend_though_its_load_has_ended(
    stores: Stores,
) -> None:
    served, words = await serve_on(stores, "a"), Words()
    await stores.scheduling.save(Scheduling(model="tiny", min_replicas=1), actor="ann", ids=IDS)
    [job] = await succeed(stores, served["a"])
    new = await stop_old(stores, job, served["a"])
    await stores.load_claims.end(job, "its model was changed")
    await stores.replicas.stopped(new)
    rollout = make_rollout(stores, words)
    rolling_out = asyncio.create_task(roll_out(rollout, []))
    await wait_until_async(lambda: words.has("waiting for the new version to serve"), what="nothing serves")
    assert not rolling_out.done()
    again = await start(stores)
    await reserve(stores, again)
    await fail_start(stores, again, "the engine is on fire")
    with pytest.raises(VersionFailed, match="the engine is on fire"):
        await asyncio.wait_for(rolling_out, 10)
    assert await rollout.find_stopped(NodeId("a"), "llama-cpp") == "sha256:1"
    [left] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    await stores.load_claims.end(left, "its model was changed")
    restored = await rollout.restore(NodeId("a"), backend="llama-cpp", digest="sha256:1", wait=False)
    assert restored.was_stopped
    [back] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    assert (back.replaces, back.stop_first_node) == (served["a"].id, "a")
    await reserve(stores, back)
    await stores.load_claims.finish(back, loaded())
    assert await rollout.find_stopped(NodeId("a"), "llama-cpp") is None
    assert not (await restore(rollout)).was_stopped


async def test_a_version_that_is_reverted_ends_the_loads_that_were_to_replace_what_serves(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=2))
    replica = await serve(stores)
    under_way = await begin(stores, replica)
    place = await reserve(stores, under_way)
    restored = await restore(make_rollout(stores, Words()))
    assert not restored.was_stopped
    states = {row.id: row.state for row in await stores.replicas.read_all()}
    assert states == {replica.id: ReplicaState.READY, place.id: ReplicaState.STOPPING}
    assert await stores.load_jobs.read_all() == []
    with pytest.raises(Fenced):
        await stores.load_claims.finish(under_way, loaded(process_key="tiny#1", backend_digest="sha256:2"))


async def test_a_load_for_which_the_old_version_is_being_stopped_continues_when_the_new_one_is_reverted(
    stores: Stores,
) -> None:
    """With the version that is current by then: something has to serve again."""
    served = await serve_on(stores, "a")
    [job] = await succeed(stores, served["a"])
    await reserve_instead(stores, job, served["a"])
    await stores.load_claims.stop_first(job, "its successor needs its memory")
    restored = await make_rollout(stores, Words()).restore(
        NodeId("a"), backend="llama-cpp", digest="sha256:1", wait=False
    )
    assert restored.was_stopped
    [again] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    await stores.load_claims.finish(again, loaded(process_key="tiny#1"))


async def run_out_of_time(clock: HeldClock, words: Words) -> None:
    """After the rollout has read the present state: a read that is under way may be older."""
    told = len(words.told)

    async def is_read() -> bool:
        return len(words.told) >= told + 2

    await wait_until_async(is_read, what="the state is read")
    clock.now_s += 2


@pytest.mark.parametrize("why", ["failed", "waits"])
async def test_a_stalled_rollout_ends_with_what_stands_in_its_way(stores: Stores, why: str) -> None:
    served, words, clock = await serve_on(stores, "a"), Words(), HeldClock()
    rollout = make_rollout(stores, words, clock, within_s=1.5, report_again_s=0)
    rolling_out = asyncio.create_task(roll_out(rollout, CHANGES))
    await wait_until_async(lambda: words.has("starting the new version alongside the old one"), what="it is looked at")
    [job] = await succeed(stores, served["a"])
    if why == "failed":
        await stores.load_claims.fail(job, "there is no room for it", again_in_s=300, stop=False)
    else:
        decision = await decide(stores, Need(model="tiny"))
        await stores.load_claims.wait(job, decision, "there is no room for it", again_in_s=300)
    await run_out_of_time(clock, words)
    with pytest.raises(RolloutStalled, match="there is no room for it"):
        await rolling_out


async def test_a_rollout_that_waits_for_its_turn_has_not_failed(stores: Stores) -> None:
    """Of many replicas one is stopped after the other."""
    served, words, clock = await serve_on(stores, "a"), Words(), HeldClock()
    rollout = make_rollout(stores, words, clock, within_s=1.5, report_again_s=0)
    rolling_out = asyncio.create_task(roll_out(rollout, CHANGES))
    await wait_until_async(lambda: words.has("starting the new version alongside the old one"), what="it is looked at")
    [job] = await succeed(stores, served["a"])
    decision = await decide(stores, Need(model="tiny"))
    await stores.load_claims.wait(job, decision, OTHERS_FIRST_REASON, again_in_s=300)
    await run_out_of_time(clock, words)
    with pytest.raises(TimedOut):
        await rolling_out


async def test_a_rollout_whose_load_is_in_progress_has_not_failed(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=2))
    replica = await serve(stores)
    await reserve(stores, await begin(stores, replica))
    with pytest.raises(TimedOut):
        await asyncio.wait_for(roll_out(make_rollout(stores, Words(), within_s=1.0), CHANGES), 20)


async def test_a_phase_that_lasts_is_told_again(stores: Stores) -> None:
    await serve_on(stores, "a")
    words = Words()
    rolling_out = asyncio.create_task(roll_out(make_rollout(stores, words, report_again_s=0.1), CHANGES))

    async def told_again() -> bool:
        return words.told.count("starting the new version alongside the old one") >= 3

    await wait_until_async(told_again, what="it is told again")
    rolling_out.cancel()


async def test_a_thousand_rollouts_cost_no_more_reads_than_one() -> None:
    reads: list[int] = []

    async def read(nodes: Collection[str]) -> ReplacementView:
        reads.append(len(nodes))
        return ReplacementView(replicas={node: [] for node in nodes})

    shared = SharedSnapshot(read, SystemClock())

    async def wait(node: str) -> None:
        for _ in range(3):
            view = await shared.read(node)
            assert node in view.replicas

    began_s = SystemClock().monotonic_s()
    await asyncio.gather(*(wait(f"n{number}") for number in range(1000)))
    assert sum(reads) == 3000
    assert len(reads) <= (SystemClock().monotonic_s() - began_s) / READ_EVERY_S + 1


async def test_a_read_that_fails_fails_for_those_who_wait_for_it_alone() -> None:
    fails = [Unavailable("the store does not answer")]

    async def read(nodes: Collection[str]) -> ReplacementView:
        if fails:
            raise fails.pop()
        return ReplacementView(replicas={node: [] for node in nodes})

    shared = SharedSnapshot(read, SystemClock())
    found = await asyncio.gather(shared.read("a"), shared.read("b"), return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable, Unavailable]
    assert "a" in (await shared.read("a")).replicas


async def test_one_read_shows_every_node_what_is_its_own(stores: Stores) -> None:
    served = await serve_on(stores, "a", "b")
    first, _ = await succeed(stores, served["a"], served["b"])
    await reserve_instead(stores, first, served["a"])
    await stores.load_claims.stop_first(first, "its successor needs its memory")
    view = await stores.replacements.read({"a", "b", "c"})
    assert {node: len(rows) for node, rows in view.replicas.items()} == {"a": 2, "b": 1, "c": 0}
    assert [(one.node_id, one.model, one.digest) for one in view.stopped["a"]] == [("a", "tiny", "sha256:1")]
    assert [job.replaces for job in view.jobs_for["a"]] == [served["a"].id]
    assert [job.replaces for job in view.jobs_for[served["b"].id]] == [served["b"].id]
    assert len(view.jobs) == 2
