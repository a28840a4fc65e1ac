"""Replicas, their loads and the places they take, on both databases."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from corral.core.errors import Conflict, Fenced
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.engine_capacity import EngineCapacity
from corral.core.nodes.node import Node, NodeId, NodeStatus, NodeType
from corral.core.nodes.observed import Observation, ObservedProcess, ProcessStatus
from corral.core.nodes.presence import Presence
from corral.core.processes.leases import NodeShare
from corral.core.replicas.availability import Availability
from corral.core.replicas.footprints import FootprintKey, Peak
from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.placement import GIB, Decision, Need, Placed, place
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.routing import ReplicaId
from corral.core.replicas.scaling import Add, Scheduling
from corral.store.engine.database import Tx
from corral.store.nodes.node_rows import encode_conditions, insert_node
from corral.store.serving.decisions import record_decision
from corral.store.serving.load_claims import ReplicaLoaded
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.load_jobs import NoLoadNeeded
from corral.store.serving.replica_rows import insert_replica
from corral.store.serving.revoked_processes import FORGET_AFTER_MS
from corral.store.stores import Stores
from corral.system import SystemIds
from harness.databases import Rig

IDS = SystemIds()
FULL_DISK = Condition(kind=ConditionKind.DISK_PRESSURE, reason="its disk has 1 MiB free", remedy="Free some.")
TINY = "name: tiny\nbackend: llama-cpp\nparameters: {model: tiny.gguf}\n"
LEASE_S = 10.0


def nobody(_replica: str) -> int:
    return 0


def make_node(name: str, **changes: Any) -> Node:
    plain = Node(
        id=NodeId(name),
        name=name,
        node_type=NodeType.BACKEND,
        approved=True,
        drain_requested=False,
        worker_draining=False,
        presence=Presence.LIVE,
        presence_reason="",
        address=f"{name}:1",
        http_address=f"{name}:2",
        key_hash=None,
        instance="i",
        epoch=1,
        total_vram=None,
        available_vram=None,
        total_ram=64 * GIB,
        available_ram=32 * GIB,
        total_disk=100 * GIB,
        available_disk=50 * GIB,
        gpu_vendor=None,
        gpu_compute_capability=None,
        capability="cpu",
        max_replicas_reported=1,
        max_replicas_override=None,
        vram_budget_reported=None,
        vram_budget_override=None,
        worker_labels={},
        operator_labels={},
        facts=None,
        conflict_message=None,
        conflict_at=None,
        last_heartbeat=None,
        bus_answered=True,
        bus_failures=0,
        bus_no_responders=False,
        created_at=0,
        changed_at=0,
    )
    return replace(plain, **changes)


async def add_nodes(stores: Stores, *nodes: Node) -> None:
    async def body(tx: Tx) -> None:
        for node in nodes:
            await insert_node(tx, node)

    await stores.database.write(body)


async def start(stores: Stores, model: str = "tiny", text: str = TINY, owner: str = "f1") -> LoadJob:
    stored = await stores.models.save(text, "ann")
    await stores.load_jobs.request_load(model, stored.revision, cause="a request", ids=IDS)
    [job] = await stores.load_claims.claim(owner, lease_s=LEASE_S, most=9)
    return job


async def ask(stores: Stores, revision: str, cause: str = "a request") -> LoadJob:
    job = await stores.load_jobs.request_load("tiny", revision, cause=cause, ids=IDS)
    assert isinstance(job, LoadJob), job
    return job


async def decide(stores: Stores, need: Need) -> Decision:
    return place(need, (await stores.replicas.read_fleet(nobody)).capacities)


async def reserve(stores: Stores, job: LoadJob, need: Need | None = None) -> Replica:
    wanted = need or Need(model=job.model)
    return await stores.load_claims.reserve(job, wanted, await decide(stores, wanted), nobody, ids=IDS)


def loaded(**changes: Any) -> ReplicaLoaded:
    plain = ReplicaLoaded(
        address="10.0.0.1:9000",
        protocol="openai",
        token="secret",
        process_key="tiny#0",
        backend="llama-cpp",
        backend_digest="sha256:1",
        epoch=1,
        pid=4711,
        capacity=4,
        load_options='{"context":2048}',
        load_ms=1500,
        node_class="cpu",
        device="cpu",
    )
    return replace(plain, **changes)


async def serve(stores: Stores, model: str = "tiny", text: str = TINY) -> Replica:
    job = await start(stores, model, text)
    await reserve(stores, job)
    return await stores.load_claims.finish(job, loaded(process_key=f"{model}#0"))


async def routed(stores: Stores, model: str = "tiny") -> list[str]:
    routes = {route.model: route for route in (await stores.replicas.read_routes()).routes}
    return [replica.node_id for replica in routes[model].replicas]


async def test_a_size_that_becomes_known_at_the_place_is_reserved_or_the_place_is_given_back(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", total_ram=8 << 30, available_ram=6 << 30))
    job = await start(stores)
    replica = await reserve(stores, job)
    assert replica.memory_bytes is None, "nobody knew"
    assert await stores.load_claims.resize(job, Need(model="tiny", weights_bytes=2 << 30), nobody) == ""
    [row] = await stores.replicas.read_of_model("tiny")
    assert row.memory_bytes == Need(model="tiny", weights_bytes=2 << 30).memory_bytes("cpu")
    why = await stores.load_claims.resize(job, Need(model="tiny", weights_bytes=20 << 30), nobody)
    assert "of memory needed" in why


async def test_a_load_keeps_its_place_though_its_own_download_fills_the_disk(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    await reserve(stores, job)
    await stores.database.write(
        lambda tx: tx.execute("UPDATE nodes SET conditions = $1", encode_conditions([FULL_DISK]))
    )
    assert await stores.load_claims.resize(job, Need(model="tiny", weights_bytes=2 << 30), nobody) == ""


async def test_a_load_becomes_a_route(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    before = (await stores.replicas.read_routes()).version
    assert await routed(stores) == [], "known, but cold"
    replica = await reserve(stores, job)
    assert (replica.node_id, replica.slot, replica.state) == ("a", 0, ReplicaState.STARTING)
    assert await routed(stores) == [], "a place is no process"
    await stores.load_claims.finish(job, loaded())
    snapshot = await stores.replicas.read_routes()
    [route] = snapshot.routes
    [found] = route.replicas
    assert snapshot.version > before
    assert (found.address, found.token, found.capacity, found.node_name) == ("10.0.0.1:9000", "secret", 4, "a")
    assert await stores.load_jobs.read_all() == [], "success removes the job"
    [decision] = await stores.decisions.read(model="tiny")
    assert decision.outcome["placed"]["node_id"] == "a"


async def test_all_who_ask_get_the_same_load(stores: Stores, rig: Rig) -> None:
    revision = (await stores.models.save(TINY, "ann")).revision
    others = [Stores(await rig.open()) for _ in range(4)]
    jobs = await asyncio.gather(*(ask(others[number % 4], revision) for number in range(40)))
    assert len({job.id for job in jobs}) == 1
    claims = await asyncio.gather(*(one.load_claims.claim(f"f{n}", lease_s=9, most=9) for n, one in enumerate(others)))
    assert [len(claim) for claim in claims if claim] == [1], "one frontend does the work"


async def test_a_dead_frontends_load_is_taken_over_and_its_late_writes_are_void(stores: Stores, rig: Rig) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores, owner="dead")
    await reserve(stores, job)
    assert await stores.load_claims.claim("next", lease_s=LEASE_S, most=9) == []
    await rig.advance(LEASE_S + 1)
    [taken] = await stores.load_claims.claim("next", lease_s=LEASE_S, most=9)
    assert (taken.id, taken.replica_id is not None, taken.fence) == (job.id, True, job.fence + 1)
    progress = LoadProgress(model="tiny", state=LoadState.STAGING)
    for late in (
        stores.load_claims.note_progress(job, progress, lease_s=LEASE_S),
        stores.load_claims.finish(job, loaded()),
        stores.load_claims.fail(job, "late", again_in_s=1, stop=True),
    ):
        with pytest.raises(Fenced):
            await late
    await stores.load_claims.finish(taken, loaded())
    assert await routed(stores) == ["a"]


async def test_a_failed_load_is_answered_with_its_cause_and_not_tried_before_it_is_due(
    stores: Stores, rig: Rig
) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    await reserve(stores, job)
    await stores.load_claims.fail(job, "no space left", again_in_s=60, stop=False)
    again = await ask(stores, job.revision, "another request")
    assert (again.id, again.state, again.last_error) == (job.id, LoadState.FAILED, "no space left")
    assert await stores.load_claims.claim("f1", lease_s=LEASE_S, most=9) == []
    assert await stores.replicas.read_all() == []
    await rig.advance(61)
    fresh = await ask(stores, job.revision, "another request")
    assert (fresh.state, fresh.attempts) == (LoadState.PENDING, 1)


async def test_a_deleted_models_loads_go_with_it_those_that_failed_and_those_under_way(stores: Stores) -> None:
    job = await start(stores)
    await stores.load_claims.fail(job, "bad weights", again_in_s=300, stop=False)
    await stores.models.delete("tiny", "ann")
    assert await stores.load_jobs.read_all() == []
    late = await start(stores)
    await stores.models.delete("tiny", "ann")
    assert await stores.load_jobs.read_all() == []
    assert not await stores.load_jobs.exists(late.id)
    with pytest.raises(Fenced):
        await stores.load_claims.renew(late, lease_s=60)
    with pytest.raises(Fenced):
        await stores.load_claims.fail(late, "bad weights", again_in_s=300, stop=False)


async def test_a_load_whose_replica_was_revoked_learns_it_when_it_renews_its_lease(stores: Stores) -> None:
    await add_nodes(stores, make_node("n1"))
    job = await start(stores)
    need = Need(model="tiny", measured_bytes={"cpu": GIB})
    replica = await stores.load_claims.reserve(job, need, await decide(stores, need), nobody, ids=IDS)
    await stores.load_claims.renew(job, lease_s=60)
    await stores.replicas.request_stop([replica.id], why="unloaded by ann")
    with pytest.raises(Conflict, match="was revoked"):
        await stores.load_claims.renew(job, lease_s=60)
    assert await stores.load_jobs.exists(job.id)


async def test_another_revision_does_not_wait_for_the_old_ones_patience(stores: Stores) -> None:
    job = await start(stores)
    await stores.load_claims.fail(job, "bad weights", again_in_s=300, stop=False)
    revision = (await stores.models.save(TINY + "threads: 2\n", "ann")).revision
    fresh = await ask(stores, revision)
    assert (fresh.state, fresh.revision, fresh.attempts) == (LoadState.PENDING, revision, 0)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_places_are_never_given_twice(stores: Stores, rig: Rig, nodes: int) -> None:
    """INV-25. Twelve loads of 12 GiB each for nodes with 32 GiB: two on each, whoever asks when."""
    await add_nodes(stores, *(make_node(f"n{number}", max_replicas_reported=9) for number in range(nodes)))
    revision = (await stores.models.save(TINY, "ann")).revision
    await stores.load_jobs.request_loads("tiny", revision, [Add(why="w") for _ in range(12)], ids=IDS)
    jobs = await stores.load_claims.claim("f1", lease_s=60, most=99)
    need = Need(model="tiny", measured_bytes={"cpu": 12 * GIB})
    others = [Stores(await rig.open()) for _ in range(3)]

    async def run(number: int, job: LoadJob) -> bool:
        mine = others[number % 3]
        while True:
            decision = await decide(mine, need)
            if not isinstance(decision.outcome, Placed):
                return False
            try:
                await mine.load_claims.reserve(job, need, decision, nobody, ids=IDS)
            except Conflict:
                continue
            return True

    results = await asyncio.gather(*(run(number, job) for number, job in enumerate(jobs)))
    assert sum(results) == 2 * nodes
    rows = await stores.replicas.read_all()
    assert len({(row.node_id, row.slot) for row in rows}) == 2 * nodes


async def test_a_load_without_a_place_waits_with_a_reason_and_wakes_on_new_capacity(stores: Stores, rig: Rig) -> None:
    job = await start(stores)
    await stores.scheduling.save(Scheduling(model="tiny", min_replicas=1), actor="ann", ids=IDS)
    decision = await decide(stores, Need(model="tiny"))
    await stores.load_claims.wait(job, decision, "there are no nodes", again_in_s=300)
    [waiting] = await stores.load_jobs.read_all()
    assert (waiting.state, waiting.reason) == (LoadState.PENDING, "there are no nodes")
    record = await stores.scheduling.read("tiny")
    assert (record.state.unsatisfiable_reason, record.state.unsatisfiable_ticks) == ("there are no nodes", 1)
    assert await stores.load_claims.claim("f1", lease_s=9, most=9) == [], "one try per cool-down"
    await stores.load_jobs.wake()
    assert len(await stores.load_claims.claim("f1", lease_s=9, most=9)) == 1
    assert (await stores.scheduling.read("tiny")).state.unsatisfiable_until is None


async def test_a_load_that_an_edit_overtook_does_not_become_a_route(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    await reserve(stores, job)
    await stores.models.save(TINY + "threads: 2\n", "ann")
    with pytest.raises(Conflict, match="changed while it was loading"):
        await stores.load_claims.finish(job, loaded())


async def test_a_successor_takes_the_place_of_the_one_it_replaces(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    first = await serve(stores)
    await stores.load_jobs.request_loads("tiny", first.revision, [Add(why="drain", replaces=first.id)] * 2, ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=9, most=9)
    await reserve(stores, job, Need(model="tiny", variant_problems={first.node_id: "not here"}))
    assert await routed(stores) == [first.node_id]
    await stores.load_claims.finish(job, loaded())
    [now] = await routed(stores)
    assert now != first.node_id
    states = {row.id: row.state for row in await stores.replicas.read_all()}
    assert states[first.id] is ReplicaState.DRAINING


async def test_only_healthy_matching_nodes_are_routed_to_and_every_change_moves_the_version(stores: Stores) -> None:
    """INV-23."""
    await add_nodes(stores, make_node("a"), make_node("b"))
    await serve(stores)
    await stores.load_jobs.request_loads("tiny", (await stores.models.read("tiny")).revision, [Add(why="w")], ids=IDS)
    [job] = await stores.load_claims.claim("f1", lease_s=9, most=9)
    await reserve(stores, job, Need(model="tiny"))
    await stores.load_claims.finish(job, loaded())
    assert sorted(await routed(stores)) == ["a", "b"]
    version = await stores.replicas.read_version()
    await stores.nodes.set_drain("a", True, actor="ann")
    assert await routed(stores) == ["b"], "as soon as there is another"
    await stores.nodes.set_drain("b", True, actor="ann")
    assert sorted(await routed(stores)) == ["a", "b"], "but nobody is left without an answer"
    await stores.nodes.set_drain("a", False, actor="ann")
    await stores.nodes.set_drain("b", False, actor="ann")
    await stores.scheduling.save(
        Scheduling(model="tiny", selector={"node.name": "b"}, min_replicas=1), actor="ann", ids=IDS
    )
    assert await routed(stores) == ["b"]
    await stores.nodes.remove("b", actor="ann")
    assert await routed(stores) == []
    assert await stores.replicas.read_version() == version + 6


async def test_a_stop_is_retried_until_the_node_confirms(stores: Stores, rig: Rig) -> None:
    await add_nodes(stores, make_node("a"))
    replica = await serve(stores)
    await stores.replicas.request_stop([replica.id], why="unloaded")
    assert await routed(stores) == []
    [claimed] = await stores.replicas.claim_stops()
    assert await stores.replicas.claim_stops() == [], "one frontend at a time"
    await stores.replicas.stop_failed(claimed, "no answer", again_in_ms=5_000)
    assert await stores.replicas.claim_stops() == []
    await rig.advance(6)
    [again] = await stores.replicas.claim_stops()
    assert (again.stop_attempts, again.stop_error) == (1, "no answer")
    await stores.replicas.stopped(again)
    assert await stores.replicas.read_all() == []


async def test_last_used_only_moves_forward(stores: Stores, rig: Rig) -> None:
    await add_nodes(stores, make_node("a"))
    replica = await serve(stores)
    await rig.advance(100)
    await stores.replicas.touch({ReplicaId(replica.id): 10_000})
    await stores.replicas.touch({ReplicaId(replica.id): 50_000})
    [row] = await stores.replicas.read_all()
    assert row.last_used == replica.last_used + 90_000


async def test_a_node_learns_which_processes_were_revoked_and_successors_are_not_among_them(
    stores: Stores, rig: Rig
) -> None:
    await add_nodes(stores, make_node("a"))
    replica = await serve(stores)
    version, shares = await stores.replicas.read_shares()
    assert shares == {"a": NodeShare(desired=frozenset({"tiny#0"}))}
    await stores.replicas.drop([replica.id], why="its node is dead")
    after, shares = await stores.replicas.read_shares()
    assert after > version, "whoever keeps a copy looks again"
    assert shares == {"a": NodeShare(revoked={"tiny#0": replica.generation})}

    job = await start(stores)
    place_taken = await reserve(stores, job)
    assert place_taken.generation > replica.generation, "the order to start it carries a higher number"
    _, shares = await stores.replicas.read_shares()
    assert shares == {"a": NodeShare(desired=frozenset({"tiny#0"}), revoked={"tiny#0": replica.generation})}
    await stores.load_claims.reschedule(job, again_in_s=60.0)
    _, shares = await stores.replicas.read_shares()
    assert shares == {"a": NodeShare(revoked={"tiny#0": place_taken.generation})}, "a load may have started it"

    await stores.load_jobs.cancel("tiny", why="unloaded")
    await rig.advance(FORGET_AFTER_MS / 1000 + 1)
    other = await serve(stores, "other", TINY.replace("tiny", "other"))
    await stores.replicas.drop([other.id], why="gone")
    _, shares = await stores.replicas.read_shares()
    assert shares == {"a": NodeShare(revoked={"other#0": other.generation})}, "what was lost long ago is forgotten"


async def test_a_process_that_its_node_ended_itself_is_not_revoked(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    replica = await serve(stores)
    await stores.replicas.request_stop([replica.id], why="idle")
    await stores.replicas.stopped(replica)
    assert (await stores.replicas.read_shares())[1] == {}


async def test_footprints_only_grow(stores: Stores) -> None:
    for peak in (Peak(100, 1), Peak(300, 32), Peak(200, 8)):
        await stores.footprints.record_peaks({FootprintKey("m", "r", "d", "cpu", 0, "cpu"): peak})
    await stores.footprints.record_peaks({FootprintKey("m", "r", "d3", "cpu", 0, "cpu"): Peak(250, 2)})
    await stores.footprints.record_peaks({FootprintKey("m", "r", "d2", "gpu", 0, "nvidia"): Peak(50)})
    assert await stores.footprints.read_peaks("m", "r") == {"cpu": Peak(300, 32), "nvidia": Peak(50)}
    assert await stores.footprints.read_peaks("m", "other") == {}


async def make_full_node(stores: Stores) -> tuple[LoadJob, Need, Decision, Replica]:
    """A node whose memory an idle replica uses, and a load that needs it."""
    await add_nodes(stores, make_node("a", available_ram=GIB, last_heartbeat=10**15))
    idle = await serve(stores)

    async def weigh(tx: Tx) -> None:
        await tx.execute("UPDATE replicas SET memory_bytes = $1", 30 * GIB)

    await stores.database.write(weigh)
    job = await start(stores, "big", TINY.replace("tiny", "big"))
    need = Need(model="big", weights_bytes=16 * GIB)
    return job, need, await decide(stores, need), idle


async def test_an_evicted_replica_is_recorded_and_gets_no_more_requests(stores: Stores) -> None:
    job, need, decision, idle = await make_full_node(stores)
    [ending] = await stores.load_claims.evict(job, need, decision, nobody)
    assert (ending.id, ending.state) == (idle.id, ReplicaState.STOPPING)
    assert await routed(stores) == []
    [told] = await stores.decisions.read(model="big")
    assert told.outcome["ended"] == ["tiny#0"]
    assert told.candidates["candidates"][0]["verdict"] == "chosen"


@pytest.mark.parametrize("reason", ["busy", "minimum", "pinned"])
async def test_a_replica_that_is_needed_by_now_is_not_evicted(stores: Stores, reason: str) -> None:
    """INV-26. What was idle when the decision was made may not be when it is carried out."""
    job, need, decision, _ = await make_full_node(stores)
    if reason == "minimum":
        await stores.scheduling.save(Scheduling(model="tiny", min_replicas=1), actor="ann", ids=IDS)
    if reason == "pinned":
        pinned = TINY + "pinned: true\n"
        revision = (await stores.models.save(pinned, "ann")).revision

        async def follow(tx: Tx) -> None:
            await tx.execute("UPDATE replicas SET revision = $1", revision)

        await stores.database.write(follow)
    with pytest.raises(Conflict, match="is needed now"):
        await stores.load_claims.evict(job, need, decision, (lambda _: 1) if reason == "busy" else nobody)
    assert await routed(stores) == ["a"]


async def test_a_replica_that_is_offline_is_no_spare_one(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b", presence=Presence.SUSPECT))
    await stores.scheduling.save(Scheduling(model="tiny", min_replicas=1), actor="ann", ids=IDS)
    here = await serve(stores)

    async def copy(tx: Tx) -> None:
        await insert_replica(tx, replace(here, id="away", node_id="b"))

    await stores.database.write(copy)
    rooms = (await stores.replicas.read_fleet(nobody)).capacities
    assert [held.evictable for room in rooms for held in room.replicas] == [False, False]


async def test_in_a_large_cluster_a_decision_keeps_the_best_nodes_and_counts_the_others(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    [room] = (await stores.replicas.read_fleet(nobody)).capacities
    poorer = [replace(room, id=f"a{number}", name=f"a{number}", free_memory=GIB) for number in range(150)]
    richer = [replace(room, id=f"b{number}", name=f"b{number}", free_memory=20 * GIB) for number in range(100)]
    asleep = [replace(room, id=f"c{number}", name=f"c{number}", status=NodeStatus.OFFLINE) for number in range(7)]
    need = Need(model="tiny")

    async def record(tx: Tx) -> None:
        await record_decision(tx, job, place(need, [room, *poorer, *richer, *asleep]))

    await stores.database.write(record)
    [told] = await stores.decisions.read(model="tiny")
    names = [candidate["node"] for candidate in told.candidates["candidates"]]
    assert names[0] == "a"
    assert {*names} >= {one.name for one in richer}
    assert told.candidates["nodes"] == 258
    assert told.candidates["others"] == [
        {"verdict": "possible", "reason": "", "nodes": 51},
        {"verdict": "ruled_out", "reason": "it is offline", "nodes": 7},
    ]


async def test_files_on_a_removed_node_are_forgotten(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    for node in ("a", "b"):
        await stores.staged_files.note_staged(node, "tiny", "1", 100)
    await stores.nodes.remove("a", actor="ann")
    await stores.staged_files.request_deletion_with_models()
    assert [deletion.node_id for deletion in await stores.staged_files.claim_deletions(lease_ms=1000)] == ["b"]


async def test_deleting_files_waits_for_the_replica_to_be_gone(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    replica = await serve(stores)
    await stores.staged_files.note_staged("a", "tiny", replica.revision, 100)
    await stores.staged_files.request_deletion("tiny")
    assert await stores.staged_files.claim_deletions(lease_ms=1000) == []
    await stores.replicas.drop([replica.id], why="gone")
    [deletion] = await stores.staged_files.claim_deletions(lease_ms=1000)
    assert await stores.staged_files.claim_deletions(lease_ms=1000) == []
    await stores.staged_files.deleted(deletion)
    assert await stores.staged_files.read_staged("tiny") == {}


async def test_a_deletion_under_way_is_older_than_every_load_that_gets_its_place_after_it(stores: Stores) -> None:
    """Its worker compares the two, so a late command deletes no file of a model that was added again."""
    await add_nodes(stores, make_node("a", epoch=7), make_node("localai", instance=None))
    replica = await serve(stores)
    for node in ("a", "localai"):
        await stores.staged_files.note_staged(node, "tiny", replica.revision, 100, ["tiny.gguf"])
    await stores.models.delete("tiny", "ann")
    await stores.staged_files.request_deletion("tiny")
    await stores.replicas.drop([replica.id], why="gone")
    deletions = await stores.staged_files.claim_deletions(lease_ms=1000)
    assert {one.node_id: (one.epoch, one.files) for one in deletions} == {
        "a": (7, ("tiny.gguf",)),
        "localai": (None, ("tiny.gguf",)),
    }
    again = await reserve(stores, await start(stores))
    assert all(again.generation > one.generation > 0 for one in deletions)


async def test_scheduling_is_kept_as_it_was_given(stores: Stores) -> None:
    wanted = Scheduling(
        model="tiny", selector={"b": "2", "a": "1"}, min_replicas=1, max_replicas=3, route_policy="prefix_cache"
    )
    first = await stores.scheduling.save(wanted, actor="ann", ids=IDS)
    again = await stores.scheduling.save(replace(wanted, min_replicas=2), actor="ann", ids=IDS)
    assert (first.scheduling, again.id, again.scheduling.min_replicas) == (wanted, first.id, 2)
    records: Sequence[object] = await stores.scheduling.read_all()
    assert len(records) == 1
    await stores.scheduling.delete("tiny", actor="ann")
    assert await stores.scheduling.read_all() == []


async def test_scheduling_of_a_model_is_deleted_with_it(stores: Stores) -> None:
    await stores.models.save(TINY, "ann")
    await stores.scheduling.save(Scheduling(model="tiny", min_replicas=2), actor="ann", ids=IDS)
    await stores.scheduling.note_action("tiny")
    await stores.models.delete("tiny", "ann")
    await stores.models.save(TINY, "ann")
    assert await stores.scheduling.read_all() == []


async def test_a_load_that_is_forgotten_is_gone_unless_it_has_a_place(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    job = await start(stores)
    [waiting] = await stores.load_jobs.request_loads("tiny", job.revision, [Add(why="minimum replicas: 2")], ids=IDS)
    await reserve(stores, job)
    await stores.load_jobs.delete_obsolete("tiny", [job.id, waiting.id], seen_at=waiting.changed_at)
    assert len(await stores.load_jobs.read_of_model("tiny")) == 2, "the look was not later than the load"
    await stores.load_jobs.delete_obsolete("tiny", [job.id, waiting.id], seen_at=waiting.changed_at + 1)
    assert [left.id for left in await stores.load_jobs.read_of_model("tiny")] == [job.id]
    await stores.load_claims.finish(job, loaded())


def told(*states: str, epoch: int = 1, sequence: int = 1, pid: int = 4711) -> Observation:
    processes = tuple(
        ObservedProcess(
            process_key=f"tiny#{slot}",
            model="tiny",
            replica=slot,
            backend="b",
            digest="d",
            state=ProcessStatus(state),
            pid=pid,
        )
        for slot, state in enumerate(states)
    )
    return Observation(
        node_id=NodeId("a"), instance="i", epoch=epoch, sequence=sequence, backends=(), processes=processes
    )


async def settled(stores: Stores) -> Replica:
    """Served for longer than a report may be on its way."""
    replica = await serve(stores)

    async def body(tx: Tx) -> None:
        await tx.execute("UPDATE replicas SET ready_at = ready_at - 60000")

    await stores.database.write(body)
    return replica


async def test_the_limit_of_a_replica_follows_what_its_engine_takes(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", key_hash="k"))
    await settled(stores)

    async def report(engine: EngineCapacity | None, sequence: int) -> tuple[bool, int | None]:
        """Whether routes changed, and the limit of the replica, whose configuration allows 4."""
        observation = told("ready", sequence=sequence)
        [process] = observation.processes
        changed = replace(observation, processes=(replace(process, engine=engine),))
        recorded = await stores.observed.record([changed])
        [route] = (await stores.replicas.read_routes()).routes
        return recorded.routes, route.replicas[0].capacity

    assert await report(None, 2) == (True, 4)
    assert await report(EngineCapacity(slots=1, context=2048, limit=2), 3) == (True, 2)
    assert await report(EngineCapacity(slots=1, context=4096, limit=2), 4) == (False, 2)
    assert await report(EngineCapacity(slots=8, context=4096, limit=9), 5) == (True, 4)


async def test_routes_follow_what_the_node_reports_of_the_process(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", key_hash="k"))
    replica = await settled(stores)
    assert (await stores.observed.record([told("ready")])).routes
    assert await routed(stores) == ["a"]
    for sequence, state in enumerate(("backing_off", "starting", "failed"), 2):
        before = await stores.replicas.read_version()
        recorded = await stores.observed.record([told(state, sequence=sequence)])
        assert await routed(stores) == [], state
        assert recorded.changed == ("a",)
        assert recorded.routes == (state == "backing_off"), "only what begins or ceases to serve is a change of routes"
        assert (await stores.replicas.read_version() > before) == recorded.routes
    # The key is the same, the process another: until its token is known nothing is sent there.
    assert (await stores.observed.record([told("ready", sequence=9, pid=4712)])).routes
    assert await routed(stores) == []
    assert await stores.replicas.read_nodes_to_refresh() == ["a"]
    await stores.replicas.note_seen(replica.id, epoch=1, pid=4712, address="10.0.0.1:9001", token="new")
    assert await routed(stores) == ["a"]
    assert await stores.replicas.read_nodes_to_refresh() == []
    [found] = await stores.replicas.read_statuses()
    assert found.verdict is not None
    assert found.verdict.availability is Availability.SERVES


async def test_who_asks_for_a_model_whose_worker_is_being_started_again_waits(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", key_hash="k"), make_node("b", key_hash="l"))
    replica = await settled(stores)
    await stores.observed.record([told("ready")])

    async def restart(tx: Tx) -> None:
        await tx.execute("UPDATE nodes SET epoch = 2 WHERE id = 'a'")

    await stores.database.write(restart)
    assert await routed(stores) == [], "the new worker has not told yet"
    waits = await stores.load_jobs.request_load("tiny", replica.revision, cause="a request", ids=IDS)
    assert waits == NoLoadNeeded("a has not reported its processes yet")
    await stores.observed.record([told("ready", epoch=2)])
    assert await routed(stores) == ["a"]
    waits = await stores.load_jobs.request_load("tiny", replica.revision, cause="a request", ids=IDS)
    assert waits == NoLoadNeeded("a replica is ready")
    await stores.observed.record([told(epoch=2, sequence=2)])
    assert (await ask(stores, replica.revision)).active, "it is not there any more"


async def test_requests_load_no_more_than_the_maximum(stores: Stores) -> None:
    await add_nodes(stores, make_node("a", key_hash="k"), make_node("b", key_hash="l"))
    await stores.models.save(TINY, "ann")
    await stores.scheduling.save(Scheduling(model="tiny", max_replicas=1), actor="ann", ids=IDS)
    replica = await settled(stores)
    await stores.observed.record([told()])
    asked = await stores.load_jobs.request_load("tiny", replica.revision, cause="a request", ids=IDS)
    assert asked == NoLoadNeeded("max_replicas is 1, and a no longer runs it")


async def test_a_load_requested_since_the_count_is_one_of_the_missing(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    stored = await stores.models.save(TINY, "ann")
    await stores.load_jobs.request_load("tiny", stored.revision, cause="a request", ids=IDS)
    two = [Add(why="minimum replicas: 2")] * 2
    made = await stores.load_jobs.request_loads("tiny", stored.revision, two, ids=IDS, known=())
    assert len(made) == 1
    assert len(await stores.load_jobs.read_of_model("tiny")) == 2


async def test_who_has_lost_the_lease_reaps_and_loads_nothing(stores: Stores) -> None:
    """INV-32: a controller that slept through its lease has an outdated view of the cluster."""
    await add_nodes(stores, make_node("a"))
    replica = await serve(stores)
    late = await stores.leases.hold("replicas", "f1", ttl_s=0.0)
    assert late is not None
    assert await stores.leases.hold("replicas", "f2", ttl_s=30.0) is not None
    with pytest.raises(Fenced):
        await stores.replicas.drop([replica.id], why="its node is gone", lease=late)
    with pytest.raises(Fenced):
        await stores.replicas.request_stop([replica.id], why="too many", lease=late)
    with pytest.raises(Fenced):
        await stores.replicas.drain([replica.id], why="too many", lease=late)
    with pytest.raises(Fenced):
        await stores.replicas.note_missed([replica.id], lease=late)
    with pytest.raises(Fenced):
        await stores.load_jobs.request_loads("tiny", replica.revision, [Add(why="w")], ids=IDS, lease=late)
    with pytest.raises(Fenced):
        await stores.load_jobs.delete_obsolete("tiny", [], seen_at=0, lease=late)
    assert await routed(stores) == ["a"]
    assert await stores.load_jobs.read_all() == []


async def test_a_route_tells_what_the_configuration_says_of_its_model(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    await serve(stores, text=TINY + "context_size: 4096\nmmproj: eyes.gguf\nlimits: {retry_after_seconds: 42}\n")
    [route] = (await stores.replicas.read_routes()).routes
    assert (route.retry_after_s, route.context_size, route.capabilities) == (
        42,
        4096,
        ("completion", "tools", "vision"),
    )
