"""Where a node's memory does not hold two copies: the place of the new replica is reserved in the memory of the old
one, which is stopped for it."""

import pytest

from corral.core.errors import Conflict, Fenced
from corral.core.replicas.placement import GIB, Decision, Need, place, place_instead
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.scaling import Add, Scheduling
from corral.store.engine.database import Tx
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.load_jobs import Restoring
from corral.store.stores import Stores
from store.serving.test_replicas import IDS, LEASE_S, TINY, add_nodes, loaded, make_node, nobody

NEED = Need(model="tiny", measured_bytes={"cpu": 20 * GIB})


async def serve_on(stores: Stores, *names: str) -> dict[str, Replica]:
    """One on each node, whose figures already have what it takes."""
    await add_nodes(stores, *(make_node(name, available_ram=32 * GIB, last_heartbeat=1 << 50) for name in names))
    revision = (await stores.models.save(TINY, "ann")).revision
    await stores.load_jobs.request_loads("tiny", revision, [Add(why="", node_id=name) for name in names], ids=IDS)
    served = {}
    for job in await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9):
        need = Need(model="tiny", measured_bytes=NEED.measured_bytes, only_node=job.target_node)
        decision = place(need, (await stores.replicas.read_fleet(nobody)).capacities)
        await stores.load_claims.reserve(job, need, decision, nobody, ids=IDS)
        replica = await stores.load_claims.finish(job, loaded())
        served[replica.node_id] = replica
    for name in names:
        await set_free(stores, name, 12 * GIB)
    return served


async def set_free(stores: Stores, node: str, free: int) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute("UPDATE nodes SET available_ram = $2 WHERE id = $1", node, free)

    await stores.database.write(body)


async def succeed(stores: Stores, *replaced: Replica) -> list[LoadJob]:
    """Loads that are to take their places, under way."""
    adds = [Add(why="its backend was changed", replaces=replica.id) for replica in replaced]
    await stores.load_jobs.request_loads("tiny", replaced[0].revision, adds, ids=IDS)
    jobs = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    return sorted(jobs, key=lambda job: [replica.id for replica in replaced].index(str(job.replaces)))


async def decide(stores: Stores, replica: Replica) -> Decision:
    need = Need(model="tiny", measured_bytes=NEED.measured_bytes, replaces=replica.id, surge_on=replica.node_id)
    decision = place_instead(need, (await stores.replicas.read_fleet(nobody)).capacities, replica.id)
    assert decision is not None
    return decision


async def reserve(stores: Stores, job: LoadJob, replica: Replica) -> Replica:
    decision = await decide(stores, replica)
    return await stores.load_claims.reserve(job, decision.need, decision, nobody, ids=IDS)


async def restore(stores: Stores, backend: str, *, digest: str = "sha256:1") -> Restoring:
    return await stores.load_jobs.restore("a", backend, digest=digest, ids=IDS)


async def job_of(stores: Stores, job: LoadJob) -> LoadJob:
    return next(one for one in await stores.load_jobs.read_all() if one.id == job.id)


async def test_the_place_is_taken_while_the_old_one_serves_and_nobody_else_gets_its_memory(stores: Stores) -> None:
    served = await serve_on(stores, "a")
    [job] = await succeed(stores, served["a"])
    new = await reserve(stores, job, served["a"])
    assert (new.node_id, new.slot, (await job_of(stores, job)).stop_first_node) == ("a", 1, "a")
    assert [row.state for row in await stores.replicas.read_all()] == [ReplicaState.READY, ReplicaState.STARTING]
    [room] = (await stores.replicas.read_fleet(nobody)).capacities
    assert room.free_memory is not None
    assert room.free_memory < 0, "what the old one gives back is the new one's"

    old = await stores.load_claims.stop_first(job, "its successor needs its memory")
    assert old is not None
    states = {row.id: row.state for row in await stores.replicas.read_all()}
    assert states == {served["a"].id: ReplicaState.DRAINING, new.id: ReplicaState.STARTING}
    await stores.replicas.request_stop([old.id], why="idle")
    await stores.replicas.stopped(old)
    assert await stores.load_claims.stop_first(job, "asked again after a restart") is None
    await stores.load_claims.finish(job, loaded(process_key="tiny#1"))
    assert [row.state for row in await stores.replicas.read_all()] == [ReplicaState.READY]


