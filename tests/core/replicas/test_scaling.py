"""How many replicas a model should have, as tables; and that an applied plan leaves nothing to do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.errors import InvalidInput
from corral.core.replicas.scaling import (
    DRAIN_WITHIN_MS,
    LOADS_WITHOUT_PLACE_MOST,
    PLACED_WITHIN_MS,
    REPLICAS_MOST,
    Add,
    Load,
    ModelView,
    Remove,
    ReplicaView,
    ScalingPace,
    ScalingPlan,
    Scheduling,
    check_prefix_match,
    plan_scaling,
    release_leaving,
)

PACE = ScalingPace()
LONG_IDLE = PACE.idle_ms
TTL = ScalingPace(idle_ttl_ms=9)


def ready(identity: str, **changes: Any) -> ReplicaView:
    plain = ReplicaView(id=identity, node_id=f"n{identity}", slot=0, state="ready")
    return replace(plain, **changes)


def view(*replicas: ReplicaView, low: int = 0, high: int = 0, spread: bool = False, **changes: Any) -> ModelView:
    scheduling = Scheduling(model="m", min_replicas=low, max_replicas=high, spread_all=spread)
    return replace(ModelView(scheduling=scheduling, replicas=replicas), **changes)


def loads(count: int, **changes: Any) -> tuple[Load, ...]:
    return tuple(replace(Load(id=f"load {number}"), **changes) for number in range(count))


BUSY = {"in_flight": 1}
DRAINED = "its node is drained"
OLD = {"why_not": DRAINED}


# Scheduling


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"model": ""}, "model_name is required", id="a-model-is-named"),
        pytest.param({"min_replicas": -1}, "must be 0 or more", id="a-minimum-is-not-negative"),
        pytest.param({"max_replicas": -1}, "must be 0 or more", id="a-maximum-is-not-negative"),
        pytest.param(
            {"min_replicas": 3, "max_replicas": 2},
            r"min_replicas \(3\) must not exceed max_replicas \(2\)",
            id="a-minimum-does-not-exceed-the-maximum",
        ),
        pytest.param({"min_replicas": REPLICAS_MOST + 1}, "must be 10000 or less", id="a-minimum-is-bounded"),
        pytest.param({"max_replicas": 10**12}, "must be 10000 or less", id="a-maximum-is-bounded"),
        pytest.param({"spread_all": True, "min_replicas": 1}, "leave min_replicas", id="spread-takes-no-minimum"),
        pytest.param({"spread_all": True, "max_replicas": 1}, "max_replicas out", id="spread-takes-no-maximum"),
        pytest.param({"route_policy": "fastest"}, "not 'fastest'", id="a-route-policy-is-one-of-two"),
        pytest.param({"balance_abs_threshold": -1}, "must be 0 or more", id="an-absolute-threshold-is-not-negative"),
        pytest.param({"balance_rel_threshold": 0.5}, "must be 0, or 1 or more", id="a-relative-threshold-is-a-factor"),
    ],
)
def test_scheduling_that_makes_no_sense_is_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Scheduling(**{"model": "m", **wrong})


@pytest.mark.parametrize(
    ("fields", "kept", "is_managed"),
    [
        pytest.param({}, 1, False, id="without-limits-requests-alone-load-it"),
        pytest.param({"min_replicas": 3}, 3, True, id="a-minimum-is-kept-while-replicas-are-replaced"),
        pytest.param({"max_replicas": 3}, 1, True, id="a-maximum-lets-traffic-scale-it"),
        pytest.param({"spread_all": True}, 1, True, id="spread-manages-it"),
        pytest.param(
            {"min_replicas": REPLICAS_MOST, "max_replicas": REPLICAS_MOST}, REPLICAS_MOST, True, id="the-most"
        ),
    ],
)
def test_what_scheduling_means(fields: dict[str, Any], kept: int, is_managed: bool) -> None:
    scheduling = Scheduling(model="m", **fields)
    assert (scheduling.kept, scheduling.is_managed) == (kept, is_managed)


@pytest.mark.parametrize("value", [pytest.param(None, id="absent"), pytest.param(0, id="zero")])
def test_min_prefix_match_without_a_value_is_accepted(value: float | None) -> None:
    check_prefix_match(value)


def test_min_prefix_match_is_rejected_because_it_would_have_no_effect() -> None:
    with pytest.raises(InvalidInput, match="has no effect in Corral"):
        check_prefix_match(0.5)


@pytest.mark.parametrize(
    ("replica", "serves", "coming"),
    [
        pytest.param(ready("1"), True, False, id="a-ready-replica-serves"),
        pytest.param(ready("1", **OLD), False, False, id="one-that-must-end-does-not-count"),
        pytest.param(ready("1", state="starting"), False, True, id="a-starting-one-is-coming"),
        pytest.param(ready("1", state="loading"), False, True, id="a-loading-one-is-coming"),
        pytest.param(ready("1", state="loading", **OLD), False, False, id="not-when-it-must-end"),
        pytest.param(ready("1", state="draining"), False, False, id="a-draining-one-does-neither"),
        pytest.param(ready("1", state="failed"), False, False, id="a-failed-one-does-neither"),
    ],
)
def test_which_replicas_count(replica: ReplicaView, serves: bool, coming: bool) -> None:
    assert (replica.serves, replica.coming) == (serves, coming)


# The plan


@pytest.mark.parametrize(
    ("model", "add", "drain", "stop"),
    [
        pytest.param(view(), 0, [], [], id="a-model-without-requests-or-limits-has-no-replicas"),
        pytest.param(view(low=2), 2, [], [], id="the-minimum-needs-no-traffic"),
        pytest.param(view(ready("1"), low=3, loads=loads(1)), 1, [], [], id="loads-in-progress-count"),
        pytest.param(view(ready("1", state="starting"), low=1), 0, [], [], id="a-starting-replica-counts"),
        pytest.param(view(ready("1", state="loading"), low=1), 0, [], [], id="a-loading-replica-counts"),
        pytest.param(view(ready("1", state="stopping"), low=1), 1, [], [], id="a-stopping-replica-does-not"),
        pytest.param(view(ready("1", state="draining"), low=1), 1, [], ["1"], id="nor-does-a-draining-one"),
        pytest.param(view(ready("1", **BUSY)), 0, [], [], id="an-unmanaged-model-does-not-grow"),
        pytest.param(view(ready("1", **BUSY), low=1), 1, [], [], id="it-grows-when-all-are-busy"),
        pytest.param(view(ready("1", **BUSY), high=2), 1, [], [], id="a-maximum-alone-lets-it-grow"),
        pytest.param(view(ready("1", **BUSY), ready("2"), low=1), 0, [], [], id="not-while-one-is-free"),
        pytest.param(view(ready("1", **BUSY), ready("2"), low=1, waiting=2), 1, [], [], id="unless-requests-wait"),
        pytest.param(view(low=0, high=2, waiting=2), 0, [], [], id="the-first-replica-is-loaded-on-demand"),
        pytest.param(view(ready("1", **BUSY), low=1, high=1), 0, [], [], id="not-beyond-the-maximum"),
        pytest.param(view(ready("1", **BUSY), low=1, since_action_ms=1), 0, [], [], id="one-action-per-cool-down"),
        pytest.param(
            view(ready("1", **BUSY), low=1, since_action_ms=PACE.cool_down_ms), 1, [], [], id="after-it-the-next"
        ),
        pytest.param(view(low=2, since_action_ms=1), 2, [], [], id="the-minimum-does-not-wait-for-the-cool-down"),
        pytest.param(view(ready("1", **BUSY), low=1, loads=loads(1)), 0, [], [], id="it-grows-one-at-a-time"),
        pytest.param(view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=1), 0, [], ["2"], id="an-idle-one-is-removed"),
        pytest.param(
            view(ready("1"), ready("2", idle_ms=LONG_IDLE - 1), low=1), 0, [], [], id="not-before-its-idle-time-is-over"
        ),
        pytest.param(
            view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=1, since_action_ms=1),
            0,
            [],
            [],
            id="nor-in-a-cool-down",
        ),
        pytest.param(
            view(*(ready(name, idle_ms=LONG_IDLE) for name in "123"), low=1), 0, [], ["1"], id="nor-two-at-a-time"
        ),
        pytest.param(
            view(ready("1", idle_ms=LONG_IDLE), ready("2", idle_ms=LONG_IDLE, slot=1), low=1),
            0,
            [],
            ["2"],
            id="the-highest-slot-goes-first",
        ),
        pytest.param(
            view(ready("1", idle_ms=LONG_IDLE), ready("2", idle_ms=LONG_IDLE + 1), low=1),
            0,
            [],
            ["2"],
            id="then-the-one-that-was-idle-longest",
        ),
        pytest.param(view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=2), 0, [], [], id="not-below-the-minimum"),
        pytest.param(
            view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=1, loads=loads(1, replaces="1", stops_first=True)),
            0,
            [],
            [],
            id="nothing-idle-is-removed-while-a-load-is-in-progress",
        ),
        pytest.param(view(ready("1", idle_ms=LONG_IDLE)), 0, [], [], id="the-last-one-stays-without-an-idle-limit"),
        pytest.param(view(ready("1", idle_ms=9), pace=TTL), 0, [], ["1"], id="an-idle-limit-scales-to-zero"),
        pytest.param(view(ready("1", idle_ms=8), pace=TTL), 0, [], [], id="not-before-the-idle-limit"),
        pytest.param(view(ready("1", idle_ms=9), pace=TTL, low=1), 0, [], [], id="nor-below-the-minimum-of-one"),
        pytest.param(view(ready("1", idle_ms=9, **BUSY), pace=TTL), 0, [], [], id="nor-while-it-is-busy"),
        pytest.param(view(ready("1"), ready("2"), high=1), 0, [], ["1"], id="above-the-maximum-one-goes-at-once"),
        pytest.param(view(ready("1"), ready("2"), high=1, since_action_ms=1), 0, [], ["1"], id="also-in-a-cool-down"),
        pytest.param(view(ready("1", **BUSY), ready("2", **BUSY), high=1), 0, [], [], id="but-never-a-busy-one"),
        pytest.param(view(ready("1", **OLD)), 1, [], [], id="a-replica-that-must-end-gets-a-successor-first"),
        pytest.param(
            view(ready("1", **OLD, successor=True), loads=loads(1, replaces="1")), 0, [], [], id="and-only-one"
        ),
        pytest.param(view(ready("1", **OLD, routed=False)), 1, ["1"], [], id="one-without-requests-drains-at-once"),
        pytest.param(view(ready("1", state="draining", **OLD)), 0, [], ["1"], id="a-drained-and-idle-one-stops"),
        pytest.param(view(ready("1", state="draining", **BUSY, **OLD)), 0, [], [], id="not-while-it-answers"),
        pytest.param(
            view(ready("1", state="draining", **BUSY, **OLD, draining_ms=DRAIN_WITHIN_MS)),
            0,
            [],
            ["1"],
            id="unless-its-drain-limit-is-over",
        ),
        pytest.param(
            view(ready("1", state="draining", **BUSY, **OLD, draining_ms=30_000, drain_within_ms=30_000)),
            0,
            [],
            ["1"],
            id="which-is-shorter-when-a-successor-waits-for-its-memory",
        ),
        pytest.param(
            view(ready("1", state="draining", **BUSY, draining_ms=5), pace=ScalingPace(drain_ms=5)),
            0,
            [],
            ["1"],
            id="or-when-the-pace-says-so",
        ),
        pytest.param(
            view(failed=loads(1, replaces="gone", stops_first=True)), 1, [], [], id="a-replica-stopped-in-vain-returns"
        ),
        pytest.param(view(failed=loads(1, replaces="gone")), 0, [], [], id="one-that-went-for-another-reason-does-not"),
        pytest.param(
            view(ready("1", **OLD), failed=loads(1, replaces="1", stops_first=True)),
            1,
            [],
            [],
            id="a-failed-successor-is-tried-once-more-not-twice",
        ),
        pytest.param(view(ready("1", state="loading", **OLD), low=1), 1, [], ["1"], id="an-outdated-load-is-stopped"),
        pytest.param(view(ready("1", state="failed"), low=1), 1, [], ["1"], id="a-failed-one-is-removed-and-replaced"),
        pytest.param(view(spread=True, matching_nodes=("n1", "n2")), 2, [], [], id="spread-puts-one-on-every-node"),
        pytest.param(
            view(ready("1"), ready("2", node_id="n1", slot=1), spread=True, matching_nodes=("n1", "n2")),
            1,
            [],
            ["2"],
            id="two-on-one-node-are-not-one-on-each",
        ),
        pytest.param(
            view(ready("1", state="loading"), ready("2", node_id="n1", slot=1), spread=True, matching_nodes=("n1",)),
            0,
            [],
            ["1"],
            id="of-two-on-one-node-the-ready-one-stays",
        ),
        pytest.param(
            view(ready("1"), ready("2", node_id="n1", slot=1, **BUSY), spread=True, matching_nodes=("n1",)),
            0,
            [],
            [],
            id="a-busy-surplus-replica-is-not-stopped",
        ),
        pytest.param(view(ready("1"), spread=True), 0, [], ["1"], id="spread-leaves-nodes-that-no-longer-match"),
        pytest.param(
            view(spread=True, matching_nodes=("n1",), loads_for_nodes=frozenset({"n1"})),
            0,
            [],
            [],
            id="a-load-for-the-node-is-in-progress",
        ),
        pytest.param(
            view(ready("1"), spread=True, matching_nodes=("n2",), offline_nodes=frozenset({"n1"})),
            1,
            [],
            [],
            id="an-offline-node-is-no-reason-to-stop-its-replica",
        ),
        pytest.param(
            view(ready("1", state="draining", node_id="n1"), spread=True, matching_nodes=("n1",)),
            1,
            [],
            ["1"],
            id="spread-replaces-a-draining-replica",
        ),
    ],
)
def test_plan_scaling(model: ModelView, add: int, drain: list[str], stop: list[str]) -> None:
    plan = plan_scaling(model)
    assert (len(plan.add), [remove.replica_id for remove in plan.drain]) == (add, drain)
    assert [remove.replica_id for remove in plan.stop] == stop
    assert all(remove.why for remove in (*plan.drain, *plan.stop))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(view(low=1), ScalingPlan(add=(Add(why="minimum replicas: 1"),)), id="below-the-minimum"),
        pytest.param(
            view(ready("1", **BUSY), low=1),
            ScalingPlan(add=(Add(why="all replicas are busy"),), by_load=True),
            id="all-busy-which-begins-a-cool-down",
        ),
        pytest.param(
            view(ready("1"), ready("2", slot=1), high=1),
            ScalingPlan(stop=(Remove("2", "max_replicas is 1"),), by_load=True),
            id="above-the-maximum",
        ),
        pytest.param(
            view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=1),
            ScalingPlan(stop=(Remove("2", "it was idle, and the other replicas suffice"),), by_load=True),
            id="idle-above-the-minimum",
        ),
        pytest.param(
            view(ready("1", idle_ms=9), pace=TTL),
            ScalingPlan(stop=(Remove("1", "it was idle for longer than its idle limit"),), by_load=True),
            id="the-last-one-beyond-its-idle-limit",
        ),
        pytest.param(
            view(ready("1", **OLD)),
            ScalingPlan(add=(Add(why=f"it replaces a replica: {DRAINED}", replaces="1"),)),
            id="a-successor",
        ),
        pytest.param(
            view(failed=loads(1, replaces="gone", stops_first=True)),
            ScalingPlan(add=(Add(why="the replica that it replaces was stopped first", replaces="gone"),)),
            id="a-replica-that-was-stopped-for-a-failed-load",
        ),
        pytest.param(
            view(ready("1", state="draining")),
            ScalingPlan(stop=(Remove("1", "another replica has replaced it"),)),
            id="a-drained-replica",
        ),
        pytest.param(
            view(ready("1", state="failed")), ScalingPlan(stop=(Remove("1", "its load failed"),)), id="a-failed-replica"
        ),
        pytest.param(
            view(spread=True, matching_nodes=("n1",)),
            ScalingPlan(add=(Add(why="spread_all: one replica on every matching node", node_id="n1"),)),
            id="a-matching-node-without-a-replica",
        ),
        pytest.param(
            view(ready("1"), spread=True),
            ScalingPlan(stop=(Remove("1", "its node no longer matches the selector"),)),
            id="a-node-that-no-longer-matches",
        ),
        pytest.param(
            view(ready("1"), ready("2", node_id="n1", slot=1), spread=True, matching_nodes=("n1",)),
            ScalingPlan(stop=(Remove("2", "spread_all: one replica per node"),)),
            id="a-second-replica-on-a-node",
        ),
    ],
)
def test_a_plan_gives_the_reason_of_every_change(model: ModelView, expected: ScalingPlan) -> None:
    assert plan_scaling(model) == expected


def test_of_very_many_missing_replicas_only_so_many_loads_wait_for_a_place() -> None:
    """INV-38. As they are placed, the next are created."""
    assert len(plan_scaling(view(low=3000)).add) == LOADS_WITHOUT_PLACE_MOST
    assert plan_scaling(view(ready("1"), low=3000, loads=loads(LOADS_WITHOUT_PLACE_MOST))).add == ()
    assert len(plan_scaling(view(ready("1"), low=3000, loads=loads(LOADS_WITHOUT_PLACE_MOST - 3))).add) == 3


OUTDATED = {"why_not": "its model was changed"}


@pytest.mark.parametrize("spread", [pytest.param(False, id="with-a-minimum"), pytest.param(True, id="with-spread")])
def test_a_pending_revision_is_loaded_beside_one_replica_that_serves_on(spread: bool) -> None:
    beside = ready("1", canary=True, **OUTDATED)
    where: dict[str, Any] = {"matching_nodes": ("n1", "n2")} if spread else {}
    plan = plan_scaling(view(beside, ready("2"), spread=spread, low=0 if spread else 2, **where))
    [add] = plan.add
    assert (add.replaces, add.canary) == ("1", True)
    assert (plan.drain, plan.stop) == ((), ())


# Obsolete loads


@pytest.mark.parametrize(
    ("model", "forgotten", "stop"),
    [
        pytest.param(view(ready("1"), ready("2"), low=5, high=5, loads=loads(3)), [], [], id="all-loads-are-needed"),
        pytest.param(
            view(ready("1"), ready("2"), low=2, high=2, loads=loads(3)),
            ["load 0", "load 1", "load 2"],
            [],
            id="after-scaling-down-to-what-runs-none-is",
        ),
        pytest.param(
            view(ready("1"), ready("2"), low=1, high=1, loads=loads(1)),
            ["load 0"],
            ["1"],
            id="after-scaling-down-further-a-replica-goes-as-well",
        ),
        pytest.param(
            view(ready("1"), ready("2"), loads=loads(3)),
            ["load 0", "load 1", "load 2"],
            [],
            id="without-limits-no-further-load-is-needed",
        ),
        pytest.param(view(low=2, loads=loads(3)), ["load 2"], [], id="the-oldest-loads-stay"),
        pytest.param(
            view(ready("1", state="loading"), low=2, loads=loads(2)), ["load 1"], [], id="a-loading-replica-counts"
        ),
        pytest.param(view(loads=loads(1)), [], [], id="a-request-needs-the-first-replica"),
        pytest.param(view(ready("1", **BUSY), low=1, loads=loads(1)), [], [], id="traffic-needs-another-one"),
        pytest.param(view(ready("1"), low=1, waiting=1, loads=loads(1)), [], [], id="waiting-requests-do-as-well"),
        pytest.param(view(ready("1", **OLD), loads=loads(1, replaces="1")), [], [], id="a-successor-stays"),
        pytest.param(
            view(ready("2"), low=1, loads=loads(1, replaces="gone")),
            ["load 0"],
            [],
            id="a-successor-of-a-replica-that-is-gone-does-not",
        ),
        pytest.param(
            view(ready("2"), low=2, loads=loads(1, replaces="gone")), [], [], id="unless-the-minimum-needs-it"
        ),
        pytest.param(
            view(ready("1"), spread=True, matching_nodes=("n1",), loads=loads(1)),
            ["load 0"],
            [],
            id="a-load-for-no-node-ends-when-the-model-is-spread",
        ),
        pytest.param(
            view(ready("1"), spread=True, matching_nodes=("n1", "n2"), loads=loads(1, node_id="n2")),
            [],
            [],
            id="a-load-for-a-matching-node-stays",
        ),
        pytest.param(
            view(spread=True, loads=loads(1)), [], [], id="before-the-first-replica-of-a-spread-model-none-ends"
        ),
    ],
)
def test_loads_that_are_no_longer_needed_are_forgotten(model: ModelView, forgotten: list[str], stop: list[str]) -> None:
    plan = plan_scaling(model)
    assert list(plan.forget) == forgotten
    assert [remove.replica_id for remove in plan.stop] == stop


@pytest.mark.parametrize(
    ("load", "forgotten"),
    [
        pytest.param(Load(id="l", replaces="gone", stops_first=True), (), id="its-predecessor-was-stopped-for-it"),
        pytest.param(Load(id="l", replaces="gone"), ("l",), id="enough-serve-without-it"),
    ],
)
def test_a_load_whose_predecessor_was_stopped_is_not_forgotten(load: Load, forgotten: tuple[str, ...]) -> None:
    """Of three replicas the first is replaced after a stop, the others still serve from the old version."""
    others = (ready("2", **OLD, successor=True), ready("3", **OLD, successor=True))
    waiting = (load, Load(id="m", replaces="2"), Load(id="n", replaces="3"))
    assert plan_scaling(view(*others, loads=waiting)).forget == forgotten
    assert plan_scaling(view(*others, loads=waiting[1:], failed=(load,))).forget == forgotten


@pytest.mark.parametrize("spread", [pytest.param(False, id="with-a-minimum"), pytest.param(True, id="with-spread")])
def test_a_failed_successor_is_forgotten_when_its_predecessor_stays(spread: bool) -> None:
    failed = (Load(id="of one that stays", replaces="1"), Load(id="of one that goes", replaces="2"), Load(id="another"))
    model = view(ready("1"), ready("2", **OLD), spread=spread, matching_nodes=("n1", "n2"), failed=failed)
    assert plan_scaling(model).forget == ("of one that stays",)


# Waiting for a successor


LEAVING = {"why_not": DRAINED, "unreliable": True, "leaving_ms": 1}
PLACED_LONG_AGO = {**LEAVING, "leaving_ms": PLACED_WITHIN_MS}
BEYOND_THE_LIMIT = {**LEAVING, "leaving_ms": DRAIN_WITHIN_MS}


def released(replicas: Sequence[ReplicaView], low: int) -> list[str]:
    found = release_leaving(replicas, Scheduling(model="m", min_replicas=low))
    return [replica.id for replica in found if not replica.routed]


@pytest.mark.parametrize(
    ("replicas", "low", "expected"),
    [
        pytest.param([ready("1", **LEAVING)], 1, [], id="it-waits-while-no-other-serves"),
        pytest.param([ready("1", **LEAVING), ready("2")], 1, ["1"], id="it-goes-when-enough-serve-elsewhere"),
        pytest.param([ready("1", **LEAVING), ready("2")], 0, ["1"], id="without-a-minimum-one-is-enough"),
        pytest.param([ready("1", **LEAVING), ready("2")], 2, [], id="one-of-two-is-not-enough"),
        pytest.param([ready("1", **LEAVING), ready("2"), ready("3")], 2, ["1"], id="two-of-two-are"),
        pytest.param(
            [ready("1", **LEAVING), ready("2"), ready("3", state="loading")], 2, [], id="a-loading-one-does-not-serve"
        ),
        pytest.param(
            [ready("1", **LEAVING), ready("2"), ready("3", unreliable=True)],
            2,
            [],
            id="a-replica-on-an-unhealthy-node-does-not-count",
        ),
        pytest.param(
            [ready("1", **PLACED_LONG_AGO), ready("2")], 2, ["1"], id="it-goes-when-its-successor-has-no-place"
        ),
        pytest.param(
            [ready("1", **PLACED_LONG_AGO), ready("2"), ready("3", state="loading")],
            2,
            [],
            id="it-waits-for-a-successor-that-has-one",
        ),
        pytest.param(
            [ready("1", **PLACED_LONG_AGO), ready("2"), ready("3", state="loading", **OLD)],
            2,
            ["1"],
            id="not-for-a-load-that-must-end-itself",
        ),
        pytest.param(
            [ready("1", **BEYOND_THE_LIMIT), ready("2"), ready("3", state="loading")],
            2,
            ["1"],
            id="nor-beyond-the-limit",
        ),
        pytest.param([ready("1", **BEYOND_THE_LIMIT)], 2, [], id="the-last-one-stays"),
        pytest.param(
            [ready("1", **LEAVING), ready("2", **LEAVING), ready("3")], 1, ["1", "2"], id="all-on-draining-nodes-go"
        ),
        pytest.param([ready("1", **OLD), ready("2")], 1, [], id="one-that-is-replaced-for-another-reason-waits"),
        pytest.param([ready("1"), ready("2")], 1, [], id="one-that-may-stay-is-not-touched"),
    ],
)
def test_how_long_a_replica_on_a_draining_node_gets_requests(
    replicas: list[ReplicaView], low: int, expected: list[str]
) -> None:
    assert released(replicas, low) == expected


@pytest.mark.parametrize(
    ("replicas", "low", "expected"),
    [
        pytest.param([ready("1", **OUTDATED)], 0, [], id="it-serves-while-no-newer-one-does"),
        pytest.param(
            [ready("1", outdated_ms=1, **OUTDATED), ready("2")], 0, [], id="it-serves-while-a-successor-may-be-placed"
        ),
        pytest.param(
            [ready("1", outdated_ms=PLACED_WITHIN_MS, **OUTDATED), ready("2")],
            0,
            ["1"],
            id="it-goes-when-its-successor-has-no-place",
        ),
        pytest.param(
            [ready("1", outdated_ms=PLACED_WITHIN_MS, **OUTDATED), ready("2"), ready("3", state="loading")],
            0,
            [],
            id="it-waits-for-a-successor-that-has-one",
        ),
        pytest.param(
            [ready("1", outdated_ms=DRAIN_WITHIN_MS, **OUTDATED), ready("2"), ready("3", state="loading")],
            0,
            ["1"],
            id="but-not-beyond-the-limit",
        ),
        pytest.param(
            [ready("1", outdated_ms=DRAIN_WITHIN_MS, **OUTDATED), ready("2")],
            2,
            [],
            id="it-serves-while-fewer-than-the-minimum-are-new",
        ),
    ],
)
def test_how_long_a_replica_of_an_older_revision_gets_requests(
    replicas: list[ReplicaView], low: int, expected: list[str]
) -> None:
    assert released(replicas, low) == expected


# Draining


@pytest.mark.parametrize(
    ("replica", "pace", "drained", "stopped"),
    [
        pytest.param(ready("1", state="draining"), PACE, [], ["1"], id="an-idle-one-stops"),
        pytest.param(ready("1", state="draining", **BUSY), PACE, [], [], id="a-busy-one-finishes-first"),
        pytest.param(
            ready("1", state="draining", draining_ms=DRAIN_WITHIN_MS, **BUSY), PACE, [], ["1"], id="within-the-limit"
        ),
        pytest.param(
            ready("1", state="draining", draining_ms=DRAIN_WITHIN_MS - 1, **BUSY), PACE, [], [], id="and-not-before-it"
        ),
        pytest.param(
            ready("1", state="draining", draining_ms=5, drain_within_ms=5, **BUSY), PACE, [], ["1"], id="its-own-limit"
        ),
        pytest.param(
            ready("1", state="draining", drain_within_ms=0, **BUSY), PACE, [], ["1"], id="which-may-be-no-time-at-all"
        ),
        pytest.param(
            ready("1", state="draining", draining_ms=7, **BUSY), ScalingPace(drain_ms=7), [], ["1"], id="a-shorter-pace"
        ),
        pytest.param(ready("1", routed=False, **OLD), PACE, ["1"], [], id="one-that-gets-no-requests-drains"),
        pytest.param(ready("1", routed=False, **OLD, **BUSY), PACE, ["1"], [], id="busy-or-not"),
        pytest.param(ready("1", **OLD), PACE, [], [], id="one-that-still-gets-requests-waits-for-its-successor"),
        pytest.param(ready("1", routed=False), PACE, [], [], id="one-that-may-stay-does-not-drain"),
        pytest.param(ready("1", state="loading", **OLD), PACE, [], ["1"], id="a-load-that-must-end-stops"),
        pytest.param(ready("1", state="starting", **OLD), PACE, [], ["1"], id="also-while-it-starts"),
        pytest.param(ready("1", state="loading"), PACE, [], [], id="a-load-that-may-stay-goes-on"),
        pytest.param(ready("1", state="stopping", **OLD), PACE, [], [], id="one-that-stops-already-is-left-alone"),
    ],
)
def test_when_a_replica_that_must_end_drains_and_stops(
    replica: ReplicaView, pace: ScalingPace, drained: list[str], stopped: list[str]
) -> None:
    plan = plan_scaling(view(replica, pace=pace))
    assert [remove.replica_id for remove in plan.drain] == drained
    assert [remove.replica_id for remove in plan.stop] == stopped
    assert all(remove.why for remove in (*plan.drain, *plan.stop))


# What must hold for any model


replica_views = st.builds(
    ReplicaView,
    id=st.uuids().map(str),
    node_id=st.sampled_from(["a", "b", "c"]),
    slot=st.integers(0, 3),
    state=st.sampled_from(["starting", "loading", "ready", "draining", "stopping", "failed"]),
    in_flight=st.integers(0, 2),
    idle_ms=st.integers(0, 2 * LONG_IDLE),
    why_not=st.sampled_from(["", DRAINED]),
    leaving_ms=st.sampled_from([None, 1, PLACED_WITHIN_MS, DRAIN_WITHIN_MS]),
    unreliable=st.booleans(),
)


@st.composite
def model_views(draw: st.DrawFn) -> ModelView:
    low = draw(st.integers(0, 3))
    return view(
        *draw(st.lists(replica_views, max_size=6)),
        low=low,
        high=draw(st.sampled_from([0, low + 1, low + 2])),
        loads=loads(draw(st.integers(0, 2))),
        waiting=draw(st.integers(0, 2)),
        since_action_ms=draw(st.sampled_from([None, 0, PACE.cool_down_ms])),
        pace=ScalingPace(idle_ttl_ms=draw(st.sampled_from([None, 1000]))),
    )


@st.composite
def spread_views(draw: st.DrawFn) -> ModelView:
    return view(
        *draw(st.lists(replica_views, max_size=6)),
        spread=True,
        matching_nodes=tuple(draw(st.sets(st.sampled_from(["a", "b", "c"])))),
        offline_nodes=frozenset(draw(st.sets(st.sampled_from(["a", "b", "c"])))),
    )


@given(model_views())
def test_a_plan_never_stops_a_busy_replica_that_serves_nor_goes_below_the_minimum(model: ModelView) -> None:
    plan = plan_scaling(model)
    ended = {remove.replica_id for remove in plan.stop}
    serving = [replica for replica in model.replicas if replica.serves]
    assert not any(replica.in_flight for replica in serving if replica.id in ended)
    left = [replica for replica in serving if replica.id not in ended]
    assert len(left) >= min(len(serving), model.scheduling.min_replicas)


@given(model_views() | spread_views())
def test_no_replica_is_named_twice_in_a_plan(model: ModelView) -> None:
    plan = plan_scaling(model)
    named = [remove.replica_id for remove in (*plan.drain, *plan.stop)]
    assert len(named) == len(set(named))
    replaced = [add.replaces for add in plan.add if add.replaces is not None]
    assert len(replaced) == len(set(replaced))


def apply(model: ModelView) -> ModelView:
    plan = plan_scaling(model)
    replaced = {add.replaces for add in plan.add}
    gone = {remove.replica_id for remove in plan.stop}
    return replace(
        model,
        loads=(
            *(load for load in model.loads if load.id not in plan.forget),
            *(Load(id=f"new {number}", replaces=add.replaces) for number, add in enumerate(plan.add)),
        ),
        replicas=tuple(
            replace(replica, successor=replica.successor or replica.id in replaced)
            for replica in model.replicas
            if replica.id not in gone
        ),
    )


@given(model_views())
def test_an_applied_plan_leaves_nothing_to_add_and_nothing_to_forget(model: ModelView) -> None:
    after = plan_scaling(apply(model))
    assert (after.add, after.forget) == ((), ())


@given(spread_views())
def test_spread_adds_at_most_one_replica_to_a_node_and_only_to_matching_nodes(model: ModelView) -> None:
    added = [add.node_id for add in plan_scaling(model).add]
    assert len(added) == len(set(added))
    assert set(added) <= set(model.matching_nodes)
    occupied = {replica.node_id for replica in model.replicas if replica.serves or replica.coming}
    assert occupied.isdisjoint(added)


@given(st.lists(replica_views, max_size=6), st.integers(0, 3))
def test_waiting_ends_only_for_replicas_that_must_end_while_another_serves(
    replicas: list[ReplicaView], low: int
) -> None:
    gone = set(released(replicas, low))
    assert not any(replica.fits for replica in replicas if replica.id in gone)
    if gone:
        assert any(replica.serves and not replica.unreliable for replica in replicas)
