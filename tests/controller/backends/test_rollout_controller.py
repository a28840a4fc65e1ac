"""The controller of rollouts on a real store: it judges in every open state, and goes back under one operation."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from corral.controller.backends.rollout_controller import RolloutReconciler
from corral.core.backends.gates import GateOutcome, GateSettings, GateVerdict
from corral.core.backends.intents import AttemptConfirmed, AttemptRejected, IntentState, Verb, plan_next
from corral.core.backends.rollouts import Rollout, RolloutState, Strategy
from corral.core.errors import InvalidInput, Unavailable
from corral.core.nodes.node import NodeId
from corral.store.backends.intents import Result
from corral.store.engine.leases import Lease
from corral.store.stores import Stores
from harness.databases import Rig
from harness.fleet_store import admission, healthy
from harness.reconcile import make_runtime
from store.backends.test_rollouts import LIMITS, NEW, OLD, SLOW, again, correct, fleet, kinds, soaked, spec, start, work

PASSED = GateVerdict(gate="stable", outcome=GateOutcome.PASSED, detail="fine")


class Judge:
    """Answers what the test says."""

    def __init__(self) -> None:
        self.verdicts: list[GateVerdict] = [PASSED]
        self.prompts: list[GateVerdict] = []
        self.asked: list[Collection[NodeId]] = []
        """For which nodes prompts were sent."""
        self.answered: Collection[GateVerdict] = ()
        """What was known when they were last sent."""
        self.slow: asyncio.Event | None = None
        """Prompts take until it is set."""
        self.broken = ""
        """The backend whose figures cannot be read."""
        self.versions: Mapping[NodeId, tuple[str, str]] = {}

    async def judge(
        self,
        *,
        backend: str,
        nodes: Sequence[NodeId],
        versions: dict[NodeId, tuple[str, str]],
        since_ms: int,
        settings: GateSettings,
    ) -> list[GateVerdict]:
        if backend == self.broken:
            raise InvalidInput("these figures make no sense")
        self.versions = versions
        return list(self.verdicts)

    async def judge_prompts(
        self, *, nodes: Sequence[NodeId], versions: dict[NodeId, tuple[str, str]], answered: Collection[GateVerdict]
    ) -> list[GateVerdict]:
        self.asked.append(nodes)
        self.answered = answered
        if self.slow is not None:
            await self.slow.wait()
        return list(self.prompts)


class Frontend:
    def __init__(self, stores: Stores, name: str) -> None:
        self.stores, self.name, self.gates = stores, name, Judge()
        self.rollouts = RolloutReconciler(
            make_runtime(stores, name), stores=stores, gates=self.gates, on_change=self.noted
        )

    async def noted(self) -> None:
        """Other frontends would be notified."""

    async def turn(self) -> None:
        """One run, as its leader; it ends when all golden prompts are answered."""
        async with asyncio.TaskGroup() as self.rollouts._tasks:
            await self.rollouts.loop._run_once()

    async def lead(self) -> Lease:
        lease = await self.stores.leases.hold("rollouts", self.name, ttl_s=15)
        assert lease is not None
        return lease


@pytest.fixture
def frontend(stores: Stores) -> Frontend:
    return Frontend(stores, "fe")


async def canaries(stores: Stores, frontend: Frontend) -> Rollout:
    rollout = await start(stores, await fleet(stores), strategy=Strategy.CANARY, soak_s=30)
    await work(stores)
    await frontend.turn()
    await frontend.turn()
    return await again(stores, rollout)


async def test_it_carries_a_rollout_from_wave_to_wave(stores: Stores, frontend: Frontend, rig: Rig) -> None:
    rollout = await start(stores, await fleet(stores), soak_s=30)
    for wave in (0, 1):
        await frontend.turn()
        assert (await again(stores, rollout)).wave == wave
        await work(stores)
        await frontend.turn()
        await frontend.turn()
        await rig.advance(31)
        await frontend.turn()
    assert (await again(stores, rollout)).state is RolloutState.COMPLETED
    assert len(frontend.gates.asked) == 2, "golden prompts are sent once for each wave"
    assert set(frontend.gates.versions.values()) == {("sha256:new", "sha256:old")}


@pytest.mark.parametrize("state", ["running", "paused", "awaiting_promotion"])
async def test_a_gate_that_fails_in_any_open_state_rolls_back(
    stores: Stores, frontend: Frontend, rig: Rig, state: str
) -> None:
    """Canaries keep serving while a rollout is paused or waits for its promotion, so they are still judged."""
    rollout = await canaries(stores, frontend)
    if state == "paused":
        await stores.rollouts.pause(rollout.operation_id, actor="ann", reason="lunch")
    if state == "awaiting_promotion":
        await rig.advance(31)
        await frontend.turn()
    assert (await again(stores, rollout)).state == state
    frontend.gates.verdicts = [SLOW]
    await frontend.turn()
    failed = await again(stores, rollout)
    assert (failed.state, failed.reason) == (RolloutState.ROLLING_BACK, "tiny: too slow")
    assert SLOW in failed.waves[0].verdicts


async def test_another_frontend_takes_over_in_the_middle_of_going_back(stores: Stores, rig: Rig) -> None:
    first, second = Frontend(stores, "fe-a"), Frontend(Stores(await rig.open()), "fe-b")
    rollout = await soaked(stores, await start(stores, await fleet(stores)))
    await stores.operations.fail_rollout(rollout, "too slow", lease=await first.lead())
    await second.turn()
    assert (await again(stores, rollout)).state is RolloutState.ROLLING_BACK, "the first one still leads"
    await rig.advance(16)
    await second.turn()
    assert await work(stores, AttemptConfirmed("sha256:old")) == ["n0"], "only the canary had the new version"
    await second.turn()
    ended = await again(stores, rollout)
    assert (ended.state, ended.reason) == (RolloutState.FAILED, "too slow")
    events = await stores.rollouts.read_events(rollout.operation_id)
    assert events[-1].text == "n0: rolled back"


async def test_a_rollout_that_no_node_has_begun_ends_at_once(stores: Stores, frontend: Frontend) -> None:
    rollout = await start(stores, await fleet(stores))
    await stores.operations.cancel(rollout.operation_id, actor="ann")
    await frontend.turn()
    ended = await again(stores, rollout)
    assert (ended.state, ended.reason) == (RolloutState.ABORTED, "cancelled by ann")
    assert (await kinds(stores, ended))[-1] == "ended"


async def test_a_newer_operation_on_all_nodes_replaces_it(stores: Stores, frontend: Frontend) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes)
    newer = await start(stores, nodes, new=spec("sha256:third", "3"))
    await frontend.turn()
    ended = await again(stores, rollout)
    assert (ended.state, ended.reason) == (RolloutState.ABORTED, f"replaced by operation {newer.operation_id}")
    assert (await again(stores, newer)).state is RolloutState.RUNNING


async def test_a_canary_of_a_rollout_that_was_replaced_goes_back_to_the_version_before_it(
    stores: Stores, frontend: Frontend
) -> None:
    """Gates fail in both, and nobody judged the version of the first one. Another node is the canary of the second."""
    nodes = await fleet(stores)
    first = await soaked(stores, await start(stores, nodes))
    second = await start(stores, list(reversed(nodes)), new=spec("sha256:third", "3"), old=NEW, sizes=("1",))
    [canary] = second.nodes_of(0)
    await frontend.turn()
    assert (await again(stores, first)).state is RolloutState.ABORTED
    await work(stores, AttemptConfirmed("sha256:third"))
    await frontend.turn()
    frontend.gates.verdicts = [SLOW]
    await frontend.turn()
    await frontend.turn()
    back = await again(stores, second)
    assert back.rollback_operation_id is not None
    specs = {one.node_id: one.spec.build.digest for one in await stores.intents.read_newest()}
    assert specs[nodes[0].id] == OLD, "not the version that the first one brought"
    assert specs[canary.member.node_id] == (OLD if canary.member.node_id == nodes[0].id else NEW)


async def test_a_canary_that_is_deleted_when_it_is_done_has_not_passed(
    stores: Stores, frontend: Frontend, rig: Rig
) -> None:
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes, soak_s=5, wave_timeout_s=100))
    await stores.admission.admit(admission(Verb.DELETE, nodes[0]))
    await rig.advance(10)
    await frontend.turn()
    assert (await again(stores, rollout)).wave == 0
    await rig.advance(100)
    await frontend.turn()
    assert (await kinds(stores, rollout))[-1] == "stand_in"
    assert [node.member.node_name for node in (await again(stores, rollout)).nodes_of(0)] == ["n0", "n1"]


async def test_a_delete_on_all_nodes_after_a_canary_was_done_ends_it(stores: Stores, frontend: Frontend) -> None:
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes))
    await stores.admission.admit(admission(Verb.DELETE, *nodes))
    await frontend.turn()
    ended = await again(stores, rollout)
    assert ended.state is RolloutState.ABORTED
    assert ended.reason.startswith("replaced by operation ")


async def test_a_canary_that_a_policy_installed_is_judged_and_goes_back(stores: Stores, frontend: Frontend) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes)
    await work(stores, AttemptRejected("disk full", final=True))
    await correct(stores, nodes[0], spec(NEW, "2"))
    await work(stores)
    await frontend.turn()
    current = (await again(stores, rollout)).current
    assert current is not None
    assert current.soak_began_at is not None
    frontend.gates.verdicts = [SLOW]
    await frontend.turn()
    await frontend.turn()
    assert await work(stores, AttemptConfirmed(OLD)) == ["n0"]
    await frontend.turn()
    assert (await stores.rollouts.read_events(rollout.operation_id))[-1].text == "n0: rolled back"


# Golden prompts


WRONG = GateVerdict(gate="golden_prompts", outcome=GateOutcome.FAILED, detail="wrong answer", model="tiny")


async def test_a_failed_golden_prompt_is_not_lost_when_its_verdict_cannot_be_stored(
    stores: Stores, frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores)))
    frontend.gates.prompts = [WRONG]
    await frontend.turn()
    save = stores.rollouts.save_verdicts

    async def fail_once(*given: Any, **more: Any) -> bool:
        monkeypatch.setattr(stores.rollouts, "save_verdicts", save)
        raise Unavailable("the store does not answer")

    monkeypatch.setattr(stores.rollouts, "save_verdicts", fail_once)
    await frontend.turn()
    assert (await again(stores, rollout)).state is RolloutState.RUNNING
    await frontend.turn()
    assert (await again(stores, rollout)).reason == "tiny: wrong answer"
    assert len(frontend.gates.asked) == 1


NOT_READY = replace(WRONG, outcome=GateOutcome.UNJUDGED, detail="no replica is ready")
RIGHT = replace(WRONG, outcome=GateOutcome.PASSED, detail="answered as expected")


async def test_golden_prompts_that_nobody_could_answer_are_sent_again_while_the_wave_is_watched(
    stores: Stores, frontend: Frontend, rig: Rig
) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores), soak_s=60))
    frontend.gates.prompts = [RIGHT, NOT_READY]
    for _ in range(4):
        await frontend.turn()
    assert len(frontend.gates.asked) == 1
    assert NOT_READY in (await again(stores, rollout)).waves[0].verdicts
    await rig.advance(10)
    for _ in range(2):
        await frontend.turn()
    assert (len(frontend.gates.asked), frontend.gates.answered) == (2, [RIGHT, NOT_READY])
    frontend.gates.prompts = [RIGHT, WRONG]
    await rig.advance(10)
    for _ in range(2):
        await frontend.turn()
    assert (await again(stores, rollout)).reason == "tiny: wrong answer"


async def test_golden_prompts_are_sent_once_more_before_the_wave_passes(
    stores: Stores, frontend: Frontend, rig: Rig
) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores), soak_s=5))
    frontend.gates.prompts = [NOT_READY]
    for _ in range(2):
        await frontend.turn()
    frontend.gates.prompts = [WRONG]
    await rig.advance(5)
    await frontend.turn()
    assert (await again(stores, rollout)).wave == 0
    await frontend.turn()
    assert (await again(stores, rollout)).reason == "tiny: wrong answer"


async def test_slow_golden_prompts_hold_up_neither_other_rollouts_nor_an_abort(
    stores: Stores, frontend: Frontend, rig: Rig
) -> None:
    nodes = await fleet(stores, 4)
    slow = await soaked(stores, await start(stores, nodes[:2], soak_s=0))
    frontend.gates.slow = asyncio.Event()
    async with asyncio.TaskGroup() as frontend.rollouts._tasks:
        await frontend.rollouts.loop._run_once()
        other = await soaked(stores, await start(stores, nodes[2:], soak_s=0))
        frontend.gates.verdicts = [SLOW]
        await frontend.rollouts.loop._run_once()
        assert (await again(stores, other)).state is RolloutState.ROLLING_BACK
        assert (await again(stores, slow)).state is RolloutState.ROLLING_BACK
        frontend.gates.verdicts = [PASSED]
        more = [await healthy(stores, "m0"), await healthy(stores, "m1")]
        third = await soaked(stores, await start(stores, more, soak_s=0))
        await frontend.rollouts.loop._run_once()
        assert (await again(stores, third)).wave == 0, "its prompts are not answered yet"
        await stores.operations.abort(third.operation_id, actor="ann")
        await frontend.rollouts.loop._run_once()
        assert "m0" in await work(stores, AttemptConfirmed(OLD)), "it goes back at once"
        frontend.gates.slow.set()


async def test_prompts_of_rollouts_that_ended_are_forgotten(stores: Stores, frontend: Frontend) -> None:
    rollout = await soaked(stores, await start(stores, await fleet(stores)))
    await frontend.turn()
    assert len(frontend.rollouts._prompts) == 1
    await stores.operations.abort(rollout.operation_id, actor="ann")
    for _ in range(3):
        await frontend.turn()
        await work(stores, AttemptConfirmed(OLD))
    assert (await again(stores, rollout)).state is RolloutState.ABORTED
    await frontend.turn()
    assert frontend.rollouts._prompts == {}


# Waiting and going back


async def test_figures_of_nodes_that_are_done_are_judged_while_it_is_paused_before_the_soak(
    stores: Stores, frontend: Frontend
) -> None:
    rollout = await start(stores, await fleet(stores), sizes=("2",))
    [claim] = await stores.intents.claim("fe", lease_s=15, limit=1)
    step = plan_next(claim.intent, AttemptConfirmed(NEW), draw=1.0, limits=LIMITS)
    await stores.intents.record([Result(claim.intent, step)])
    await stores.rollouts.pause(rollout.operation_id, actor="ann", reason="lunch")
    frontend.gates.verdicts = [SLOW]
    await frontend.turn()
    assert (await again(stores, rollout)).state is RolloutState.ROLLING_BACK


async def test_another_node_stands_in_for_a_sole_canary_that_is_away(
    stores: Stores, frontend: Frontend, rig: Rig
) -> None:
    nodes = await fleet(stores)
    rollout = await start(stores, nodes, soak_s=0, wave_timeout_s=100)
    await stores.nodes.set_drain(nodes[0].id, True, actor="ann")
    await rig.advance(99)
    await frontend.turn()
    assert len((await again(stores, rollout)).nodes_of(0)) == 1
    await rig.advance(1)
    await frontend.turn()
    text = (await stores.rollouts.read_events(rollout.operation_id))[-1].text
    assert text == "n0 is draining; n1 stands in"
    for _ in range(2):
        await work(stores)
        for _ in range(3):
            await frontend.turn()
    ended = await again(stores, rollout)
    assert ended.state is RolloutState.COMPLETED
    assert [node.is_done for node in ended.nodes] == [False, True, True]
    await stores.nodes.set_drain(nodes[0].id, False, actor="ann")
    assert await work(stores) == ["n0"], "it follows"


async def test_a_rollback_ends_without_nodes_that_are_away_and_they_follow(
    stores: Stores, frontend: Frontend, rig: Rig
) -> None:
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes, sizes=("2",)))
    await stores.nodes.set_drain(nodes[1].id, True, actor="ann")
    await stores.operations.fail_rollout(rollout, "too slow")
    await frontend.turn()
    await frontend.turn()
    assert (await again(stores, rollout)).state is RolloutState.ROLLING_BACK, "n0 is still to go back"
    assert await work(stores, AttemptConfirmed(OLD)) == ["n0"]
    await frontend.turn()
    assert (await again(stores, rollout)).state is RolloutState.FAILED
    text = (await stores.rollouts.read_events(rollout.operation_id))[-1].text
    assert text == "n0: rolled back; n1: not reachable now; rolled back on return"
    await stores.nodes.set_drain(nodes[1].id, False, actor="ann")
    assert await work(stores, AttemptConfirmed(OLD)) == ["n1"]
    assert {node.rollback for node in (await again(stores, rollout)).nodes[:2]} == {IntentState.SUCCEEDED}


async def test_nodes_that_do_not_go_back_are_named_with_the_reason(stores: Stores, frontend: Frontend) -> None:
    nodes = await fleet(stores)
    rollout = await soaked(stores, await start(stores, nodes, sizes=("2",)))
    await stores.database.write(
        lambda tx: tx.execute("UPDATE rollout_nodes SET previous_digest = '' WHERE node_id = $1", nodes[1].id)
    )
    await stores.operations.fail_rollout(await again(stores, rollout), "too slow")
    await frontend.turn()
    assert await work(stores, AttemptRejected("it is gone from the disk", final=True)) == ["n0"]
    await frontend.turn()
    text = (await stores.rollouts.read_events(rollout.operation_id))[-1].text
    assert text.startswith("n0: not rolled back: it is gone from the disk")
    assert text.endswith("; n1: the version before is not known")


async def test_one_broken_rollout_does_not_stop_the_others(stores: Stores, frontend: Frontend) -> None:
    nodes = await fleet(stores)
    first = await soaked(stores, await start(stores, nodes[:2]))
    await stores.database.write(lambda tx: tx.execute("UPDATE rollouts SET backend = 'broken'"))
    second = await start(stores, nodes[2:])
    await work(stores)
    frontend.gates.broken = "broken"
    await frontend.turn()
    current = (await again(stores, second)).current
    assert current is not None
    assert current.soak_began_at is not None
    assert (await again(stores, first)).waves[0].verdicts == ()
