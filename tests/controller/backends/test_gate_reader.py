"""Gates read from a store: figures, memory, exits and golden prompts, within one class of machines."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from corral.controller.backends.gate_reader import GateReader
from corral.core.backends.gates import GateOutcome, GateSettings, GateVerdict
from corral.core.backends.serving_figures import BUCKETS, ServingFigures, VersionKey
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import Observation, ObservedProcess, ProcessStatus
from corral.core.replicas.footprints import FootprintKey, Peak
from corral.core.replicas.placement import Need
from corral.core.replicas.replica import Replica
from corral.frontend.gateway.replica_proof import ReplicaProof
from corral.store.backends.version_exits import MINUTE_MS
from corral.store.engine.database import Tx
from corral.store.serving.load_job_rows import LoadJob
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from corral.system.http_call import http_call
from harness.openai_upstream import OpenAiUpstream
from store.serving.test_pending_revisions import begin_canary
from store.serving.test_replicas import IDS, TINY, add_nodes, loaded, make_node, reserve, start

NEW, OLD = "sha256:new", "sha256:old"
CANARY, PEER, GPU = NodeId("canary"), NodeId("peer"), NodeId("gpu")
MIB, GIB = 1 << 20, 1 << 30
TOKEN = "of the process"


def served(bucket: int, tokens_per_s: float, *, errors: int = 0) -> ServingFigures:
    times = [0] * BUCKETS
    times[bucket] = 50
    answer_ms = round(500 / tokens_per_s * 1000)
    return ServingFigures(requests=50, errors=errors, first_token=tuple(times), tokens_out=500, answer_ms=answer_ms)


def process(state: ProcessStatus = ProcessStatus.READY, *, restarts: int = 0) -> ObservedProcess:
    return ObservedProcess(
        process_key="tiny#0", model="tiny", replica=0, backend="b", digest=NEW, state=state, restarts=restarts
    )


async def report(stores: Stores, sequence: int, *processes: ObservedProcess) -> None:
    seen = Observation(node_id=CANARY, instance="i", epoch=1, sequence=sequence, backends=(), processes=processes)
    await stores.observed.record([seen])


def footprint(digest: str, *, revision: str = "r", node_class: str = "cpu", fitted_bytes: int = 0) -> FootprintKey:
    return FootprintKey("tiny", revision, digest, node_class, fitted_bytes, "cpu")


PROMPTED = f"{TINY}golden_prompts: [{{prompt: hello, expect: ANSWER}}]\n"
VERSIONS = {CANARY: (NEW, OLD), PEER: (NEW, OLD)}


async def judge(stores: Stores, reader: GateReader | None = None, *, since_ms: int = 0) -> list[GateVerdict]:
    return await (reader or GateReader(stores)).judge(
        backend="b",
        nodes=[CANARY],
        versions=VERSIONS,
        since_ms=since_ms,
        settings=GateSettings(),
    )


@pytest.fixture
async def fleet(stores: Stores) -> Stores:
    gpu = make_node(GPU, gpu_vendor="nvidia", total_vram=24 << 30)
    await add_nodes(stores, make_node(CANARY), make_node(PEER), gpu)
    return stores


async def test_the_previous_version_on_machines_of_the_class_is_the_baseline(fleet: Stores) -> None:
    await fleet.version_figures.add(
        "fe",
        1,
        {
            VersionKey("tiny", CANARY, NEW): served(25, 15.0),
            VersionKey("tiny", PEER, OLD): served(20, 50.0),
            VersionKey("tiny", GPU, OLD): served(25, 15.0),
            VersionKey("tiny", GPU, NEW): served(20, 50.0, errors=50),
        },
    )
    await fleet.footprints.record_peaks(
        {
            footprint(NEW): Peak(900 * MIB),
            footprint(OLD): Peak(300 * MIB),
        }
    )
    await report(fleet, 1, process())
    verdicts = {verdict.gate: verdict for verdict in await judge(fleet)}
    assert {gate: verdict.outcome.value for gate, verdict in verdicts.items()} == {
        "stable": "passed",
        "errors": "passed",
        "first_token": "failed",
        "throughput": "failed",
        "memory": "failed",
    }
    assert verdicts["throughput"].new == pytest.approx(15, 0.01)
    assert verdicts["throughput"].old == 50.0
    assert {verdict.node_class for verdict in verdicts.values()} == {"cpu"}
    assert await judge(fleet) == list(verdicts.values()), "it changes nothing"


@pytest.mark.parametrize(
    ("new", "old", "outcome", "text"),
    [
        pytest.param(
            {footprint(NEW, fitted_bytes=7 * GIB): Peak(7 * GIB)},
            {footprint(OLD, fitted_bytes=4 * GIB): Peak(4 * GIB)},
            GateOutcome.UNJUDGED,
            "the engine was fitted to 7.0 GiB of memory, that of the previous version to 4.0 GiB",
            id="an-engine-that-was-given-more-memory-uses-more",
        ),
        pytest.param(
            {footprint(NEW, fitted_bytes=4 * GIB): Peak(6 * GIB), footprint(NEW, fitted_bytes=7 * GIB): Peak(7 * GIB)},
            {footprint(OLD, fitted_bytes=4 * GIB): Peak(4 * GIB)},
            GateOutcome.FAILED,
            "6144 MiB of memory against 4096 MiB before",
            id="replicas-that-were-given-the-same-are-compared",
        ),
        pytest.param(
            {footprint(NEW): Peak(6 * GIB)},
            {footprint(OLD, node_class="default (linux/arm64)"): Peak(2 * GIB)},
            GateOutcome.UNJUDGED,
            "the memory of the previous version is not known",
            id="another-class-of-machines-says-nothing",
        ),
        pytest.param(
            {footprint(NEW): Peak(6 * GIB)},
            {footprint(OLD, revision="edited"): Peak(2 * GIB)},
            GateOutcome.UNJUDGED,
            "the memory of the previous version is not known",
            id="another-revision-says-nothing",
        ),
    ],
)
async def test_only_memory_that_can_be_compared_is_compared(
    fleet: Stores, new: dict[FootprintKey, Peak], old: dict[FootprintKey, Peak], outcome: GateOutcome, text: str
) -> None:
    await fleet.footprints.record_peaks(new | old)
    await report(fleet, 1, process())
    [memory] = [one for one in await judge(fleet) if one.gate == "memory"]
    assert memory.outcome is outcome
    assert text in memory.detail


async def test_a_time_that_is_slow_for_both_versions_fails_neither(fleet: Stores) -> None:
    figures = fleet.version_figures
    await figures.add("fe", 1, {VersionKey("tiny", PEER, OLD): served(20, 50.0)})
    now_ms = await fleet.rollouts.now_ms()
    hour_ms = 3_600_000
    await fleet.database.write(
        lambda tx: tx.execute("UPDATE version_figures SET minute = minute - 60 WHERE digest = $1", OLD)
    )
    await figures.add("fe", 2, {VersionKey("tiny", CANARY, NEW): served(20, 15.0)})
    (alone,) = [one for one in await judge(fleet, since_ms=now_ms - hour_ms // 2) if one.gate == "throughput"]
    assert (alone.outcome, alone.old) == (GateOutcome.FAILED, 50.0)
    await figures.add("fe", 3, {VersionKey("tiny", PEER, OLD): served(20, 16.0)})
    (beside,) = [one for one in await judge(fleet, since_ms=now_ms - hour_ms // 2) if one.gate == "throughput"]
    assert beside.outcome is GateOutcome.PASSED
    assert beside.old == pytest.approx(16.0, 0.01)


async def test_a_day_of_figures_of_a_whole_fleet_does_not_hold_up_the_event_loop(fleet: Stores) -> None:
    """Twelve nodes with five models: 691,200 rows of buckets, which took SQLite 700 ms on the loop each time."""
    now_ms = await fleet.rollouts.now_ms()
    await fleet.database.write(lambda tx: fill(tx, minute=now_ms // MINUTE_MS - 5, minutes=1440, nodes=12, models=5))
    reader = GateReader(fleet)
    for _ in range(3):
        began_s = time.thread_time()
        await judge(fleet, reader, since_ms=now_ms)
        assert time.thread_time() - began_s < 0.1


async def fill(tx: Tx, *, minute: int, minutes: int, nodes: int, models: int) -> None:
    """Figures of the previous version for each of these minutes, with eight buckets."""
    series = ", ".join(
        f"{name}(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM {name} WHERE i < {count - 1})"
        for name, count in (("m", minutes), ("n", nodes), ("p", models), ("b", 8))
    )
    columns = f"'{OLD}', {minute} - m.i, 'model-' || p.i, 'node-' || n.i"
    await tx.execute(
        "INSERT INTO version_figures (digest, minute, model, node_id, requests, errors, tokens_out, answer_ms)"
        f" WITH RECURSIVE {series} SELECT {columns}, 8, 0, 100, 1000 FROM m, n, p"
    )
    await tx.execute(
        "INSERT INTO version_first_tokens (digest, minute, model, node_id, bucket, streams)"
        f" WITH RECURSIVE {series} SELECT {columns}, b.i, 1 FROM m, n, p, b"
    )


async def serve(stores: Stores, digest: str, *, text: str = TINY) -> Replica:
    """On the canary."""
    job = await start(stores, text=text)
    await reserve(stores, job, Need(model=job.model, only_node=CANARY))
    return await stores.load_claims.finish(job, loaded(backend_digest=digest))


async def fail_load(stores: Stores, model: str, revision: str) -> None:
    """With the new version, on the canary."""
    await stores.load_jobs.request_load(model, revision, cause="a request", ids=IDS)
    [job] = await stores.load_claims.claim("fe", lease_s=15, most=9)
    await reserve(stores, job, Need(model=model, only_node=CANARY))
    await stores.load_claims.fail_on_node(job, "no such option", draw=0.5, stop=False, digest=NEW)


async def prove_edit(stores: Stores, replaced: Replica) -> LoadJob:
    """Its proof begins on the canary, beside the replica that serves."""
    await stores.models.save(TINY + "options: [no_such_option]\n", "bob")
    job = await begin_canary(stores, replaced)
    started = await reserve(stores, job, Need(model="tiny", only_node=CANARY, surge_on=CANARY))
    assert started.slot == 1
    return job


async def stability(stores: Stores, model: str = "tiny") -> tuple[GateOutcome, str]:
    [stable] = [one for one in await judge(stores) if (one.gate, one.model) == ("stable", model)]
    return stable.outcome, stable.detail


async def test_a_load_that_worked_with_the_previous_version_and_fails_with_the_new_one_fails_the_gate(
    fleet: Stores,
) -> None:
    replica = await serve(fleet, OLD)
    await fleet.replicas.drop([replica.id], why="unloaded")
    await fail_load(fleet, "tiny", replica.revision)
    outcome, detail = await stability(fleet)
    assert (outcome, detail) == (GateOutcome.FAILED, "a load of tiny with it failed: no such option")


async def test_an_edit_that_does_not_load_says_nothing_about_the_version(fleet: Stores) -> None:
    """Its proof lands on a canary, and would fail with the previous version as well."""
    job = await prove_edit(fleet, await serve(fleet, OLD))
    await report(fleet, 1, process())
    await fleet.load_claims.fail_on_node(job, "no such option", draw=0.5, stop=False, digest=NEW)
    outcome, detail = await stability(fleet)
    assert outcome is GateOutcome.PASSED, detail
    assert detail.endswith("not served it on such machines: a load of tiny with it failed: no such option")


async def test_a_new_model_that_does_not_load_or_crashes_says_nothing_about_the_version(fleet: Stores) -> None:
    await serve(fleet, OLD)
    other = await fleet.models.save(TINY.replace("tiny", "other"), "bob")
    await fail_load(fleet, "other", other.revision)
    crashed = replace(process(ProcessStatus.BACKING_OFF), process_key="other#0", model="other")
    await report(fleet, 1, replace(crashed, state=ProcessStatus.READY))
    await report(fleet, 2, crashed)
    await fleet.version_figures.add("fe", 1, {VersionKey("other", CANARY, NEW): served(20, 50.0, errors=50)})
    verdicts = [one for one in await judge(fleet) if one.model == "other"]
    assert {one.outcome for one in verdicts} <= {GateOutcome.PASSED, GateOutcome.UNJUDGED}, verdicts
    assert "ended unexpectedly once; other#0 is not running now; a load of other" in verdicts[0].detail


async def test_a_crash_of_another_revision_than_the_previous_version_served_is_not_counted(fleet: Stores) -> None:
    await prove_edit(fleet, await serve(fleet, OLD))
    old, edit = process(), replace(process(), process_key="tiny#1", replica=1)
    await report(fleet, 1, old, edit)
    await report(fleet, 2, old, replace(edit, state=ProcessStatus.BACKING_OFF))
    outcome, detail = await stability(fleet)
    assert outcome is GateOutcome.PASSED, detail
    await report(fleet, 3, replace(old, state=ProcessStatus.BACKING_OFF), edit)
    outcome, detail = await stability(fleet)
    assert outcome is GateOutcome.FAILED
    assert detail == "processes of the new version ended unexpectedly once; tiny#0 is not running now"


async def test_a_version_that_ends_after_its_start_is_unstable_even_when_it_runs_again(fleet: Stores) -> None:
    await serve(fleet, OLD)
    await report(fleet, 1, process())
    await report(fleet, 2, process(ProcessStatus.BACKING_OFF))
    down = (await judge(fleet))[0]
    assert (down.gate, down.outcome) == ("stable", GateOutcome.FAILED)
    assert down.detail == "processes of the new version ended unexpectedly once; tiny#0 is not running now"
    await report(fleet, 3, process(restarts=1))
    again = (await judge(fleet))[0]
    assert (again.outcome, again.detail) == (GateOutcome.FAILED, "processes of the new version ended unexpectedly once")


async def test_a_version_that_no_model_uses_cannot_be_judged(fleet: Stores) -> None:
    (verdict,) = await judge(fleet)
    assert (verdict.gate, verdict.outcome, verdict.model) == ("stable", GateOutcome.UNJUDGED, "")


@pytest.fixture
def upstream() -> Iterator[OpenAiUpstream]:
    running = OpenAiUpstream(token=TOKEN)
    yield running
    running.stop()


@pytest.mark.parametrize(("expected", "outcome"), [("you said hello", "passed"), ("something else", "failed")])
async def test_golden_prompts_go_to_a_replica_of_the_new_version(
    stores: Stores, upstream: OpenAiUpstream, expected: str, outcome: str
) -> None:
    await add_nodes(stores, make_node(CANARY))
    served_before = await serve(stores, OLD, text=PROMPTED.replace("ANSWER", expected))
    reader = asking(stores)
    assert all(verdict.gate != "golden_prompts" for verdict in await judge(stores, reader))
    assert await GateReader(stores).judge_prompts(nodes=[CANARY], versions=VERSIONS) == []
    [early] = await reader.judge_prompts(nodes=[CANARY], versions=VERSIONS)
    assert (early.outcome, early.model, early.node_class) == (GateOutcome.UNJUDGED, "tiny", "cpu")
    assert early.detail == "no replica of the new version is ready to answer the golden prompts"
    assert upstream.requests == []

    await replace_by_new(stores, served_before, upstream)
    [verdict] = await reader.judge_prompts(nodes=[CANARY], versions=VERSIONS, answered=[early])
    assert (verdict.gate, verdict.outcome.value, verdict.model) == ("golden_prompts", outcome, "tiny")
    assert len(upstream.requests) == 1
    assert await reader.judge_prompts(nodes=[CANARY], versions=VERSIONS, answered=[verdict]) == [verdict]
    assert len(upstream.requests) == 1, "what is judged is not sent again"


async def test_golden_prompts_of_a_model_that_the_previous_version_never_served_are_not_sent(
    stores: Stores, upstream: OpenAiUpstream
) -> None:
    await add_nodes(stores, make_node(CANARY))
    job = await start(stores, text=PROMPTED)
    await reserve(stores, job)
    await stores.load_claims.finish(job, loaded(address=upstream.address, token=TOKEN, backend_digest=NEW))
    assert await asking(stores).judge_prompts(nodes=[CANARY], versions=VERSIONS) == []
    assert upstream.requests == []


def asking(stores: Stores) -> GateReader:
    proof = ReplicaProof(http_call, shared_token="", clock=SystemClock(), ids=SystemIds(), within_s=20)
    return GateReader(stores, prompts=proof)


async def replace_by_new(stores: Stores, replica: Replica, upstream: OpenAiUpstream) -> None:
    await stores.replicas.drop([replica.id], why="its backend was upgraded")
    await stores.load_jobs.request_load("tiny", replica.revision, cause="its backend was upgraded", ids=IDS)
    [job] = await stores.load_claims.claim("fe", lease_s=15, most=9)
    await reserve(stores, job)
    await stores.load_claims.finish(job, loaded(address=upstream.address, token=TOKEN, backend_digest=NEW))