async def test_what_failed_before_anything_was_stopped_stops_nothing(stores: Stores) -> None:
    served = await serve_on(stores, "a")
    [job] = await succeed(stores, served["a"])
    await reserve(stores, job, served["a"])
    await stores.load_claims.fail_on_node(job, "its weights cannot be fetched", draw=1.0, stop=False)
    assert (await job_of(stores, job)).stop_first_node is None
    assert (await restore(stores, "llama-cpp")).jobs == ()


async def stop_for_successor(stores: Stores) -> LoadJob:
    """A replica has stopped, and the load that replaces it has its place."""
    served = await serve_on(stores, "a")
    [job] = await succeed(stores, served["a"])
    await reserve(stores, job, served["a"])
    old = await stores.load_claims.stop_first(job, "its successor needs its memory")
    assert old is not None
    await stores.replicas.request_stop([old.id], why="idle")
    await stores.replicas.stopped(old)
    return job


async def test_a_replica_stopped_for_a_failed_load_is_loaded_again_at_once_with_the_previous_version(
    stores: Stores,
) -> None:
    job = await stop_for_successor(stores)
    await stores.load_claims.fail_on_node(job, "the engine is on fire", draw=1.0, stop=False)
    [again] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    assert again.stop_first_node == "a", "it is known that something was stopped for it"
    await stores.load_claims.fail(again, "the engine is on fire", again_in_s=300, stop=False)
    assert await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9) == []
    assert (await restore(stores, "llama-cpp")).jobs == (job.id,)
    assert await stores.load_backoff.read("tiny", job.revision) == {}
    assert [one.id for one in await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)] == [job.id]


async def test_a_load_of_a_version_that_is_reverted_restarts_at_once_on_any_frontend(stores: Stores) -> None:
    job = await stop_for_successor(stores)
    assert (await restore(stores, "llama-cpp")).jobs == (job.id,)
    with pytest.raises(Fenced):
        await stores.load_claims.renew(job, lease_s=LEASE_S)
    [again] = await stores.load_claims.claim("f2", lease_s=LEASE_S, most=9)
    assert (again.id, again.owner, again.replica_id) == (job.id, "f2", (await job_of(stores, job)).replica_id)


async def test_of_several_replicas_one_is_stopped_after_the_other(stores: Stores) -> None:
    served = await serve_on(stores, "a", "b")
    await stores.scheduling.save(Scheduling(model="tiny", min_replicas=2), actor="ann", ids=IDS)
    first, second = await succeed(stores, served["a"], served["b"])
    fleet = await stores.replicas.read_fleet(nobody)
    assert not await stores.load_claims.must_wait_to_stop(first, fleet)
    await reserve(stores, first, served["a"])
    assert await stores.load_claims.must_wait_to_stop(second, fleet)
    with pytest.raises(Conflict):
        await reserve(stores, second, served["b"])
    await stores.load_claims.wait(second, await decide(stores, served["b"]), "other replicas first", again_in_s=300)
    await stores.load_claims.finish(first, loaded(process_key="tiny#1"))
    assert [job.id for job in await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)] == [second.id]


async def stop_in_vain(stores: Stores, error: str) -> LoadJob:
    """A replica was stopped for a load that failed, and that is due again."""
    job = await stop_for_successor(stores)
    await stores.load_claims.fail(job, error, again_in_s=0.0, stop=False)
    return job


async def test_a_request_takes_up_the_load_for_which_a_replica_was_stopped(stores: Stores) -> None:
    job = await stop_in_vain(stores, "the engine is on fire")
    again = await stores.load_jobs.request_load("tiny", job.revision, cause="a request", ids=IDS)
    assert isinstance(again, LoadJob)
    assert (again.id, again.active, again.stop_first_node, again.replaces) == (job.id, True, "a", job.replaces)


async def test_an_edit_does_not_forget_that_a_replica_was_stopped(stores: Stores) -> None:
    job = await stop_in_vain(stores, "the engine is on fire")
    await stores.models.save(f"{TINY}context_size: 512\n", "ann")
    assert (await job_of(stores, job)).stop_first_node == "a"
    await stores.load_jobs.retry_now("tiny")
    assert (await job_of(stores, job)).stop_first_node == "a"


async def test_only_the_loads_of_the_backend_that_went_back_are_tried_again(stores: Stores) -> None:
    job = await stop_in_vain(stores, "the engine is on fire")
    assert (await restore(stores, "whisper")).jobs == ()
    assert not (await job_of(stores, job)).active
    assert (await restore(stores, "llama-cpp")).jobs == (job.id,)
