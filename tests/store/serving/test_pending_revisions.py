"""Edits of models that serve: what waits until it has proven itself, and what becomes of the one before."""

import asyncio

import pytest

from corral.core.errors import Conflict, NotFound
from corral.core.replicas.footprints import FootprintKey, Peak
from corral.core.replicas.placement import Need
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.scaling import Add
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.revision_rows import MAX_REVISIONS
from corral.store.stores import Stores
from harness.databases import Rig
from store.serving.test_replicas import IDS, TINY, add_nodes, loaded, make_node, reserve, serve

NEW = TINY + "threads: 2\n"


async def served(stores: Stores) -> list[str]:
    """The revisions that requests may get an answer from."""
    routes = {route.model: route for route in (await stores.replicas.read_routes()).routes}
    return [replica.revision for replica in routes["tiny"].replicas]


async def begin_canary(stores: Stores, replaced: Replica) -> LoadJob:
    pending = (await stores.models.read("tiny")).pending
    assert pending is not None
    add = Add(why="it was edited", replaces=replaced.id, canary=True)
    await stores.load_jobs.request_loads("tiny", pending.revision, [add], ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=10, most=9)
    return job


async def place_beside(stores: Stores, job: LoadJob, replaced: Replica) -> Replica:
    return await reserve(stores, job, Need(model="tiny", surge_on=replaced.node_id))


