"""A switch to another version is waited for; what failed before it is told apart from what fails now."""

import asyncio
from collections.abc import Sequence

from corral.controller.switch import VersionFailed
from corral.controller.switching import ReplicaSwitcher
from corral.core.nodes import NodeId
from corral.core.observed import ObservedProcess
from corral.core.placement import Need
from corral.core.replicas import Replica
from corral.core.rollout import ReplicaChange
from corral.core.scaling import Add
from corral.store.load_job_rows import LoadJob
from corral.store.stores import Stores
from harness.waiting import wait_until_async
from store.test_replicas import IDS, LEASE_S, add_nodes, decide, make_node, reserve, serve


class Nobody:
    async def switch(self, node_id: NodeId, changes: Sequence[ReplicaChange], *, operation_id: str) -> None:
        raise AssertionError("all of these are ours")


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
    process = ObservedProcess(
        process_key="tiny#0", model="tiny", replica=0, backend="llama-cpp", digest="sha256:1", state="ready"
    )
    under_way = await begin(stores, replica)
    switcher = ReplicaSwitcher(stores, poke=lambda: None, others=Nobody())

    async def happen() -> None:
        await stores.load_claims.fail(under_way, "the version before does not start", again_in_s=300, stop=False)
        await wait_until_async(lambda: are_forgotten(stores), what="that is forgotten")
        await fail_everywhere(stores, await begin(stores, replica))

    changes = [ReplicaChange(process=process, digest="sha256:2")]
    switched, happened = await asyncio.gather(
        switcher.switch(NodeId("a"), changes, operation_id="o"), happen(), return_exceptions=True
    )
    assert happened is None
    assert isinstance(switched, VersionFailed)
    assert str(switched) == "it does not start on a", "of its own node, as others tell of theirs"
