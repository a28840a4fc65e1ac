"""How many replicas, as tables; and that a plan carried out leaves nothing to do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.errors import InvalidInput
from corral.core.replicas.scaling import (
    DRAIN_WITHIN_MS,
    LOADS_WITHOUT_PLACE_MOST,
    PLACED_WITHIN_MS,
    Load,
    ModelView,
    ReplicaView,
    ScalingPace,
    Scheduling,
    plan_scaling,
    release_leaving,
)

PACE = ScalingPace()
LONG_IDLE = PACE.idle_ms
TTL = ScalingPace(idle_ttl_ms=9)


def ready(identity: str, **changes: object) -> ReplicaView:
    plain = ReplicaView(id=identity, node_id=f"n{identity}", slot=0, state="ready")
    return replace(plain, **changes)  # type: ignore[arg-type]


def view(*replicas: ReplicaView, low: int = 0, high: int = 0, spread: bool = False, **changes: object) -> ModelView:
    scheduling = Scheduling(model="m", min_replicas=low, max_replicas=high, spread_all=spread)
    return replace(ModelView(scheduling=scheduling, replicas=replicas), **changes)  # type: ignore[arg-type]


def loads(count: int, **changes: object) -> tuple[Load, ...]:
    return tuple(replace(Load(id=f"load {number}"), **changes) for number in range(count))  # type: ignore[arg-type]


BUSY = {"in_flight": 1}
OLD = {"why_not": "its node is drained"}


@pytest.mark.parametrize(
    ("model", "add", "drain", "stop"),
    [
        pytest.param(view(), 0, [], [], id="nobody-asked-for-it"),
        pytest.param(view(low=2), 2, [], [], id="the-minimum-needs-no-traffic"),
        pytest.param(view(ready("1"), low=3, loads=loads(1)), 1, [], [], id="loads-under-way-count"),
        pytest.param(view(ready("1", state="starting"), low=1), 0, [], [], id="one-that-starts-counts"),
        pytest.param(view(ready("1", **BUSY)), 0, [], [], id="an-unmanaged-model-does-not-grow"),
        pytest.param(view(ready("1", **BUSY), low=1), 1, [], [], id="all-busy"),
        pytest.param(view(ready("1", **BUSY), ready("2"), low=1), 0, [], [], id="one-is-free"),
        pytest.param(view(ready("1", **BUSY), ready("2"), low=1, waiting=2), 1, [], [], id="requests-wait"),
        pytest.param(view(ready("1", **BUSY), low=1, high=1), 0, [], [], id="the-maximum-holds"),
        pytest.param(view(ready("1", **BUSY), low=1, since_action_ms=1), 0, [], [], id="one-action-per-cool-down"),
        pytest.param(view(ready("1", **BUSY), low=1, since_action_ms=PACE.cool_down_ms), 1, [], [], id="cooled-down"),
        pytest.param(view(ready("1", **BUSY), low=1, loads=loads(1)), 0, [], [], id="one-at-a-time"),
        pytest.param(view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=1), 0, [], ["2"], id="down-when-idle"),
        pytest.param(view(ready("1"), ready("2", idle_ms=LONG_IDLE), low=2), 0, [], [], id="not-below-the-minimum"),
        pytest.param(view(ready("1", idle_ms=LONG_IDLE)), 0, [], [], id="the-last-one-stays-without-an-idle-limit"),
        pytest.param(view(ready("1", idle_ms=9), pace=TTL), 0, [], ["1"], id="scaled-to-zero-when-allowed"),
        pytest.param(view(ready("1", idle_ms=9, **BUSY), pace=TTL), 0, [], [], id="a-busy-one-is-not-idle"),
        pytest.param(view(ready("1"), ready("2"), high=1), 0, [], ["1"], id="above-the-maximum-goes-at-once"),
        pytest.param(view(ready("1", **OLD)), 1, [], [], id="a-successor-first"),
        pytest.param(
            view(ready("1", **OLD, successor=True), loads=loads(1, replaces="1")), 0, [], [], id="and-only-one"
        ),
        pytest.param(view(ready("1", **OLD, routed=False)), 1, ["1"], [], id="an-old-revision-serves-nobody-meanwhile"),
        pytest.param(view(ready("1", state="draining", **OLD)), 0, [], ["1"], id="drained-and-idle"),
        pytest.param(view(ready("1", state="draining", **BUSY, **OLD)), 0, [], [], id="drained-but-answering"),
        pytest.param(
            view(ready("1", state="draining", **BUSY, **OLD, draining_ms=DRAIN_WITHIN_MS)),
            0,
            [],
            ["1"],
            id="drained-for-long-enough",
        ),
        pytest.param(
            view(ready("1", state="draining", **BUSY, **OLD, draining_ms=30_000, drain_within_ms=30_000)),
            0,
            [],
            ["1"],
            id="drained-for-as-long-as-a-successor-that-needs-its-memory-waits",
        ),
        pytest.param(
            view(failed=loads(1, replaces="gone", stops_first=True)), 1, [], [], id="stopped-in-vain-is-started-again"
        ),
        pytest.param(view(failed=loads(1, replaces="gone")), 0, [], [], id="gone-by-itself-is-not"),
        pytest.param(view(ready("1", state="loading", **OLD), low=1), 1, [], ["1"], id="nobody-waits-for-an-old-load"),
        pytest.param(view(ready("1", state="failed"), low=1), 1, [], ["1"], id="failed"),
        pytest.param(view(spread=True, matching_nodes=("n1", "n2")), 2, [], [], id="one-on-every-node"),
        pytest.param(
            view(ready("1"), ready("2", node_id="n1", slot=1), spread=True, matching_nodes=("n1", "n2")),
            1,
            [],
            ["2"],
            id="two-on-one-node-are-not-one-on-each",
        ),
        pytest.param(view(ready("1"), spread=True), 0, [], ["1"], id="its-node-does-not-match-any-more"),
        pytest.param(
            view(spread=True, matching_nodes=("n1",), loads_for_nodes=frozenset({"n1"})), 0, [], [], id="on-its-way"
        ),
    ],
)
def test_plan_scaling(model: ModelView, add: int, drain: list[str], stop: list[str]) -> None:
    plan = plan_scaling(model)
    assert (len(plan.add), [remove.replica_id for remove in plan.drain]) == (add, drain)
    assert [remove.replica_id for remove in plan.stop] == stop
    assert all(remove.why for remove in (*plan.drain, *plan.stop))


@pytest.mark.parametrize(
    ("load", "forgotten"),
    [
        pytest.param(Load(id="l", replaces="gone", stops_first=True), (), id="its-predecessor-was-stopped-for-it"),
        pytest.param(Load(id="l", replaces="gone"), ("l",), id="enough-serve-without-it"),
    ],
)
def test_a_load_whose_predecessor_was_stopped_is_not_forgotten(load: Load, forgotten: tuple[str, ...]) -> None:
    """Of three replicas the first is being replaced by way of a stop, the others still serve from the old version."""
    others = (ready("2", **OLD, successor=True), ready("3", **OLD, successor=True))
    waiting = (load, Load(id="m", replaces="2"), Load(id="n", replaces="3"))
    assert plan_scaling(view(*others, loads=waiting)).forget == forgotten
    assert plan_scaling(view(*others, loads=waiting[1:], failed=(load,))).forget == forgotten


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": ""},
        {"min_replicas": -1},
        {"min_replicas": 3, "max_replicas": 2},
        {"min_replicas": 10**12},
        {"max_replicas": 10**12},
        {"spread_all": True, "min_replicas": 1},
        {"route_policy": "fastest"},
        {"balance_rel_threshold": 0.5},
    ],
)
def test_scheduling_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Scheduling(**{"model": "m", **wrong})  # type: ignore[arg-type]


replica_views = st.builds(
    ReplicaView,
    id=st.uuids().map(str),
    node_id=st.sampled_from(["a", "b", "c"]),
    slot=st.integers(0, 3),
    state=st.sampled_from(["starting", "loading", "ready", "draining", "stopping", "failed"]),
    in_flight=st.integers(0, 2),
    idle_ms=st.integers(0, 2 * LONG_IDLE),
    why_not=st.sampled_from(["", "its node is drained"]),
)


@st.composite
def model_views(draw: st.DrawFn) -> ModelView:
    low = draw(st.integers(0, 3))
    return view(
        *draw(st.lists(replica_views, max_size=6)),
        low=low,
        high=draw(st.sampled_from([0, low + 1, low + 2])),
        loads=loads(draw(st.integers(0, 2))),
        since_action_ms=draw(st.sampled_from([None, 0, PACE.cool_down_ms])),
        pace=ScalingPace(idle_ttl_ms=draw(st.sampled_from([None, 1000]))),
    )


@pytest.mark.parametrize("spread", [False, True])
def test_a_failed_successor_is_forgotten_when_nobody_is_to_be_replaced(spread: bool) -> None:
    failed = (Load(id="of one that stays", replaces="1"), Load(id="of one that goes", replaces="2"), Load(id="another"))
    model = view(ready("1"), ready("2", **OLD), spread=spread, matching_nodes=("n1", "n2"), failed=failed)
    assert plan_scaling(model).forget == ("of one that stays",)


@given(model_views())
def test_a_plan_never_ends_a_busy_replica_that_serves_nor_goes_below_the_minimum(model: ModelView) -> None:
    plan = plan_scaling(model)
    ended = {remove.replica_id for remove in plan.stop}
    serving = [replica for replica in model.replicas if replica.serves]
    assert not any(replica.in_flight for replica in serving if replica.id in ended)
    left = [replica for replica in serving if replica.id not in ended]
    assert len(left) >= min(len(serving), model.scheduling.min_replicas)


def carry_out(model: ModelView) -> ModelView:
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
def test_a_plan_carried_out_leaves_nothing_to_add_and_nothing_to_forget(model: ModelView) -> None:
    after = plan_scaling(carry_out(model))
    assert (after.add, after.forget) == ((), ())


@pytest.mark.parametrize(
    ("model", "forgotten", "stop"),
    [
        pytest.param(view(ready("1"), ready("2"), low=5, high=5, loads=loads(3)), [], [], id="all-are-wanted"),
        pytest.param(
            view(ready("1"), ready("2"), low=2, high=2, loads=loads(3)),
            ["load 0", "load 1", "load 2"],
            [],
            id="scaled-down-to-what-runs",
        ),
        pytest.param(
            view(ready("1"), ready("2"), low=1, high=1, loads=loads(1)), ["load 0"], ["1"], id="scaled-down-further"
        ),
        pytest.param(view(ready("1"), ready("2"), loads=loads(3)), ["load 0", "load 1", "load 2"], [], id="unscaled"),
        pytest.param(view(low=2, loads=loads(3)), ["load 2"], [], id="the-oldest-stays"),
        pytest.param(view(loads=loads(1)), [], [], id="somebody-asked-for-it"),
        pytest.param(view(ready("1", **BUSY), low=1, loads=loads(1)), [], [], id="wanted-by-traffic"),
        pytest.param(view(ready("1", **OLD), loads=loads(1, replaces="1")), [], [], id="a-successor"),
        pytest.param(
            view(ready("2"), low=1, loads=loads(1, replaces="gone")), ["load 0"], [], id="nobody-to-take-over-from"
        ),
        pytest.param(view(ready("2"), low=2, loads=loads(1, replaces="gone")), [], [], id="yet-still-one-too-few"),
        pytest.param(
            view(ready("1"), spread=True, matching_nodes=("n1",), loads=loads(1)), ["load 0"], [], id="spread-since"
        ),
    ],
)
def test_loads_that_nobody_wants_any_more_are_forgotten(
    model: ModelView, forgotten: list[str], stop: list[str]
) -> None:
    plan = plan_scaling(model)
    assert list(plan.forget) == forgotten
    assert [remove.replica_id for remove in plan.stop] == stop


def test_silence_does_not_end_what_runs_on_every_node() -> None:
    away = view(ready("1"), spread=True, matching_nodes=("n2",), away_nodes=frozenset({"n1"}), loads_for_nodes={"n2"})
    assert plan_scaling(away).stop == ()


LEAVING = {"why_not": "its node is drained", "away": True, "leaving_ms": 1}


@pytest.mark.parametrize(
    ("replicas", "low", "released"),
    [
        pytest.param([ready("1", **LEAVING)], 1, [], id="nobody-else-serves"),
        pytest.param([ready("1", **LEAVING), ready("2")], 1, ["1"], id="enough-serve"),
        pytest.param([ready("1", **LEAVING), ready("2")], 0, ["1"], id="nothing-is-wanted"),
        pytest.param([ready("1", **LEAVING), ready("2")], 2, [], id="one-of-two-is-not-enough"),
        pytest.param([ready("1", **LEAVING), ready("2"), ready("3")], 2, ["1"], id="both-are-there"),
        pytest.param(
            [ready("1", **LEAVING), ready("2"), ready("3", state="loading")], 2, [], id="one-that-comes-does-not-serve"
        ),
        pytest.param(
            [ready("1", **LEAVING), ready("2"), ready("3", away=True)], 2, [], id="nobody-counts-on-a-sick-node"
        ),
        pytest.param(
            [ready("1", **{**LEAVING, "leaving_ms": PLACED_WITHIN_MS}), ready("2")], 2, ["1"], id="nowhere-to-go"
        ),
        pytest.param(
            [ready("1", **{**LEAVING, "leaving_ms": PLACED_WITHIN_MS}), ready("2"), ready("3", state="loading")],
            2,
            [],
            id="its-successor-comes",
        ),
        pytest.param(
            [ready("1", **{**LEAVING, "leaving_ms": DRAIN_WITHIN_MS}), ready("2"), ready("3", state="loading")],
            2,
            ["1"],
            id="not-for-ever",
        ),
        pytest.param([ready("1", **{**LEAVING, "leaving_ms": DRAIN_WITHIN_MS})], 2, [], id="the-last-one-stays"),
        pytest.param([ready("1", **OLD), ready("2")], 1, [], id="who-is-replaced-for-another-cause-waits"),
    ],
)
def test_release_leaving(replicas: list[ReplicaView], low: int, released: list[str]) -> None:
    found = release_leaving(replicas, Scheduling(model="m", min_replicas=low))
    assert [replica.id for replica in found if not replica.routed] == released


def test_of_very_many_that_are_wanted_only_so_many_wait_for_a_place() -> None:
    """INV-38. As they find places, the next are asked for."""
    assert len(plan_scaling(view(low=3000)).add) == LOADS_WITHOUT_PLACE_MOST
    assert plan_scaling(view(ready("1"), low=3000, loads=loads(LOADS_WITHOUT_PLACE_MOST))).add == ()
    assert len(plan_scaling(view(ready("1"), low=3000, loads=loads(LOADS_WITHOUT_PLACE_MOST - 3))).add) == 3


OUTDATED = {"why_not": "its model was changed"}


@pytest.mark.parametrize(
    ("replicas", "low", "released"),
    [
        pytest.param([ready("1", **OUTDATED)], 0, [], id="nothing-else-serves"),
        pytest.param([ready("1", outdated_ms=1, **OUTDATED), ready("2")], 0, [], id="its-successor-may-find-a-place"),
        pytest.param(
            [ready("1", outdated_ms=PLACED_WITHIN_MS, **OUTDATED), ready("2")], 0, ["1"], id="it-has-found-none"
        ),
        pytest.param(
            [ready("1", outdated_ms=PLACED_WITHIN_MS, **OUTDATED), ready("2"), ready("3", state="loading")],
            0, [], id="it-is-coming",
        ),
        pytest.param(
            [ready("1", outdated_ms=DRAIN_WITHIN_MS, **OUTDATED), ready("2"), ready("3", state="loading")],
            0, ["1"], id="it-comes-for-too-long",
        ),
        pytest.param(
            [ready("1", outdated_ms=DRAIN_WITHIN_MS, **OUTDATED), ready("2")], 2, [], id="two-are-wanted-and-one-is-new"
        ),
    ],
)  # fmt: skip
def test_one_of_an_older_revision_serves_until_enough_of_the_newer_do(
    replicas: list[ReplicaView], low: int, released: list[str]
) -> None:
    found = release_leaving(replicas, Scheduling(model="m", min_replicas=low))
    assert [replica.id for replica in found if not replica.routed] == released


@pytest.mark.parametrize("spread", [False, True])
def test_a_pending_revision_is_loaded_beside_one_replica_that_serves_on(spread: bool) -> None:
    beside = ready("1", trial=True, **OUTDATED)
    where = {"matching_nodes": ("n1", "n2")} if spread else {}
    plan = plan_scaling(view(beside, ready("2"), spread=spread, low=0 if spread else 2, **where))
    [add] = plan.add
    assert (add.replaces, add.trial) == ("1", True)
    assert (plan.drain, plan.stop) == ((), ())
