"""Machines that failed a load, on both databases."""

from corral.core.replicas.load_jobs import LoadState
from corral.core.replicas.placement import Need
from corral.core.replicas.scaling import Add
from corral.store.serving.load_job_rows import LoadJob
from corral.store.stores import Stores
from harness.databases import Rig
from store.serving.test_replicas import IDS, LEASE_S, TINY, add_nodes, ask, decide, loaded, make_node, reserve, start


async def need_of(stores: Stores, job: LoadJob) -> Need:
    return Need(model=job.model, backoffs=await stores.load_backoff.read(job.model, job.revision))


async def claim(stores: Stores) -> LoadJob:
    [job] = await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9)
    return job


async def fail_on_node(stores: Stores, job: LoadJob, error: str = "its disk is full") -> str:
    replica = await reserve(stores, job, await need_of(stores, job))
    await stores.load_claims.fail_on_node(job, error, draw=1.0, stop=False)
    return replica.node_id


async def test_a_load_that_failed_on_one_node_is_due_at_once_for_another(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    first = await fail_on_node(stores, await start(stores))
    job = await claim(stores)
    assert (job.state, job.replica_id, job.attempts) == (LoadState.PENDING, None, 1)
    assert job.reason == "trying another node: its disk is full"
    assert await stores.replicas.read_all() == []
    replica = await reserve(stores, job, await need_of(stores, job))
    assert {first, replica.node_id} == {"a", "b"}
    await stores.load_claims.finish(job, loaded())
    assert set(await stores.load_backoff.read("tiny", job.revision)) == {first}, "who did it has no setback"


async def test_a_load_that_failed_everywhere_is_answered_with_the_cause_until_the_first_node_has_cooled_down(
    stores: Stores, rig: Rig
) -> None:
    await add_nodes(stores, make_node("a"))
    await fail_on_node(stores, await start(stores))
    job = await claim(stores)
    decision = await decide(stores, await need_of(stores, job))
    until_ms = getattr(decision.outcome, "until_ms", None)
    assert until_ms is not None, decision.outcome
    await stores.load_claims.cool_down(job, decision, "its disk is full", until_ms=until_ms)
    again = await ask(stores, job.revision)
    assert (again.state, again.last_error, again.due_at) == (LoadState.FAILED, "its disk is full", until_ms)
    await rig.advance(6)
    assert (await ask(stores, job.revision)).state is LoadState.PENDING
    assert (await need_of(stores, job)).backoffs["a"].cooling_down is False
    await fail_on_node(stores, await claim(stores))
    [twice] = (await stores.load_backoff.read("tiny", job.revision)).values()
    assert (twice.failures, twice.until_ms - twice.failed_at_ms) == (2, 10_000)


async def test_new_capacity_wakes_loads_that_failed_on_nodes_and_nothing_else(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    await fail_on_node(stores, await start(stores))
    job = await claim(stores)
    decision = await decide(stores, await need_of(stores, job))
    await stores.load_claims.cool_down(job, decision, "its disk is full", until_ms=1 << 50)
    other = await start(stores, "other", TINY.replace("tiny", "other"))
    await stores.load_claims.fail(other, "names no backend", again_in_s=300, stop=False)
    await stores.load_jobs.wake()
    assert (await ask(stores, job.revision)).state is LoadState.PENDING
    failed = await stores.load_jobs.request_load("other", other.revision, cause="a request", ids=IDS)
    assert isinstance(failed, LoadJob)
    assert failed.state is LoadState.FAILED


async def test_the_end_of_what_did_not_start_is_no_new_capacity_for_it(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    await reserve(stores, job, await need_of(stores, job))
    await stores.load_claims.fail_on_node(job, "exit code 1", draw=1.0, stop=True)
    job = await claim(stores)
    await stores.load_claims.cool_down(
        job, await decide(stores, await need_of(stores, job)), "exit code 1", until_ms=1 << 50
    )
    [ending] = await stores.replicas.claim_stops()
    await stores.replicas.stopped(ending)
    assert (await ask(stores, job.revision)).due_at == 1 << 50


async def test_load_backoff_ends_with_an_unload_a_delete_and_time(stores: Stores, rig: Rig) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    job = await start(stores)
    await fail_on_node(stores, job)
    await stores.load_jobs.cancel("tiny", why="unloaded")
    assert await stores.load_backoff.read("tiny", job.revision) == {}
    await fail_on_node(stores, await start(stores))
    await stores.models.delete("tiny", "ann")
    assert await stores.load_backoff.read("tiny", job.revision) == {}
    await stores.load_jobs.cancel("tiny", why="deleted")
    await fail_on_node(stores, await start(stores))
    await rig.advance(2 * 3600)
    assert await stores.load_backoff.read("tiny", job.revision) == {}


async def test_what_failed_is_tried_at_once_when_somebody_says_so(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    job = await start(stores)
    await fail_on_node(stores, job)
    await stores.load_jobs.retry_now("tiny", node_id="another")
    assert len(await stores.load_backoff.read("tiny", job.revision)) == 1
    await stores.load_jobs.retry_now("tiny")
    assert await stores.load_backoff.read("tiny", job.revision) == {}


async def test_a_late_failure_of_an_old_revision_leaves_the_new_ones_alone(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    old = await start(stores)
    replica = await reserve(stores, old)
    fresh = (await stores.models.save(TINY + "threads: 2\n", "ann")).revision
    await stores.load_jobs.request_loads("tiny", fresh, [Add(why="w")], ids=IDS)
    new = await claim(stores)
    failed = await fail_on_node(stores, new)
    await stores.load_claims.fail_on_node(old, "late", draw=0.0, stop=False)
    assert set(await stores.load_backoff.read("tiny", fresh)) == {failed}
    assert set(await stores.load_backoff.read("tiny", old.revision)) == {replica.node_id}
