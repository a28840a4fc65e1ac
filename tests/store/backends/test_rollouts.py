"""Rollouts in the store: waves that begin in turn, races of frontends, cancels, retries, and what is held back."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from corral.core.backends.build import BuildRef
from corral.core.backends.gates import GateOutcome, GateVerdict
from corral.core.backends.intents import (
    AttemptConfirmed,
    AttemptOutcome,
    AttemptRejected,
    BackendSpec,
    IntentState,
    RetryLimits,
    Verb,
    plan_next,
)
from corral.core.backends.operations import NewIntent
from corral.core.backends.rollouts import (
    PerNode,
    Rollout,
    RolloutMember,
    RolloutOptions,
    RolloutPlan,
    RolloutState,
    Strategy,
    VersionChange,
    plan_waves,
)
from corral.core.errors import Conflict, Fenced, NotFound
from corral.core.nodes.node import Node
from corral.store.backends.intents import Result
from corral.store.stores import Stores
from harness.databases import Rig
from harness.fleet_store import admission, healthy

LIMITS = RetryLimits(attempts=3, base_s=10, cap_s=10)
OLD, NEW = "sha256:old", "sha256:new"
SLOW = GateVerdict(gate="throughput", outcome=GateOutcome.FAILED, detail="too slow", model="tiny", new=1.0, old=3.0)


def spec(digest: str, version: str) -> BackendSpec:
    return BackendSpec(reference="echo", build=BuildRef(name="echo", digest=digest, version=version))


def plan(
    nodes: list[Node],
    sizes: tuple[str, ...],
    strategy: Strategy,
    *,
    new: BackendSpec | None = None,
    old: str = OLD,
    **options: Any,
) -> RolloutPlan:
    new = new or spec(NEW, "2")
    members = [
        RolloutMember(
            node_id=node.id,
            node_name=node.name,
            node_class="cpu",
            build="echo",
            previous_version="1",
            previous_digest=old,
        )
        for node in nodes
    ]
    build = new.build
    change = VersionChange(build="echo", version=build.version, digest=build.digest, previous=spec(old, "1"))
    return RolloutPlan(
        strategy=strategy,
        options=RolloutOptions(sizes=sizes, **options),
        waves=plan_waves(members, strategy, sizes),
        builds=(change,),
    )


async def fleet(stores: Stores, count: int = 3) -> list[Node]:
    return [await healthy(stores, f"n{number}") for number in range(count)]


async def start(
    stores: Stores,
    nodes: list[Node],
    *,
    sizes: tuple[str, ...] = ("1",),
    strategy: Strategy = Strategy.WAVES,
    new: BackendSpec | None = None,
    **options: Any,
) -> Rollout:
    """By default one canary, then the rest."""
    new = new or spec(NEW, "2")
    asked = admission(Verb.UPGRADE, *nodes, spec=new, rollout=plan(nodes, sizes, strategy, new=new, **options))
    return await stores.rollouts.read_one((await stores.admission.admit(asked)).id)


async def work(stores: Stores, outcome: AttemptOutcome | None = None, *, token: str = "fe") -> list[str]:
    """Carries out what is due; returns the names of the nodes."""
    claims = await stores.intents.claim(token, lease_s=15, limit=50)
    given = outcome or AttemptConfirmed(NEW)
    results = [Result(one.intent, plan_next(one.intent, given, draw=1.0, limits=LIMITS)) for one in claims]
    if results:
        await stores.intents.record(results)
    return sorted(one.node_name for one in claims)


async def correct(stores: Stores, node: Node, wanted: BackendSpec) -> str:
    """A policy corrects the node. Returns the id of the operation."""
    [newest] = await stores.intents.read_newest([node.id])
    intent = NewIntent(
        node_id=node.id,
        node_name=node.name,
        backend="echo",
        spec=wanted,
        expected_generation=newest.generation,
        desired_generation=newest.generation,
    )
    asked = replace(admission(Verb.INSTALL, node, spec=wanted, cause="policy"), intents=(intent,))
    return (await stores.admission.admit(asked)).id


async def again(stores: Stores, rollout: Rollout) -> Rollout:
    return await stores.rollouts.read_one(rollout.operation_id)


async def soaked(stores: Stores, rollout: Rollout) -> Rollout:
    await work(stores)
    assert await stores.rollouts.begin_soak(await again(stores, rollout), left_behind=())
    return await again(stores, rollout)


async def other_frontend(rig: Rig) -> Stores:
    return Stores(await rig.open())


async def kinds(stores: Stores, rollout: Rollout) -> list[str]:
    return [event.kind for event in await stores.rollouts.read_events(rollout.operation_id)]


def race(*calls: Coroutine[Any, Any, bool]) -> Coroutine[Any, Any, list[bool]]:
    async def run() -> list[bool]:
        return list(await asyncio.gather(*calls))

    return run()


# Waves


async def test_only_the_first_wave_begins_and_the_others_say_what_they_wait_for(stores: Stores) -> None:
    rollout = await start(stores, await fleet(stores), soak_s=5, per_node=PerNode.STOP_FIRST)
    assert (rollout.state, rollout.wave, rollout.wave_count) == (RolloutState.RUNNING, 0, 2)
    assert [[node.member.node_name for node in rollout.nodes_of(wave)] for wave in (0, 1)] == [["n0"], ["n1", "n2"]]
    assert rollout.options.per_node is PerNode.STOP_FIRST
    assert await work(stores) == ["n0"]
    shown = await stores.operations.read_one(rollout.operation_id)
    assert {one.node_name: one.error for one in shown.nodes} == {
        "n0": "", "n1": "waits for wave 2 of 2", "n2": "waits for wave 2 of 2",
    }  # fmt: skip
    assert shown.finished_at is None
    assert await work(stores) == [], "held until its wave"


async def test_a_rollout_goes_through_its_waves_and_ends_its_operation(stores: Stores) -> None:
    first = await soaked(stores, await start(stores, await fleet(stores)))
    assert first.current is not None
    assert first.current.soak_began_at is not None
    assert await stores.rollouts.save_verdicts(first, [SLOW])
    assert await stores.rollouts.release(first, 1)
    assert {one.error for one in (await stores.operations.read_one(first.operation_id)).nodes} == {""}
    last = await soaked(stores, first)
    assert [record.wave for record in last.waves] == [0, 1]
    assert last.waves[0].verdicts == (SLOW,)
    assert last.waves[0].ended_at is not None
    operation = await stores.operations.read_one(first.operation_id)
    assert operation.finished_at is None, "all nodes are done, but the last wave is still watched"
    assert await stores.rollouts.complete(last)
    ended = await again(stores, last)
    assert (ended.state, ended.ended_at is not None) == (RolloutState.COMPLETED, True)
    operation = await stores.operations.read_one(first.operation_id)
    assert (operation.state, operation.finished_at is not None) == ("completed", True)
    assert await kinds(stores, ended) == ["started", "wave_installed", "wave_began", "wave_installed", "completed"]
    assert await stores.rollouts.read_held_back() == []


async def test_how_replicas_were_replaced_is_kept_for_each_node(stores: Stores) -> None:
    [first, second, _] = nodes = await fleet(stores)
    rollout = await start(stores, nodes)
    for node, method in (
        (first, PerNode.ROLLING),
        (second, PerNode.ROLLING),
        (first, PerNode.STOP_FIRST),
        (first, PerNode.ROLLING),
    ):
        await stores.operations.note_method(rollout.operation_id, node.id, method)
    shown = await stores.operations.read_one(rollout.operation_id)
    expected = {"n0": "stop-first", "n1": "rolling", "n2": ""}
    assert {one.node_name: one.method for one in shown.nodes} == expected
    assert {one.member.node_name: one.used_method for one in (await again(stores, rollout)).nodes} == expected


async def test_a_rollout_of_all_nodes_at_once_ends_with_its_operation(stores: Stores) -> None:
    rollout = await start(stores, await fleet(stores), strategy=Strategy.ALL)
    assert await stores.rollouts.read_open() == [], "nothing to carry on"
    assert [one.operation_id for one in await stores.rollouts.read_recent()] == [rollout.operation_id]
    assert len(await work(stores)) == 3
    assert (await again(stores, rollout)).state is RolloutState.COMPLETED
    for steer in (stores.rollouts.resume, stores.rollouts.promote, stores.rollouts.allow):
        with pytest.raises(Conflict, match="all nodes at once and has no gates"):
            await steer(rollout.operation_id, actor="ann")


async def test_a_failed_operation_without_gates_is_a_failed_rollout_that_holds_nothing_back(stores: Stores) -> None:
    rollout = await start(stores, await fleet(stores, 1), strategy=Strategy.ALL)
    await work(stores, AttemptRejected("no", final=True, version_failed=True))
    assert (await again(stores, rollout)).state is RolloutState.FAILED
    assert await stores.rollouts.read_held_back() == []


# Two frontends


Decide = Callable[[Stores, Rollout], Coroutine[Any, Any, bool]]
STEPS: dict[str, Decide] = {
    "begin-soak": lambda stores, one: stores.rollouts.begin_soak(one, left_behind=("x",)),
    "release": lambda stores, one: stores.rollouts.release(one, 1),
    "await-promotion": lambda stores, one: stores.rollouts.await_promotion(one),
    "complete": lambda stores, one: stores.rollouts.complete(one),
    "replaced": lambda stores, one: stores.rollouts.end_replaced(one),
    "stand-in": lambda stores, one: stores.rollouts.stand_in(one, one.nodes[-1].member.node_id, reason="n0 is away"),
    "fail": lambda stores, one: stores.operations.fail_rollout(one, "too slow"),
}


@pytest.mark.parametrize("name", STEPS)
async def test_of_two_frontends_that_decide_the_same_step_one_takes_it(stores: Stores, rig: Rig, name: str) -> None:
    other = await other_frontend(rig)
    rollout = await start(stores, await fleet(stores))
    before = await kinds(stores, rollout)
    taken = await race(STEPS[name](stores, rollout), STEPS[name](other, rollout))
    assert sorted(taken) == [False, True]
    assert len(await kinds(stores, rollout)) == len(before) + 1, "told once"


@pytest.mark.parametrize("name", STEPS)
async def test_of_two_frontends_that_disagree_one_decides(stores: Stores, rig: Rig, name: str) -> None:
    other = await other_frontend(rig)
    rollout = await soaked(stores, await start(stores, await fleet(stores)))
    taken = await race(STEPS[name](stores, rollout), stores.operations.fail_rollout(rollout, "judged as slow"))
    assert True in taken
    after = await again(other, rollout)
    if taken[1]:
        assert (after.state, after.outcome) == (RolloutState.ROLLING_BACK, RolloutState.FAILED)
    if after.state is RolloutState.ROLLING_BACK:
        assert await STEPS[name](other, rollout) is False, "it was decided on what was before"


@pytest.mark.parametrize("name", STEPS)
async def test_what_was_decided_before_a_pause_does_not_happen_after_it(stores: Stores, name: str) -> None:
    rollout = await start(stores, await fleet(stores))
    await stores.rollouts.pause(rollout.operation_id, actor="ann", reason="lunch")
    assert await STEPS[name](stores, rollout) is False
    after = await again(stores, rollout)
    assert (after.state, after.reason, after.wave) == (RolloutState.PAUSED, "lunch", 0)


@pytest.mark.parametrize("name", [*STEPS, "verdicts", "end-rollback"])
async def test_a_former_leader_decides_nothing(stores: Stores, rig: Rig, name: str) -> None:
    """Even where the rollout looks as it did: it may have failed and begun again meanwhile."""
    rollout = await start(stores, await fleet(stores))
    former = await stores.leases.hold("rollouts", "fe-a", ttl_s=15)
    await rig.advance(16)
    current = await stores.leases.hold("rollouts", "fe-b", ttl_s=15)
    assert former is not None
    assert current is not None
    if name == "end-rollback":
        await stores.operations.fail_rollout(rollout, "slow", lease=current)
        rollout = await again(stores, rollout)
    decided: dict[str, Callable[[], Coroutine[Any, Any, bool]]] = {
        "begin-soak": lambda: stores.rollouts.begin_soak(rollout, left_behind=(), lease=former),
        "release": lambda: stores.rollouts.release(rollout, 1, lease=former),
        "await-promotion": lambda: stores.rollouts.await_promotion(rollout, lease=former),
        "complete": lambda: stores.rollouts.complete(rollout, lease=former),
        "replaced": lambda: stores.rollouts.end_replaced(rollout, lease=former),
        "stand-in": lambda: stores.rollouts.stand_in(
            rollout, rollout.nodes[-1].member.node_id, reason="x", lease=former
        ),
        "fail": lambda: stores.operations.fail_rollout(rollout, "too slow", lease=former),
        "verdicts": lambda: stores.rollouts.save_verdicts(rollout, [SLOW], lease=former),
        "end-rollback": lambda: stores.rollouts.end_rollback(rollout, text="x", lease=former),
    }
    with pytest.raises(Fenced):
        await decided[name]()
    assert await again(stores, rollout) == rollout, "nothing was written"


# Steering


async def test_pause_resume_and_promote_in_every_state(stores: Stores) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores), strategy=Strategy.CANARY))
    key, store = rollout.operation_id, stores.rollouts
    with pytest.raises(Conflict, match="is running and cannot be resumed"):
        await store.resume(key, actor="ann")
    with pytest.raises(Conflict, match="is running and cannot be allowed"):
        await store.allow(key, actor="ann")
    await store.pause(key, actor="ann", reason="")
    assert (await again(stores, rollout)).reason == "paused by ann"
    with pytest.raises(Conflict, match="is paused and cannot be paused"):
        await store.pause(key, actor="ann", reason="")
    await store.resume(key[:6], actor="bob")
    assert await store.await_promotion(await again(stores, rollout))
    await store.pause(key, actor="ann", reason="later")
    await store.promote(key, actor="ann")
    promoted = await again(stores, rollout)
    assert (promoted.state, promoted.promoted, promoted.reason) == (RolloutState.RUNNING, True, "")
    assert await store.release(promoted, 1)
    assert (await again(stores, rollout)).promoted is False, "it counts for one wave"
    await stores.operations.fail_rollout(await again(stores, rollout), "slow")
    for steer in (store.resume, store.promote, store.allow):
        with pytest.raises(Conflict, match="is rolling back and cannot be"):
            await steer(key, actor="ann")
    with pytest.raises(Conflict, match="is rolling back and cannot be paused"):
        await store.pause(key, actor="ann", reason="")
    actors = [(event.kind, event.actor) for event in await store.read_events(key) if event.actor != "rollout"]
    assert actors == [
        ("started", "test"), ("paused", "ann"), ("resumed", "bob"), ("paused", "ann"), ("promoted", "ann"),
    ]  # fmt: skip


@pytest.mark.parametrize("given", ["", "nothing", "%", "_", "' OR 1=1 --"])
async def test_an_unknown_id_is_told_as_such(stores: Stores, given: str) -> None:
    await start(stores, await fleet(stores))
    store = stores.rollouts
    for call in (store.read_one(given), store.promote(given, actor="a"), store.pause(given, actor="a", reason="")):
        with pytest.raises(NotFound, match="there is no rollout"):
            await call


async def test_an_id_may_be_shortened_as_long_as_it_is_clear(stores: Stores) -> None:
    nodes = await fleet(stores)
    for key, backend in (("ab1", "echo"), ("ab2", "other"), ("ab", "third")):
        asked = admission(Verb.UPGRADE, *nodes, id=key, backend=backend, rollout=plan(nodes, ("1",), Strategy.WAVES))
        await stores.admission.admit(asked)
    assert (await stores.rollouts.read_one("ab1")).backend == "echo"
    assert (await stores.rollouts.read_one("ab")).backend == "third", "an exact id is clear"
    with pytest.raises(Conflict, match="several rollouts begin with 'a'"):
        await stores.rollouts.read_one("a")


# Going back


async def test_a_failed_gate_ends_what_waits_and_names_the_operation_that_goes_back(stores: Stores) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores)))
    assert await stores.operations.fail_rollout(rollout, "too slow")
    back = await again(stores, rollout)
    assert (back.state, back.outcome, back.reason) == (RolloutState.ROLLING_BACK, RolloutState.FAILED, "too slow")
    assert back.rollback_operation_id
    assert await work(stores) == [], "later waves never begin"
    shown = await stores.operations.read_one(rollout.operation_id)
    assert shown.finished_at is None, "until its nodes have gone back"
    assert {one.node_name: one.status.value for one in shown.nodes} == dict.fromkeys(("n0", "n1", "n2"), "cancelled")
    assert await stores.rollouts.end_rollback(back, text="n0: rolled back")
    ended = await again(stores, rollout)
    assert (ended.state, ended.outcome, ended.reason) == (RolloutState.FAILED, None, "too slow")
    assert (await stores.operations.read_one(rollout.operation_id)).finished_at is not None
    assert (await kinds(stores, ended))[-2:] == ["failed", "ended"]


async def test_a_failed_version_is_held_back_until_someone_allows_it(stores: Stores) -> None:
    nodes = await fleet(stores)
    joiner = await healthy(stores, "joiner")
    rollout = await soaked(stores, await start(stores, nodes))
    [held] = await stores.rollouts.read_held_back()
    assert (held.failed, held.released, held.change.digest) == (False, frozenset({nodes[0].id}), NEW)
    assert held.applies_to(nodes[1])
    await stores.operations.fail_rollout(rollout, "too slow")
    await stores.rollouts.end_rollback(await again(stores, rollout), text="done")
    [held] = await stores.rollouts.read_held_back()
    assert (held.failed, held.released, held.reason) == (True, frozenset(), "too slow")
    assert not held.applies_to(joiner), "the operation named its nodes"
    await stores.rollouts.allow(rollout.operation_id, actor="ann")
    assert await stores.rollouts.read_held_back() == []
    assert (await again(stores, rollout)).allowed_by == "ann"


@pytest.mark.parametrize(
    ("outcome", "learned"),
    [
        pytest.param(AttemptConfirmed(NEW), NEW, id="by-a-node-that-has-it"),
        pytest.param(AttemptRejected("on fire", version_failed=True, digest=NEW), NEW, id="by-one-where-it-fails"),
        pytest.param(AttemptConfirmed(OLD), "", id="but-not-by-one-that-has-the-version-before"),
        pytest.param(AttemptRejected("disk full"), "", id="by-nobody"),
    ],
)
async def test_a_version_that_its_source_does_not_tell_is_held_back_by_what_nodes_report(
    stores: Stores, outcome: AttemptOutcome, learned: str
) -> None:
    rollout = await start(stores, await fleet(stores), new=spec("", ""))
    await work(stores, outcome)
    [held] = await stores.rollouts.read_held_back()
    assert held.change.digest == learned, "also while it runs"
    await stores.operations.fail_rollout(await again(stores, rollout), "too slow")
    await stores.rollouts.end_rollback(await again(stores, rollout), text="done")
    [held] = await stores.rollouts.read_held_back()
    assert (held.failed, held.change.digest, held.change.is_digest_reported) == (True, learned, bool(learned))
    assert held.change.is_to("echo", digest=NEW, version="") is bool(learned)
    shown = await stores.operations.read_one(rollout.operation_id)
    has = outcome.digest if isinstance(outcome, AttemptConfirmed) else ""
    assert shown.nodes[0].digest == has, "a version that does not start is not what the node has"


@pytest.mark.parametrize("state", ["running", "paused", "awaiting_promotion"])
async def test_an_abort_works_in_every_open_state_and_holds_nothing_back(stores: Stores, state: str) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores), strategy=Strategy.CANARY))
    if state == "paused":
        await stores.rollouts.pause(rollout.operation_id, actor="ann", reason="")
    if state == "awaiting_promotion":
        await stores.rollouts.await_promotion(rollout)
    await stores.operations.cancel(rollout.operation_id, actor="ann")
    back = await again(stores, rollout)
    assert (back.state, back.outcome) == (RolloutState.ROLLING_BACK, RolloutState.ABORTED)
    first = back.rollback_operation_id
    await stores.operations.cancel(rollout.operation_id, actor="bob")
    assert (await again(stores, rollout)).rollback_operation_id == first, "a second abort changes nothing"
    await stores.rollouts.end_rollback(back, text="done")
    assert (await again(stores, rollout)).state is RolloutState.ABORTED
    assert await stores.rollouts.read_held_back() == []


async def test_an_abort_and_a_failing_gate_at_once_go_back_once(stores: Stores, rig: Rig) -> None:
    other = await other_frontend(rig)
    rollout = await soaked(stores, await start(stores, await fleet(stores)))

    async def abort() -> bool:
        await other.operations.cancel(rollout.operation_id, actor="ann")
        return True

    await race(stores.operations.fail_rollout(rollout, "too slow"), abort())
    assert len({"failed", "aborted"} & set(await kinds(stores, rollout))) == 1


async def test_a_crash_while_it_goes_back_is_resumed_under_the_same_operation(stores: Stores, rig: Rig) -> None:
    """Another frontend finds the id of the operation in the row; admitting it twice makes it once."""
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes))
    await stores.operations.fail_rollout(rollout, "too slow")
    other = await other_frontend(rig)
    [found] = await other.rollouts.read_open()
    assert found.rollback_operation_id is not None
    asked = admission(Verb.ROLLBACK, nodes[0], id=found.rollback_operation_id, spec=spec(OLD, "1"))
    await asyncio.gather(stores.admission.admit(asked), other.admission.admit(asked))
    assert await work(other, AttemptConfirmed(OLD)) == ["n0"]
    assert (await stores.operations.read_one(found.rollback_operation_id)).finished_at is not None


# Retries


async def gone_back(stores: Stores, rollout: Rollout, nodes: list[Node]) -> Rollout:
    """Its rollback operation brought back the first node."""
    back = await again(stores, rollout)
    assert back.rollback_operation_id is not None
    asked = admission(Verb.ROLLBACK, nodes[0], id=back.rollback_operation_id, spec=spec(OLD, "1"))
    await stores.admission.admit(asked)
    await work(stores, AttemptConfirmed(OLD))
    assert await stores.rollouts.end_rollback(await again(stores, rollout), text="done")
    return await again(stores, rollout)


@pytest.mark.parametrize(("outcome", "words"), [("failed", "rollouts allow"), ("aborted", "upgrade again")])
async def test_a_rollout_that_went_back_is_not_retried(stores: Stores, outcome: str, words: str) -> None:
    """Its canaries went back by a newer operation, so a retry would begin with the others."""
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes))
    if outcome == "failed":
        await stores.operations.fail_rollout(rollout, "too slow")
    else:
        await stores.operations.cancel(rollout.operation_id, actor="ann")
    with pytest.raises(Conflict, match="is rolling back"):
        await stores.operations.retry(rollout.operation_id, node_id=None, actor="ann")
    ended = await gone_back(stores, rollout, nodes)
    for node_id in (None, nodes[1].id):
        with pytest.raises(Conflict, match=words):
            await stores.operations.retry(rollout.operation_id, node_id=node_id, actor="ann")
    assert await work(stores) == []
    assert await again(stores, rollout) == ended


async def completed_without_its_last_node(stores: Stores, nodes: list[Node]) -> Rollout:
    rollout = await soaked(stores, await start(stores, nodes))
    await stores.rollouts.release(rollout, 1)
    for outcome in (AttemptConfirmed(NEW), AttemptRejected("disk full", final=True)):
        [claim] = await stores.intents.claim("fe", lease_s=15, limit=1)
        step = plan_next(claim.intent, outcome, draw=1.0, limits=LIMITS)
        await stores.intents.record([Result(claim.intent, step)])
    rollout = await again(stores, rollout)
    assert await stores.rollouts.begin_soak(rollout, left_behind=("n2",))
    assert await stores.rollouts.complete(await again(stores, rollout))
    return await again(stores, rollout)


async def test_a_late_node_of_a_completed_rollout_is_retried_alone(stores: Stores) -> None:
    rollout = await completed_without_its_last_node(stores, await fleet(stores))
    late = [node.member.node_name for node in rollout.nodes if not node.is_done]
    assert len(late) == 1
    await stores.operations.retry(rollout.operation_id, node_id=None, actor="ann")
    assert await work(stores) == late
    after = await again(stores, rollout)
    assert (after.state, after.wave, after.waves) == (RolloutState.COMPLETED, 1, rollout.waves)
    assert all(node.is_done for node in after.nodes)
    assert (await stores.operations.read_one(rollout.operation_id)).finished_at is not None


async def test_a_rollout_without_gates_begins_again_with_a_retry(stores: Stores) -> None:
    rollout = await start(stores, await fleet(stores, 1), strategy=Strategy.ALL)
    await work(stores, AttemptRejected("no", final=True))
    assert (await again(stores, rollout)).state is RolloutState.FAILED
    await stores.operations.retry(rollout.operation_id, node_id=None, actor="ann")
    assert (await again(stores, rollout)).state is RolloutState.RUNNING
    await work(stores)
    assert (await again(stores, rollout)).state is RolloutState.COMPLETED


async def test_a_completed_rollout_is_not_aborted_and_a_cancel_stops_only_late_nodes(stores: Stores) -> None:
    rollout = await completed_without_its_last_node(stores, await fleet(stores))
    await stores.operations.retry(rollout.operation_id, node_id=None, actor="ann")
    with pytest.raises(Conflict, match=r"is completed and cannot be aborted.*backends rollback echo.*ops cancel"):
        await stores.operations.abort(rollout.operation_id, actor="ann")
    assert (await stores.operations.read_one(rollout.operation_id)).finished_at is None
    await stores.operations.cancel(rollout.operation_id, actor="ann")
    states = sorted(node.intent.value for node in (await again(stores, rollout)).nodes if node.intent is not None)
    assert states == ["cancelled", "succeeded", "succeeded"], "what the gates accepted stays"


async def test_a_rollout_that_ended_is_not_aborted(stores: Stores) -> None:
    rollout = await start(stores, await fleet(stores))
    await stores.operations.abort(rollout.operation_id, actor="ann")
    await stores.rollouts.end_rollback(await again(stores, rollout), text="done")
    with pytest.raises(Conflict, match="is aborted and cannot be aborted"):
        await stores.operations.abort(rollout.operation_id, actor="ann")


# Newer operations, and corrections


async def test_the_version_of_an_open_rollout_is_not_requested_twice(stores: Stores) -> None:
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes))
    key = rollout.operation_id[:8]
    pattern = rf"already bringing 2 to n0, n1, n2.*rollouts watch {key}.*rollouts abort {key}"
    with pytest.raises(Conflict, match=pattern):
        await start(stores, nodes)
    for verb in (Verb.INSTALL, Verb.PIN, Verb.UPGRADE):
        with pytest.raises(Conflict, match="already bringing 2 to n0;"):
            await stores.admission.admit(admission(verb, nodes[0], spec=spec(NEW, "2")))
    assert await again(stores, rollout) == rollout
    other = await healthy(stores, "other")
    await stores.admission.admit(admission(Verb.INSTALL, other, spec=spec(NEW, "2")))
    await stores.operations.fail_rollout(rollout, "too slow")
    with pytest.raises(Conflict, match="is taking 2 back from n0; "):
        await start(stores, nodes)
    await gone_back(stores, rollout, nodes)
    assert (await start(stores, nodes)).state is RolloutState.RUNNING


async def test_a_newer_version_takes_nodes_over_with_the_version_before_the_older_rollout(stores: Stores) -> None:
    nodes = await fleet(stores, 4)
    first = await soaked(stores, await start(stores, nodes))
    newer = await start(stores, nodes[:3], new=spec("sha256:third", "3"), old=NEW)
    assert {one.member.node_name: (one.member.previous_digest, one.member.inherited) for one in newer.nodes} == {
        "n0": (OLD, True), "n1": (NEW, False), "n2": (NEW, False),
    }  # fmt: skip
    assert newer.builds[0].previous.build.digest == OLD
    older = await again(stores, first)
    assert [node.has_left for node in older.nodes] == [True, True, True, False]
    assert older.nodes[0].replaced_by == newer.operation_id
    assert not older.nodes[0].needs_rollback
    assert newer.nodes[0].needs_rollback, "also before it has begun there"
    last = await start(stores, nodes, new=spec("sha256:fourth", "4"), old=NEW)
    assert {one.member.previous_digest for one in last.nodes if one.member.inherited} == {OLD}, "and so on"


async def test_a_node_that_waits_to_go_back_is_taken_over_by_the_next_rollout(stores: Stores) -> None:
    """It is away, and shows the version of the rollout that was aborted."""
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes))
    await stores.operations.abort(rollout.operation_id, actor="ann")
    back = await again(stores, rollout)
    assert back.rollback_operation_id is not None
    asked = admission(Verb.ROLLBACK, nodes[0], id=back.rollback_operation_id, spec=spec(OLD, "1"))
    await stores.admission.admit(asked)
    assert await stores.rollouts.end_rollback(await again(stores, rollout), text="n0 is away")
    planned = plan(nodes[1:], ("1",), Strategy.WAVES)
    asked = admission(Verb.UPGRADE, *nodes, spec=spec(NEW, "2"), rollout=planned)
    newer = await stores.rollouts.read_one((await stores.admission.admit(asked)).id)
    assert [[node.member.node_name for node in newer.nodes_of(wave)] for wave in (0, 1)] == [["n1"], ["n0", "n2"]]
    assert [node.member.previous_digest for node in newer.nodes if node.member.inherited] == [OLD]


@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.INSTALL])
async def test_another_operation_on_a_node_that_is_done_takes_it_out(stores: Stores, verb: Verb) -> None:
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes))
    newer = (await stores.admission.admit(admission(verb, nodes[0], spec=spec("sha256:other", "9")))).id
    [taken, *others] = (await again(stores, rollout)).nodes
    assert (taken.has_left, taken.is_done, taken.replaced_by) == (True, False, newer)
    assert not any(node.has_left for node in others)


async def test_a_policy_that_installs_the_version_again_continues_the_rollout(stores: Stores) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes)
    await work(stores, AttemptRejected("disk full", final=True))
    assert (await again(stores, rollout)).nodes[0].intent is IntentState.DEAD_LETTERED
    await correct(stores, nodes[0], spec(NEW, "2"))
    assert (await again(stores, rollout)).nodes[0].intent is IntentState.PENDING
    assert await work(stores) == ["n0"]
    node = (await again(stores, rollout)).nodes[0]
    assert (node.is_done, node.error, node.digest, node.needs_rollback) == (True, "", NEW, True)
    await correct(stores, nodes[0], spec("sha256:other", "9"))
    assert (await again(stores, rollout)).nodes[0].has_left, "another version is not the rollout's"


async def test_without_digests_a_policy_continues_the_rollout_by_the_version(stores: Stores) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes, new=spec("", "2"))
    await work(stores, AttemptRejected("disk full", final=True))
    await correct(stores, nodes[0], spec("", "2"))
    assert (await again(stores, rollout)).nodes[0].intent is IntentState.PENDING
    await correct(stores, nodes[0], spec("", "3"))
    assert (await again(stores, rollout)).nodes[0].has_left


async def test_a_stand_in_begins_with_the_first_wave(stores: Stores, rig: Rig) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes)
    await rig.advance(100)
    assert await stores.rollouts.stand_in(rollout, nodes[2].id, reason="n0 is offline")
    moved = await again(stores, rollout)
    assert [node.member.node_name for node in moved.nodes_of(0)] == ["n0", "n2"]
    assert moved.waves[0].began_at > rollout.waves[0].began_at
    assert await work(stores) == ["n0", "n2"]
    events = await stores.rollouts.read_events(rollout.operation_id)
    assert (events[-1].kind, events[-1].text) == ("stand_in", "n0 is offline; n2 stands in")
    assert not await stores.rollouts.stand_in(moved, nodes[2].id, reason=""), "it is there already"


# Reads


async def test_nodes_of_a_removed_machine_have_left(stores: Stores) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes)
    await stores.nodes.remove(nodes[0].id, actor="test")
    await stores.intents.finish_idle()
    assert [node.has_left for node in (await again(stores, rollout)).nodes] == [True, False, False]


async def test_how_replicas_are_replaced_is_read_from_the_newest_open_rollout(stores: Stores) -> None:
    nodes = await fleet(stores)
    assert await stores.rollouts.read_per_node(nodes[0].id, "echo") is PerNode.AUTO
    rollout = await start(stores, nodes, per_node=PerNode.STOP_FIRST)
    assert await stores.rollouts.read_per_node(nodes[0].id, "echo") is PerNode.STOP_FIRST
    assert await stores.rollouts.read_per_node(nodes[0].id, "other") is PerNode.AUTO
    await stores.operations.fail_rollout(rollout, "slow")
    assert await stores.rollouts.read_per_node(nodes[0].id, "echo") is PerNode.AUTO, "going back is not forced"


async def test_changes_are_found_by_time_and_recent_ones_newest_first(stores: Stores, rig: Rig) -> None:
    nodes = await fleet(stores)
    first = await start(stores, nodes)
    await stores.operations.cancel(first.operation_id, actor="ann")
    await stores.rollouts.end_rollback(await again(stores, first), text="done")
    await rig.advance(10)
    second = await start(stores, nodes)
    now_ms, changed = await stores.rollouts.read_changes(second.created_at)
    assert [one.operation_id for one in changed] == [second.operation_id]
    assert now_ms == await stores.rollouts.now_ms()
    recent = [one.operation_id for one in await stores.rollouts.read_recent(limit=1)]
    assert recent == [second.operation_id, first.operation_id]


async def test_long_reasons_are_cut(stores: Stores) -> None:
    rollout = await start(stores, await fleet(stores))
    await stores.operations.fail_rollout(rollout, "x" * 10_000)
    assert len((await again(stores, rollout)).reason) == 2000
