"""Rollouts: who is in which wave, what comes next in every state, and which versions a node is not offered."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.backends.test_drift import machine
from corral.core.backends.build import BuildRef
from corral.core.backends.gates import GateOutcome, GateSettings, GateVerdict
from corral.core.backends.intents import BackendSpec, IntentState
from corral.core.backends.rollouts import (
    MAX_WAVES,
    AwaitPromotion,
    BeginSoak,
    Complete,
    HeldBack,
    PerNode,
    Release,
    Replaced,
    RollBack,
    Rollout,
    RolloutMember,
    RolloutNode,
    RolloutOptions,
    RolloutRequest,
    RolloutState,
    StandIn,
    Step,
    Strategy,
    VersionChange,
    Wait,
    WaveRecord,
    check_sizes,
    choose_strategy,
    complete_builds,
    describe_failed_version,
    find_held_back,
    find_held_back_versions,
    plan_step,
    plan_waves,
    resolve_options,
)
from corral.core.errors import InvalidInput
from corral.core.nodes.node import NodeId, NodeStatus
from corral.core.nodes.targets import Target

OLD, NEW = "sha256:old", "sha256:new"


def member(name: str, node_class: str = "cpu", **fields: Any) -> RolloutMember:
    return RolloutMember(
        node_id=NodeId(name),
        node_name=name,
        node_class=node_class,
        build="echo",
        previous_version="1",
        previous_digest=OLD,
        **fields,
    )


def members(count: int, classes: int) -> list[RolloutMember]:
    return [member(f"n{number:02}", f"class-{number % classes}") for number in range(count)]


# Waves


def sizes_of(waves: Sequence[Sequence[RolloutMember]]) -> list[int]:
    return [len(wave) for wave in waves]


@pytest.mark.parametrize("strategy", [Strategy.WAVES, Strategy.CANARY])
@pytest.mark.parametrize("classes", [1, 2, 3, 5])
@pytest.mark.parametrize("count", range(1, 51))
def test_canaries_of_each_class_come_first_then_a_tenth_a_half_and_all(
    count: int, classes: int, strategy: Strategy
) -> None:
    waves = plan_waves(members(count, classes), strategy)
    everyone = [one for wave in waves for one in wave]
    assert sorted(one.node_name for one in everyone) == [f"n{number:02}" for number in range(count)], "each node once"
    canaries = min(count, classes)
    assert len(waves[0]) == canaries
    assert {one.node_class for one in waves[0]} == {f"class-{number}" for number in range(canaries)}
    steps = {canaries, math.ceil(count * 0.1), math.ceil(count * 0.5), count}
    reached = [sum(sizes_of(waves)[: place + 1]) for place in range(len(waves))]
    assert reached == sorted(step for step in steps if step >= canaries)


@pytest.mark.parametrize(
    ("count", "sizes", "expected"),
    [
        pytest.param(12, (), [3, 3, 6], id="twelve-of-three-classes-without-sizes"),
        pytest.param(10, ("1",), [1, 9], id="one-then-the-rest"),
        pytest.param(10, ("1", "3", "10"), [1, 2, 7], id="numbers-are-cumulative"),
        pytest.param(10, ("25%", "50%", "100%"), [3, 2, 5], id="shares-are-rounded-up"),
        pytest.param(10, ("50%", "10%"), [5, 5], id="a-smaller-one-later-adds-no-wave"),
        pytest.param(10, ("3", "3", "30%"), [3, 7], id="nor-does-the-same-again"),
        pytest.param(4, ("100",), [4], id="more-than-there-are"),
        pytest.param(3, ("1%",), [1, 2], id="a-share-of-less-than-a-node-is-one"),
        pytest.param(1, ("1",), [1], id="one-node"),
        pytest.param(0, ("1",), [], id="no-node"),
    ],
)
def test_given_sizes(count: int, sizes: tuple[str, ...], expected: list[int]) -> None:
    assert sizes_of(plan_waves(members(count, 3), Strategy.WAVES, sizes)) == expected


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_all_at_once_is_one_wave_whatever_the_sizes(count: int) -> None:
    assert sizes_of(plan_waves(members(count, 3), Strategy.ALL, ("1", "50%"))) == [count]


def test_a_canary_is_healthy_and_serves_if_its_class_has_such_a_node() -> None:
    gpu = [member("g1", "gpu", is_healthy=False, serves=True), member("g2", "gpu"), member("g3", "gpu", serves=True)]
    cpu = [member("c1"), member("c2", is_healthy=False, serves=True)]
    first, *others = plan_waves([*gpu, *cpu], Strategy.CANARY)
    assert [one.node_name for one in first] == ["c1", "g3"]
    assert {one.node_name for one in others[-1]} >= {"c2", "g1"}, "nodes that are away come last"


def test_a_class_whose_nodes_are_all_away_has_no_canary_and_takes_none_from_others() -> None:
    here = [member(f"c{number}") for number in range(4)]
    away = [member(f"g{number}", "gpu", is_healthy=False) for number in range(2)]
    waves = plan_waves([*here, *away], Strategy.WAVES)
    assert [one.node_name for one in waves[0]] == ["c0"]
    assert [one.node_name for one in waves[-1]][-2:] == ["g0", "g1"]


def test_if_all_nodes_are_away_each_class_still_has_its_canary() -> None:
    away = [replace(one, is_healthy=False) for one in members(6, 2)]
    assert {one.node_class for one in plan_waves(away, Strategy.WAVES)[0]} == {"class-0", "class-1"}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), min_size=1, max_size=50),
    st.lists(st.one_of(st.integers(1, 60).map(str), st.integers(1, 100).map("{}%".format)), max_size=MAX_WAVES),
    st.sampled_from(Strategy),
)
def test_every_node_is_in_exactly_one_wave_and_no_wave_is_empty(
    drawn: list[tuple[str, bool, bool]], sizes: list[str], strategy: Strategy
) -> None:
    every = [
        member(f"n{number}", kind, is_healthy=healthy, serves=serves)
        for number, (kind, healthy, serves) in enumerate(drawn)
    ]
    waves = plan_waves(every, strategy, check_sizes(sizes))
    assert Counter(one.node_id for wave in waves for one in wave) == Counter(one.node_id for one in every)
    assert all(waves)
    order = [one.is_healthy for wave in waves for one in wave]
    assert strategy is Strategy.ALL or len(every) == 1 or order == sorted(order, reverse=True), "away: last"
    assert plan_waves(list(reversed(every)), strategy, sizes) == waves or strategy is Strategy.ALL


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (3, RolloutOptions(), Strategy.ALL),
        (4, RolloutOptions(), Strategy.WAVES),
        (2, RolloutOptions(sizes=("1",)), Strategy.WAVES),
        (50, RolloutOptions(strategy=Strategy.ALL), Strategy.ALL),
        (1, RolloutOptions(strategy=Strategy.CANARY), Strategy.CANARY),
    ],
)
def test_few_nodes_change_together_unless_someone_chose_otherwise(
    count: int, options: RolloutOptions, expected: Strategy
) -> None:
    assert choose_strategy(options, count) is expected


@pytest.mark.parametrize("size", ["", "0", "0%", "101%", "-1", "1.5", "5 %", "%", "ten", "²", "1e3", "%5", "5%%"])
def test_what_is_no_size_is_refused_by_name(size: str) -> None:
    with pytest.raises(InvalidInput, match="is not the size of a wave"):
        check_sizes(["1", size])


def test_there_is_a_limit_of_waves() -> None:
    assert check_sizes(["1"] * MAX_WAVES) == ("1",) * MAX_WAVES
    with pytest.raises(InvalidInput, match="at most 20 waves"):
        check_sizes(["1"] * (MAX_WAVES + 1))


def test_a_command_decides_before_the_policy_and_the_policy_before_the_settings() -> None:
    settings = RolloutOptions(soak_s=60, wave_timeout_s=5, sizes=("9",))
    policy = RolloutRequest(strategy=Strategy.CANARY, soak_s=7, per_node=PerNode.ROLLING, unjudged_passes=False)
    command = RolloutRequest(soak_s=0.0, sizes=("1",), unjudged_passes=True)
    assert resolve_options(None, None, settings) == settings
    assert resolve_options(command, policy, settings) == RolloutOptions(
        strategy=Strategy.CANARY,
        sizes=("1",),
        soak_s=0.0,
        per_node=PerNode.ROLLING,
        wave_timeout_s=5,
        gates=GateSettings(unjudged_passes=True),
    )
    assert resolve_options(None, policy, settings).gates.unjudged_passes is False


# Steps

NODES = ("a", "b", "c", "d")
HEALTHY = frozenset(map(NodeId, NODES))
BEGAN, SOAKED_S = 1_000_000, 60
CHANGE = VersionChange(
    build="echo",
    version="2",
    digest=NEW,
    previous=BackendSpec(reference="echo", build=BuildRef(name="echo", version="1", digest=OLD)),
)


def node(name: str, wave: int, intent: IntentState | None = IntentState.PENDING, **fields: Any) -> RolloutNode:
    return RolloutNode(member=member(name), wave=wave, intent=intent, **fields)


def done(name: str, wave: int = 0) -> RolloutNode:
    return node(name, wave, IntentState.SUCCEEDED, began=True, digest=NEW)


def rollout(*nodes: RolloutNode, **fields: Any) -> Rollout:
    """Of two waves: a and b, then c and d. It soaks for a minute."""
    wave = fields.get("wave", 0)
    given = nodes or (node("a", 0), node("b", 0), node("c", 1), node("d", 1))
    values: dict[str, Any] = {
        "operation_id": "op",
        "backend": "echo",
        "verb": "upgrade",
        "actor": "ann",
        "strategy": Strategy.WAVES,
        "state": RolloutState.RUNNING,
        "outcome": None,
        "wave": wave,
        "wave_count": 2,
        "options": RolloutOptions(soak_s=SOAKED_S, wave_timeout_s=600),
        "builds": (CHANGE,),
        "target": Target(),
        "reason": "",
        "waves": tuple(WaveRecord(wave=number, began_at=BEGAN) for number in range(wave + 1)),
        "nodes": given,
        "rollback_operation_id": None,
        "promoted": False,
        "allowed_by": "",
        "created_at": BEGAN,
        "changed_at": BEGAN,
        "ended_at": None,
    }
    return Rollout(**values | fields)


def soaking(*nodes: RolloutNode, **fields: Any) -> Rollout:
    made = rollout(*(nodes or (done("a"), done("b"), node("c", 1), node("d", 1))), **fields)
    return replace(made, waves=tuple(replace(record, soak_began_at=BEGAN) for record in made.waves))


def step(given: Rollout, *verdicts: GateVerdict, after_s: float = 0, healthy: frozenset[NodeId] = HEALTHY) -> Step:
    ids = [one.member.node_id for one in given.nodes]
    statuses = {one: NodeStatus.HEALTHY if one in healthy else NodeStatus.OFFLINE for one in ids}
    return plan_step(given, statuses=statuses, verdicts=verdicts, now_ms=BEGAN + round(after_s * 1000))


def verdict(outcome: GateOutcome, detail: str = "slow", **fields: Any) -> GateVerdict:
    return GateVerdict(gate="throughput", outcome=outcome, detail=detail, **fields)


LAST = (done("a"), done("b"), done("c", 1), done("d", 1))


@pytest.mark.parametrize(
    ("given", "after_s", "expected"),
    [
        pytest.param(rollout(), 0, Wait("a, b: in progress"), id="nobody-has-it-yet"),
        pytest.param(rollout(waves=()), 0, Release(1), id="a-wave-without-a-record-is-over"),
        pytest.param(
            rollout(node("a", 0, error="disk full"), node("b", 0), node("c", 1)), 599,
            Wait("a, b: disk full"), id="while-no-node-has-the-version-nothing-goes-on",
        ),
        pytest.param(
            rollout(node("a", 0, error="disk full"), node("b", 0), node("c", 1), node("d", 1)), 600,
            StandIn(NodeId("c"), "a, b: disk full"), id="after-long-enough-another-node-stands-in",
        ),
        pytest.param(
            rollout(node("a", 0, error="disk full"), node("c", 1, IntentState.SUPERSEDED)), 9e9,
            Wait("a: disk full; no other healthy node of its class can stand in"), id="nobody-can-stand-in",
        ),
        pytest.param(
            rollout(done("a"), node("b", 0), node("c", 1)), 599, Wait("b: in progress"), id="one-is-still-trying",
        ),
        pytest.param(
            rollout(done("a"), node("b", 0), node("c", 1)), 600, BeginSoak(("b",)), id="it-has-tried-long-enough",
        ),
        pytest.param(
            rollout(done("a"), node("b", 0, IntentState.DEAD_LETTERED, error="no room"), node("c", 1)), 599,
            Wait("b: no room"), id="retries-exhausted-are-tried-again-slowly",
        ),
        pytest.param(
            rollout(done("a"), node("b", 0, IntentState.SUPERSEDED), node("c", 1)), 0, BeginSoak(),
            id="who-has-left-is-not-awaited",
        ),
        pytest.param(
            rollout(node("a", 0, None), node("b", 0, IntentState.CANCELLED), node("c", 1)), 0,
            Wait("newer operations took all nodes of wave 1"),
            id="a-first-wave-that-everybody-left-has-not-passed",
        ),
        pytest.param(
            soaking(node("a", 0, IntentState.SUPERSEDED), node("c", 1)), 600,
            StandIn(NodeId("c"), "newer operations took all nodes of wave 1"),
            id="nor-while-it-soaked",
        ),
        pytest.param(
            soaking(done("a"), node("c", 1, None), node("d", 2), wave_count=3), 60, Release(2), id="an-empty-wave",
        ),
        pytest.param(
            soaking(done("a"), node("c", 1, None), promoted=True), 60, Complete(), id="later-waves-that-everybody-left",
        ),
        pytest.param(rollout(done("a"), done("b"), node("c", 1)), 0, BeginSoak(), id="all-are-done"),
        pytest.param(soaking(), 59.5, Wait("watching wave 1 for another 1 s"), id="soaking"),
        pytest.param(soaking(), 60, Release(1), id="soaked"),
        pytest.param(
            soaking(options=RolloutOptions(soak_s=0)), 0, Release(1), id="no-soak-at-all",
        ),
        pytest.param(soaking(strategy=Strategy.CANARY), 60, AwaitPromotion(), id="canaries-wait-for-promotion"),
        pytest.param(
            soaking(done("a"), strategy=Strategy.CANARY, wave_count=1), 60, Complete(),
            id="unless-there-is-nobody-else",
        ),
        pytest.param(
            soaking(*LAST, strategy=Strategy.CANARY, wave=1), 60, Complete(), id="only-the-canaries-wait",
        ),
        pytest.param(soaking(*LAST, wave=1), 59, Wait("watching wave 2 for another 1 s"), id="the-last-soaks-too"),
        pytest.param(soaking(*LAST, wave=1), 60, Complete(), id="the-last-is-done"),
        pytest.param(soaking(promoted=True), 0, Release(1), id="promoted-while-it-soaks"),
        pytest.param(rollout(promoted=True), 0, Release(1), id="promoted-before-any-node-is-done"),
        pytest.param(soaking(*LAST, wave=1, promoted=True), 0, Complete(), id="promoted-in-the-last-wave"),
        pytest.param(
            rollout(done("a"), done("b"), done("c", 1), node("d", 1), wave=1, promoted=True), 0,
            Wait("d: in progress"), id="promotion-does-not-complete-what-is-not-installed",
        ),
        pytest.param(
            soaking(state=RolloutState.AWAITING_PROMOTION), 9e9, Wait("waiting for someone to promote it"),
            id="awaiting",
        ),
        pytest.param(
            soaking(state=RolloutState.AWAITING_PROMOTION, promoted=True), 0, Release(1), id="promoted-at-last",
        ),
        pytest.param(
            soaking(state=RolloutState.PAUSED, reason="lunch"), 9e9, Wait("lunch"), id="paused-with-a-reason",
        ),
        pytest.param(soaking(state=RolloutState.PAUSED), 9e9, Wait("paused"), id="paused-without"),
        pytest.param(
            rollout(node("a", 0, IntentState.SUPERSEDED), node("c", 1, None)), 0, Replaced(), id="replaced-everywhere",
        ),
        pytest.param(
            soaking(node("a", 0, None), state=RolloutState.PAUSED), 0, Replaced(), id="replaced-while-it-was-paused",
        ),
    ],
)  # fmt: skip
def test_the_next_step(given: Rollout, after_s: float, expected: Step) -> None:
    assert step(given, after_s=after_s) == expected


@pytest.mark.parametrize(
    ("given", "healthy", "expected"),
    [
        pytest.param(
            rollout(done("a"), node("b", 0), node("c", 1)), {"a", "c"}, BeginSoak(("b",)),
            id="a-node-that-went-away-is-not-awaited",
        ),
        pytest.param(
            rollout(node("a", 0), node("b", 0), node("c", 1)), {"a", "c"},
            Wait("b is offline; a: in progress"), id="unless-no-node-at-all-has-the-version",
        ),
        pytest.param(
            rollout(done("a"), done("b"), node("c", 1), node("d", 1), wave=1), {"a", "b"}, BeginSoak(("c", "d")),
            id="a-later-wave-of-nodes-that-are-all-away-holds-nobody-up",
        ),
        pytest.param(
            rollout(done("a"), node("b", 0), node("c", 1), node("d", 1), wave=1), {"a", "b", "c"},
            Wait("c: in progress"), id="a-later-wave-waits-for-those-who-are-there",
        ),
    ],
)  # fmt: skip
def test_nodes_that_are_away(given: Rollout, healthy: set[str], expected: Step) -> None:
    assert step(given, healthy=frozenset(map(NodeId, healthy))) == expected


STATES_THAT_JUDGE = [RolloutState.RUNNING, RolloutState.PAUSED, RolloutState.AWAITING_PROMOTION]


@pytest.mark.parametrize("state", STATES_THAT_JUDGE)
@pytest.mark.parametrize("promoted", [False, True])
def test_a_failed_gate_rolls_back_in_every_state(state: RolloutState, promoted: bool) -> None:
    bad = verdict(GateOutcome.FAILED, "too slow", model="tiny", node_class="gpu")
    got = step(soaking(state=state, promoted=promoted), verdict(GateOutcome.PASSED), bad, verdict(GateOutcome.FAILED))
    assert got == RollBack("tiny on gpu: too slow; slow")


@pytest.mark.parametrize("state", STATES_THAT_JUDGE)
def test_a_version_that_does_not_start_rolls_back_at_once_in_every_state(state: RolloutState) -> None:
    broken = node("b", 0, attempts=1, error="it does not start", version_failed=True)
    assert step(rollout(done("a"), broken, node("c", 1), state=state)) == RollBack("b: it does not start")


def test_what_is_told_of_nodes_outside_the_rollout_does_not_matter() -> None:
    left = node("b", 0, IntentState.SUPERSEDED, error="it does not start", version_failed=True)
    later = node("c", 1, error="it does not start", version_failed=True)
    assert step(rollout(done("a"), left, later)) == BeginSoak()


@pytest.mark.parametrize(
    ("passes", "after_s", "expected"),
    [
        (True, 60, Release(1)),
        (False, 59, Wait("watching wave 1 for another 1 s")),
        (False, 60, RollBack("a gate could not be judged, which counts as failed by setting: tiny: no requests")),
    ],
)
def test_a_gate_that_cannot_be_judged_counts_by_setting_and_only_after_the_soak(
    passes: bool, after_s: float, expected: Step
) -> None:
    given = soaking(options=RolloutOptions(soak_s=60, gates=GateSettings(unjudged_passes=passes)))
    assert step(given, verdict(GateOutcome.UNJUDGED, "no requests", model="tiny"), after_s=after_s) == expected


def test_a_wave_does_not_pass_while_its_golden_prompts_are_being_answered() -> None:
    given = soaking()
    statuses = dict.fromkeys(HEALTHY, NodeStatus.HEALTHY)
    for judging, expected in (("prompts", Wait("prompts")), ("", Release(1))):
        after = plan_step(given, statuses=statuses, verdicts=(), now_ms=BEGAN + 60_000, judging=judging)
        assert after == expected
    promoted = replace(given, promoted=True)
    assert plan_step(promoted, statuses=statuses, verdicts=(), now_ms=BEGAN, judging="prompts") == Release(1)


def test_long_lists_of_nodes_are_cut() -> None:
    many = [node(f"n{number}", 0) for number in range(9)]
    assert step(rollout(*many)) == Wait("n0, n1, n2 and 6 more are offline")


# Versions that are not offered


def held(given: Rollout) -> list[tuple[bool, set[str]]]:
    return [(one.failed, set(one.released)) for one in find_held_back_versions([given])]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(rollout(), [(False, {"a", "b"})], id="running-only-nodes-it-reached-get-it"),
        pytest.param(rollout(wave=1), [(False, {"a", "b", "c", "d"})], id="in-the-last-wave-all-members"),
        pytest.param(rollout(state=RolloutState.PAUSED), [(False, {"a", "b"})], id="paused"),
        pytest.param(rollout(state=RolloutState.AWAITING_PROMOTION), [(False, {"a", "b"})], id="awaiting"),
        pytest.param(
            rollout(state=RolloutState.ROLLING_BACK, outcome=RolloutState.FAILED), [(True, set())], id="rolling-back",
        ),
        pytest.param(
            rollout(state=RolloutState.ROLLING_BACK, outcome=RolloutState.ABORTED), [(False, set())], id="aborting",
        ),
        pytest.param(rollout(state=RolloutState.FAILED), [(True, set())], id="failed"),
        pytest.param(rollout(state=RolloutState.FAILED, allowed_by="ann"), [], id="failed-and-allowed"),
        pytest.param(rollout(state=RolloutState.ABORTED), [], id="aborted"),
        pytest.param(rollout(state=RolloutState.COMPLETED), [], id="completed"),
        pytest.param(rollout(strategy=Strategy.ALL), [], id="all-at-once"),
        pytest.param(rollout(strategy=Strategy.ALL, state=RolloutState.FAILED), [], id="all-at-once-failed"),
    ],
)  # fmt: skip
def test_which_versions_are_held_back(given: Rollout, expected: list[tuple[bool, set[str]]]) -> None:
    assert held(given) == expected


def one_held(**fields: Any) -> HeldBack:
    values: dict[str, Any] = {
        "operation_id": "op", "backend": "echo", "change": CHANGE, "target": Target(),
        "released": frozenset({NodeId("a")}), "failed": False, "reason": "", "since": 0,
    }  # fmt: skip
    return HeldBack(**values | fields)


@pytest.mark.parametrize(
    ("name", "target", "labels", "expected"),
    [
        pytest.param("a", Target(), {}, False, id="a-node-that-it-reached"),
        pytest.param("joiner", Target(), {}, True, id="a-joiner-gets-the-previous-version"),
        pytest.param("joiner", Target(nodes=("b",)), {}, False, id="it-is-not-among-the-named"),
        pytest.param("b", Target(nodes=("b",)), {}, True, id="it-is-named"),
        pytest.param("joiner", Target(selector={"tier": "gpu"}), {}, False, id="no-such-label"),
        pytest.param("joiner", Target(selector={"tier": "gpu"}), {"tier": "gpu"}, True, id="a-joiner-by-label"),
    ],
)
def test_for_whom_it_is_held_back(name: str, target: Target, labels: dict[str, str], expected: bool) -> None:
    given = machine(id=NodeId(name), name=name, worker_labels=labels)
    assert one_held(target=target).applies_to(given) is expected


def spec(digest: str = NEW, version: str = "2", name: str = "echo") -> BackendSpec:
    return BackendSpec(reference="echo", build=BuildRef(name=name, digest=digest, version=version))


@pytest.mark.parametrize(
    ("offered", "change", "expected"),
    [
        pytest.param(spec(), CHANGE, True, id="the-same-digest"),
        pytest.param(spec(version="3"), CHANGE, True, id="digests-decide-before-versions"),
        pytest.param(spec(digest="sha256:other"), CHANGE, False, id="another-digest-of-the-same-version"),
        pytest.param(spec(digest=""), CHANGE, True, id="by-version-where-a-digest-is-missing"),
        pytest.param(spec(), replace(CHANGE, digest=""), True, id="or-where-the-rollout-knew-none"),
        pytest.param(spec(digest="", version=""), CHANGE, False, id="nothing-to-compare"),
        pytest.param(spec(name="cuda-echo"), CHANGE, False, id="another-build"),
    ],
)
def test_which_offers_it_is_about(offered: BackendSpec, change: VersionChange, expected: bool) -> None:
    found = find_held_back(machine(id=NodeId("z")), {offered.build.name: offered}, [one_held(change=change)])
    assert (found is not None) is expected


def test_a_node_is_told_why_it_does_not_get_a_version() -> None:
    assert one_held().describe() == "rollout op has not reached this node with 2 yet"
    aborted = rollout(state=RolloutState.ROLLING_BACK, outcome=RolloutState.ABORTED)
    assert [one.describe() for one in find_held_back_versions([aborted])] == [
        "rollout op was aborted and is taking 2 back"
    ]
    told = one_held(failed=True, reason="too slow", change=replace(CHANGE, version="", digest="sha256:" + "ab" * 32))
    assert told.describe().startswith("sha256:abababababab ")
    assert told.describe().endswith("failed in rollout op (too slow); `corral rollouts allow op` offers it again")


SILENT = replace(CHANGE, version="", digest="")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(CHANGE, "This version is not offered again until `corral rollouts allow op`.", id="known"),
        pytest.param(replace(SILENT, digest=NEW), "This version is not offered again until", id="by-its-digest"),
        pytest.param(
            replace(SILENT, digest=NEW, is_digest_reported=True),
            "sha256:new is refused where it is named until `corral rollouts allow op`. The source of echo tells"
            " neither digest nor version in advance, so an upgrade, or a node that joins, may get it again from there.",
            id="reported-by-a-node",
        ),
        pytest.param(SILENT, "it cannot be held back, so an upgrade, or a node that joins, may get it", id="unknown"),
    ],
)
def test_what_is_held_back_is_promised_only_where_it_can_be_recognised(change: VersionChange, words: str) -> None:
    failed = rollout(state=RolloutState.FAILED, builds=(change,))
    assert words in describe_failed_version(failed)
    assert describe_failed_version(replace(failed, allowed_by="ann")) == ""
    assert describe_failed_version(replace(failed, strategy=Strategy.ALL)) == "", "without gates"
    assert describe_failed_version(rollout(builds=(change,))) == "", "it runs"


def test_digests_of_one_build_are_no_digests_of_another() -> None:
    other = replace(SILENT, build="cuda-echo")
    got = done("a")
    assert [one.digest for one in complete_builds([SILENT], [got])] == [NEW]
    assert complete_builds([SILENT, other], [got]) == (SILENT, other), "both take the place of echo"
