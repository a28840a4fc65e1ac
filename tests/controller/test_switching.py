"""A switch to another version is waited for; what failed before it is told apart from what fails now."""

import asyncio
from collections.abc import Sequence

import pytest

from corral.controller.switch import Restored, VersionFailed
from corral.controller.switching import ReplicaSwitcher
from corral.core.nodes import NodeId
from corral.core.observed import ObservedProcess
from corral.core.placement import Need
from corral.core.replicas import Replica
from corral.core.rollout import STOP_FIRST_REASON, ReplicaChange
from corral.core.scaling import Add
from corral.store.load_job_rows import LoadJob
from corral.store.stores import Stores
from harness.waiting import wait_until_async
from store.test_replicas import IDS, LEASE_S, add_nodes, decide, loaded, make_node, reserve, serve
from store.test_stop_first import reserve as reserve_instead
from store.test_stop_first import serve_on, succeed


class Nobody:
    async def switch(self, node_id: NodeId, changes: Sequence[ReplicaChange], *, operation_id: str) -> None:
        raise AssertionError("all of these are ours")

    async def restore(self, node_id: NodeId) -> Restored:
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
    process_key="tiny#0", model="tiny", replica=0, backend="llama-cpp", digest="sha256:1", state="ready"
)
CHANGES = [ReplicaChange(process=PROCESS, digest="sha256:2")]


async def begin(stores: Stores, replica: Replica) -> LoadJob:
    """A load that is to take its place, under way."""
    successor = Add(why="it takes over", replaces=replica.id)
    await stores.load_jobs.ask_more(replica.model, replica.revision, [successor], ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    return job


async def fail_everywhere(stores: Stores, job: LoadJob) -> None:
    await reserve(stores, job)
    await stores.load_claims.fail_here(job, "it does not start on a", draw=1.0, stop=False)
    [again] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    decision = await decide(stores, Need(model=job.model))
    error = "it does not start on a; it does not start on b"
    await stores.load_claims.rest(again, decision, error, until_ms=1 << 50)


async def are_forgotten(stores: Stores) -> bool | None:
    return not await stores.load_jobs.read_all() or None


async def test_a_load_that_fails_with_the_version_before_says_nothing_of_this_one(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=2))
    replica = await serve(stores)
    under_way = await begin(stores, replica)
    switcher = ReplicaSwitcher(stores, poke=lambda: None, others=Nobody(), tell=Words().tell)

    async def happen() -> None:
        await stores.load_claims.fail(under_way, "the version before does not start", again_in_s=300, stop=False)
        await wait_until_async(lambda: are_forgotten(stores), what="that is forgotten")
        await fail_everywhere(stores, await begin(stores, replica))

    switched, happened = await asyncio.gather(
        switcher.switch(NodeId("a"), CHANGES, operation_id="o"), happen(), return_exceptions=True
    )
    assert happened is None
    assert isinstance(switched, VersionFailed)
    assert str(switched) == "it does not start on a", "of its own node, as others tell of theirs"


async def test_a_switch_is_not_over_while_the_old_version_still_answers(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", max_replicas_reported=2))
    replica, words = await serve(stores), Words()
    under_way = await begin(stores, replica)
    await reserve(stores, under_way)
    switcher = ReplicaSwitcher(stores, poke=lambda: None, others=Nobody(), tell=words.tell)
    switching = asyncio.create_task(switcher.switch(NodeId("a"), CHANGES, operation_id="o"))
    await wait_until_async(lambda: words.has("starting the new version beside the old one"), what="it starts")
    await stores.load_claims.finish(under_way, loaded(process_key="tiny#1", backend_digest="sha256:2"))
    await wait_until_async(lambda: words.has("waiting for open requests of the old version"), what="it drains")
    assert not switching.done()
    await stores.replicas.want_stopped([replica.id], why="idle")
    await stores.replicas.stopped(replica)
    await asyncio.wait_for(switching, 10)


async def test_a_switch_that_stopped_the_old_version_first_waits_for_the_new_one(stores: Stores) -> None:
    """Also where another frontend began it: the worker shows no old process any more, and nothing serves yet."""
    served, words = await serve_on(stores, "a"), Words()
    [job] = await succeed(stores, served["a"])
    await reserve_instead(stores, job, served["a"])
    await stores.load_claims.stop_first(job, "its successor needs its memory")
    await stores.replicas.want_stopped([served["a"].id], why="idle")
    await stores.replicas.stopped(served["a"])
    switcher = ReplicaSwitcher(stores, poke=lambda: None, others=Nobody(), tell=words.tell)
    switching = asyncio.create_task(switcher.switch(NodeId("a"), [], operation_id="o"))
    await wait_until_async(lambda: words.has(STOP_FIRST_REASON), what="that is said")
    assert not switching.done()
    await stores.load_claims.finish(job, loaded(process_key="tiny#1", backend_digest="sha256:2"))
    await asyncio.wait_for(switching, 10)


async def test_what_was_stopped_for_a_version_that_does_not_start_is_started_again(stores: Stores) -> None:
    served = await serve_on(stores, "a")
    [job] = await succeed(stores, served["a"])
    await reserve_instead(stores, job, served["a"])
    await stores.load_claims.stop_first(job, "its successor needs its memory")
    await stores.replicas.want_stopped([served["a"].id], why="idle")
    await stores.replicas.stopped(served["a"])
    await stores.load_claims.fail(job, "the engine is on fire", again_in_s=300, stop=False)
    switcher = ReplicaSwitcher(stores, poke=lambda: None, others=Nobody(), tell=Words().tell)
    with pytest.raises(VersionFailed, match="the engine is on fire"):
        await switcher.switch(NodeId("a"), [], operation_id="o")
    restoring = asyncio.create_task(switcher.restore(NodeId("a")))

    async def claimed() -> list[LoadJob] | None:
        return await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9) or None

    [again] = await wait_until_async(claimed, what="it is tried again at once")
    await reserve(stores, again)
    await stores.load_claims.finish(again, loaded())
    assert (await asyncio.wait_for(restoring, 10)).was_stopped
    assert not (await switcher.restore(NodeId("a"))).was_stopped