async def test_an_edit_of_a_model_that_serves_waits_and_the_one_before_serves_on(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    saved = await stores.models.save(NEW, "bob", expected=before.revision)
    assert saved.pending is not None
    assert (saved.revision, saved.newest.text, saved.newest.changed_by) == (before.revision, NEW, "bob")
    assert await served(stores) == [before.revision]
    assert await stores.models.save(NEW, "bob") == saved, "saving the same again changes nothing"
    with pytest.raises(Conflict, match="changed in the meantime, by bob"):
        await stores.models.save(TINY + "threads: 3\n", "ann", expected=before.revision)
    assert [item.text for item in await stores.models.read_revisions("tiny")] == [NEW, TINY]


async def test_the_first_replica_that_is_ready_makes_it_the_current_one(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    pending = (await stores.models.save(NEW, "bob")).pending
    assert pending is not None
    job = await begin_canary(stores, before)
    await place_beside(stores, job, before)
    assert await served(stores) == [before.revision], "a load under way changes nothing"
    versions = await stores.models.read_version(), await stores.replicas.read_version()
    await stores.load_claims.finish(job, loaded(process_key="tiny#1"))
    now = await stores.models.read("tiny")
    assert (now.revision, now.text, now.changed_by, now.pending) == (pending.revision, NEW, "bob", None)
    assert now.changed_at == pending.changed_at
    assert await served(stores) == [pending.revision]
    assert versions < (await stores.models.read_version(), await stores.replicas.read_version())
    states = {row.id: row.state for row in await stores.replicas.read_all()}
    assert states[before.id] is ReplicaState.DRAINING


async def test_one_that_cannot_be_loaded_stays_pending_with_the_reason(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    await stores.models.save(NEW, "bob")
    job = await begin_canary(stores, before)
    await place_beside(stores, job, before)
    await stores.load_claims.fail(job, "a could not start tiny: no such file", again_in_s=60, stop=False)
    model = await stores.models.read("tiny")
    assert model.pending is not None
    assert (model.pending.reason, model.pending.failures, model.pending.held) == (
        "a could not start tiny: no such file", 1, False,
    )  # fmt: skip
    assert await served(stores) == [before.revision]
    [failed] = await stores.load_jobs.read_all()
    assert not failed.active
    again = (await stores.models.save(TINY + "threads: 3\n", "bob")).pending
    assert again is not None
    assert (again.reason, again.failures) == ("", 0)
    assert await stores.load_jobs.read_all() == [], "the next one does not wait for what failed"


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("ending", ["fail", "fail_on_node"])
async def test_where_the_one_before_had_to_stop_first_it_is_loaded_again(
    stores: Stores, ending: str, others: int
) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    before = await serve(stores)
    if others:
        await stores.load_jobs.request_loads("tiny", before.revision, [Add(why="more are wanted")], ids=IDS)
        [job] = await stores.load_claims.claim("f1", lease_s=10, most=9)
        await reserve(stores, job, Need(model="tiny", variant_problems={before.node_id: "not here"}))
        await stores.load_claims.finish(job, loaded())
    await stores.models.save(NEW, "bob")
    job = await begin_canary(stores, before)
    await stores.replicas.request_stop([before.id], why="it makes room")
    await stores.replicas.stopped(before)
    await reserve(stores, job)
    if ending == "fail":
        await stores.load_claims.fail(job, "it did not start", again_in_s=60, stop=False)
    else:
        await stores.load_claims.fail_on_node(job, "it did not start", draw=0.5, stop=False)
    model = await stores.models.read("tiny")
    assert model.pending is not None
    assert (model.pending.held, model.pending.failures) == (True, 1)
    [again] = await stores.load_claims.claim("f2", lease_s=10, most=9)
    assert (again.id, again.revision, again.replaces) == (job.id, before.revision, None)
    await reserve(stores, again)
    await stores.load_claims.finish(again, loaded())
    assert await served(stores) == [before.revision] * (1 + others)
    assert (await stores.models.read("tiny")).pending is not None, "finishing the one before proves nothing of the new"
    await stores.load_jobs.retry_now("tiny")
    asked_for = (await stores.models.read("tiny")).pending
    assert asked_for is not None
    assert not asked_for.held, "somebody wants it tried"


async def test_what_no_process_is_started_with_takes_effect_at_once(stores: Stores) -> None:
    """The same process serves on, under the new revision, and with what was learned of it."""
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    key = FootprintKey("tiny", before.revision, "sha256:1", "cpu", 0, "cpu")
    await stores.footprints.record_peaks({key: Peak(5 << 30, 8)})
    text = TINY + "description: small\naliases: [small]\nsystem_prompt: Be brief.\nstopwords: [x]\npinned: true\n"
    saved = await stores.models.save(text, "bob")
    assert (saved.pending, saved.aliases) == (None, ("small",))
    assert saved.revision != before.revision
    assert await served(stores) == [saved.revision]
    assert await stores.footprints.read_peaks("tiny", saved.revision) == {"cpu": Peak(5 << 30, 8)}
    [row] = await stores.replicas.read_all()
    assert (row.id, row.state) == (before.id, ReplicaState.READY)


async def test_a_load_under_way_goes_on_where_the_edit_does_not_concern_it(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    stored = await stores.models.save(TINY, "ann")
    await stores.load_jobs.request_load("tiny", stored.revision, cause="a request", ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=10, most=9)
    await reserve(stores, job)
    saved = await stores.models.save(TINY + "description: small\n", "bob")
    await stores.load_claims.finish(job, loaded())
    assert await served(stores) == [saved.revision]


async def test_where_nothing_serves_the_new_one_is_simply_used(stores: Stores) -> None:
    await stores.models.save(TINY, "ann")
    saved = await stores.models.save(NEW, "bob")
    assert (saved.text, saved.pending) == (NEW, None)


async def test_going_back_discards_the_pending_one(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    await stores.models.save(NEW, "bob")
    job = await begin_canary(stores, before)
    await place_beside(stores, job, before)
    saved = await stores.models.save(TINY, "bob")
    assert (saved.revision, saved.pending) == (before.revision, None)
    with pytest.raises(Conflict, match="changed while it was loading"):
        await stores.load_claims.finish(job, loaded(process_key="tiny#1"))
    assert await served(stores) == [before.revision]


async def test_of_two_edits_in_a_row_only_the_newest_takes_over(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    await stores.models.save(NEW, "bob")
    job = await begin_canary(stores, before)
    await place_beside(stores, job, before)
    newest = await stores.models.save(TINY + "threads: 3\n", "bob")
    with pytest.raises(Conflict, match="changed while it was loading"):
        await stores.load_claims.finish(job, loaded(process_key="tiny#1"))
    assert await served(stores) == [before.revision]
    assert newest.pending is not None
    assert newest.pending.text.endswith("threads: 3\n")


async def test_a_pending_one_is_used_once_the_model_was_unloaded(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    pending = (await stores.models.save(NEW, "bob")).pending
    assert pending is not None
    await stores.models.apply_pending("tiny", pending.revision)
    assert (await stores.models.read("tiny")).pending is not None, "not while one serves"
    await stores.replicas.request_stop([before.id], why="unloaded")
    await stores.models.apply_pending("tiny", "another")
    assert (await stores.models.read("tiny")).pending is not None
    await stores.models.apply_pending("tiny", pending.revision)
    now = await stores.models.read("tiny")
    assert (now.revision, now.pending) == (pending.revision, None)


@pytest.mark.parametrize("how", ["deleted", "disabled", "redirected"])
async def test_what_is_to_serve_no_more_leaves_the_routes_in_the_same_transaction(stores: Stores, how: str) -> None:
    """Another model of the same name is never answered by its replicas."""
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    await stores.models.save("name: other\nbackend: x\n", "ann")
    await stores.models.save(NEW, "bob")
    if how == "deleted":
        await stores.models.delete("tiny", "bob")
    else:
        more = "disabled: true\n" if how == "disabled" else ""
        await stores.models.save(NEW + more if more else "name: tiny\nalias: other\n", "bob")
    [row] = await stores.replicas.read_all()
    assert (row.id, row.state) == (before.id, ReplicaState.DRAINING)
    again = await stores.models.save(TINY, "ann")
    assert again.pending is None
    assert await served(stores) == []


async def test_the_configuration_of_every_revision_that_serves_can_be_read(stores: Stores) -> None:
    first = await stores.models.save(TINY, "ann")
    second = await stores.models.save(NEW, "ann")
    assert (await stores.models.read_config("tiny", first.revision)).document.get("threads") is None
    assert (await stores.models.read_config("tiny", second.revision)).document["threads"] == 2
    with pytest.raises(NotFound, match="no longer exists"):
        await stores.models.read_config("tiny", "f" * 64)
    await stores.models.delete("tiny", "ann")
    with pytest.raises(NotFound):
        await stores.models.read_config("tiny", first.revision)


async def test_an_edit_and_the_load_it_overtakes_do_not_block_each_other(stores: Stores, rig: Rig) -> None:
    """Each takes what the other needs in the same order: one of them waits, and neither fails."""
    other = Stores(await rig.open())
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    for number in range(10):
        await stores.models.save(f"{TINY}threads: {number + 2}\n", "bob")
        job = await begin_canary(stores, before)
        await place_beside(stores, job, before)
        finished, _saved = await asyncio.gather(
            stores.load_claims.finish(job, loaded(process_key="tiny#1")),
            other.models.save(f"{TINY}threads: {number + 50}\n", "ann"),
            return_exceptions=True,
        )
        assert isinstance(finished, (Replica, Conflict)), finished
        model = await stores.models.read("tiny")
        assert model.newest.text.endswith(f"threads: {number + 50}\n")
        ready = [row for row in await stores.replicas.read_all() if row.state is ReplicaState.READY]
        assert [row.revision for row in ready] == [model.revision]
        before = ready[0]
        rest = [row.id for row in await stores.replicas.read_all() if row.id != before.id]
        await stores.load_jobs.cancel("tiny", why="the test goes on")
        await stores.replicas.request_stop(rest, why="the test goes on")
        for row in await stores.replicas.read_all():
            await stores.replicas.stopped(row)


async def history(stores: Stores) -> list[tuple[int, str, bool]]:
    """Number, state, and whether it has served; newest first."""
    return [
        (one.number, one.state.value, one.served_at is not None) for one in await stores.models.read_revisions("tiny")
    ]


async def test_the_history_tells_what_became_of_each_revision(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    assert await history(stores) == [(1, "current", True)]
    await stores.models.save(NEW, "bob", comment="faster")
    assert await history(stores) == [(2, "pending", False), (1, "current", True)]
    job = await begin_canary(stores, before)
    await place_beside(stores, job, before)
    await stores.load_claims.fail(job, "no such file", again_in_s=60, stop=False)
    failed, _ = await stores.models.read_revisions("tiny")
    assert (failed.state.value, failed.reason, failed.comment) == ("failed", "no such file", "faster")
    await stores.models.save(TINY + "threads: 3\n", "bob")
    await stores.models.save(TINY + "threads: 4\n", "bob")
    job = await begin_canary(stores, before)
    await place_beside(stores, job, before)
    await stores.load_claims.finish(job, loaded(process_key="tiny#1"))
    assert await history(stores) == [
        (4, "current", True), (3, "discarded", False), (2, "failed", False), (1, "superseded", True),
    ]  # fmt: skip
    assert (await stores.models.read("tiny")).number == 4
    await stores.models.delete("tiny", "bob")
    assert (await history(stores))[:2] == [(5, "deleted", False), (4, "superseded", True)]


async def test_saving_what_serves_discards_the_pending_revision(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    await stores.models.save(NEW, "bob")
    back = await stores.models.save(TINY, "ann")
    assert (back.pending, back.number, back.revision) == (None, 1, before.revision)
    assert await history(stores) == [(2, "discarded", False), (1, "current", True)]
    [event] = [one for one in await stores.events.read_latest(limit=50) if one.action == "model.revision_discarded"]
    assert (event.actor, event.detail["number"], event.detail["serving"]) == ("ann", 2, 1)


async def test_a_failure_is_told_once_for_each_reason(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    await stores.models.save(NEW, "bob")
    for reason in ("no such file", "no such file", "not enough memory"):
        job = await begin_canary(stores, before)
        await place_beside(stores, job, before)
        await stores.load_claims.fail(job, reason, again_in_s=0, stop=False)
    told = [
        one.detail["reason"]
        for one in await stores.events.read_latest(limit=50)
        if one.action == "model.revision_failed"
    ]
    assert sorted(told) == ["no such file", "not enough memory"]


async def test_a_revision_that_was_never_ready_names_the_one_to_restore(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    before = await serve(stores)
    assert await stores.models.read_restorable() == {}
    await stores.replicas.request_stop([before.id], why="it is idle")
    await stores.replicas.stopped(before)
    await stores.models.save(NEW, "bob")
    assert await stores.models.read_restorable() == {"tiny": 1}
    await stores.models.save(NEW + "description: small\n", "bob")
    assert await stores.models.read_restorable() == {"tiny": 1}, "the same load was not ready either"
    again = await stores.models.save(TINY, "bob")
    await stores.load_jobs.request_load("tiny", again.revision, cause="a request", ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=10, most=9)
    await reserve(stores, job)
    await stores.load_claims.finish(job, loaded())
    assert await stores.models.read_restorable() == {}


async def test_what_serves_is_never_pruned(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    await serve(stores)
    for number in range(MAX_REVISIONS + 5):
        await stores.models.save(f"{TINY}threads: {number}\n", "ann")
    kept = [(one.number, one.state.value) for one in await stores.models.read_revisions("tiny")]
    assert len(kept) == MAX_REVISIONS + 1
    assert kept[-1] == (1, "current")
