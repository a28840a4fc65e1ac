"""Where a replica goes, as tables; and what must hold for any herd, as properties."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.backends.test_drift import machine
from corral.core.backends.rollout import stop_first_at_once
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.capacity import make_room
from corral.core.replicas.load_backoff import LoadBackoff, cause_of
from corral.core.replicas.placement import (
    GIB,
    Decision,
    HeldReplica,
    Need,
    NodeRoom,
    Placed,
    PlacementVerdict,
    Waiting,
    count_room,
    place,
    place_instead,
)


def room(name: str = "a", **changes: object) -> NodeRoom:
    plain = NodeRoom(
        id=name,
        name=name,
        status=NodeStatus.HEALTHY,
        labels={"tier": "fast"},
        capability="cpu",
        device="cpu",
        slots_per_model=1,
        free_memory=16 * GIB,
        free_disk=100 * GIB,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def held(identity: str, model: str = "other", **changes: object) -> HeldReplica:
    plain = HeldReplica(id=identity, model=model, slot=0, memory_bytes=4 * GIB, evictable=True)
    return replace(plain, **changes)  # type: ignore[arg-type]


def chosen(decision: Decision) -> Placed:
    assert isinstance(decision.outcome, Placed), decision
    return decision.outcome


NEED = Need(model="m", weights_bytes=4 * GIB)
OLD_COPY = held("old", "m", memory_bytes=5 * GIB, evictable=False)


@pytest.mark.parametrize(
    ("need", "node", "reason"),
    [
        pytest.param(NEED, room(status=NodeStatus.PENDING), "it is pending", id="not-approved"),
        pytest.param(NEED, room(status=NodeStatus.UNHEALTHY), "it is unhealthy", id="not-healthy"),
        pytest.param(NEED, room(status=NodeStatus.DRAINING), "it is draining", id="draining"),
        pytest.param(NEED, room(conditions=("its clock is off",)), "its clock is off", id="reachable-yet-unfit"),
        pytest.param(NEED, room(takes_backends=False), "it is an agent, which runs no backends", id="agent"),
        pytest.param(
            replace(NEED, selector={"tier": "slow"}), room(), "label tier is fast, not slow", id="selector-differs"
        ),
        pytest.param(
            replace(NEED, selector={"gpu": "x"}), room(), "label gpu is not set, not x", id="selector-names-no-label"
        ),
        pytest.param(
            replace(NEED, variant_problems={"a": "no build for cpu"}), room(), "no build for cpu", id="no-variant"
        ),
        pytest.param(replace(NEED, deleted={"a": "ann deleted it"}), room(), "ann deleted it", id="backend-deleted"),
        pytest.param(
            NEED, room(replicas=(held("1", "m"),)), "it runs 1 of this model already, as many as it may", id="no-slot"
        ),
        pytest.param(
            NEED,
            room(free_disk=4 * GIB),
            "its disk has 4.0 GiB free and 5.0 GiB are needed",
            id="disk-has-the-size-but-no-headroom",
        ),
        pytest.param(
            replace(NEED, weights_bytes=100 * GIB),
            room(free_disk=104 * GIB, free_memory=None),
            "its disk has 104.0 GiB free and 105.0 GiB are needed",
            id="headroom-of-large-weights-is-a-share",
        ),
        pytest.param(
            NEED,
            room(free_memory=4 * GIB, replicas=(held("1", evictable=False),)),
            "4.0 GiB of memory are free and 5.0 GiB are needed, and what runs there is busy or must stay",
            id="memory-and-nothing-to-evict",
        ),
        pytest.param(
            NEED,
            room(free_memory=-GIB, budget="10%"),
            "0 B of memory are free within its budget of 10% and 5.0 GiB are needed",
            id="budget-of-a-machine-that-runs-nothing",
        ),
        pytest.param(
            replace(NEED, groups=frozenset({"big"})),
            room(replicas=(held("1", "rival", groups=frozenset({"big"}), evictable=False),)),
            "rival runs there and shares concurrency group big, and what runs there is busy or must stay",
            id="concurrency-group",
        ),
        pytest.param(replace(NEED, only_node="b"), room(), "the replica is meant for another node", id="one-per-node"),
    ],
)
def test_what_rules_a_node_out(need: Need, node: NodeRoom, reason: str) -> None:
    decision = place(need, [node])
    assert isinstance(decision.outcome, Waiting)
    assert [(candidate.verdict, candidate.reason) for candidate in decision.candidates] == [
        (PlacementVerdict.RULED_OUT, reason)
    ]
    assert reason in decision.outcome.reason


def test_a_load_goes_where_its_backend_was_not_deleted() -> None:
    decision = place(replace(NEED, deleted={"a": "ann deleted it"}), [room("a"), room("b", free_memory=8 * GIB)])
    assert chosen(decision).node_id == "b"
    assert {candidate.node_id: candidate.reason for candidate in decision.candidates}["a"] == "ann deleted it"


@pytest.mark.parametrize(
    ("others", "by_choice"),
    [
        pytest.param([], True, id="everywhere"),
        pytest.param([room("b", labels={}), room("c", status=NodeStatus.OFFLINE)], True, id="others-cannot-anyway"),
        pytest.param([room("b", free_memory=0)], False, id="another-may-have-room-in-a-while"),
    ],
)
def test_only_somebody_who_installs_it_again_helps(others: list[NodeRoom], by_choice: bool) -> None:
    need = replace(NEED, selector={"tier": "fast"}, deleted={"a": "ann deleted it"})
    outcome = place(need, [room("a"), *others]).outcome
    assert isinstance(outcome, Waiting)
    assert outcome.by_choice is by_choice
    assert (outcome.reason == "ann deleted it") is by_choice


def test_without_nodes_the_way_on_is_told() -> None:
    outcome = place(NEED, []).outcome
    assert isinstance(outcome, Waiting)
    assert "corral worker --join" in outcome.reason


@pytest.mark.parametrize(
    ("nodes", "best"),
    [
        pytest.param(
            [room("busy", replicas=(held("1"),), free_memory=60 * GIB), room("idle")], "idle", id="idle-first"
        ),
        pytest.param(
            [room("a", replicas=(held("1", in_flight=3),), in_flight=3), room("b", replicas=(held("2"),))],
            "b",
            id="then-least-loaded",
        ),
        pytest.param([room("a", free_memory=8 * GIB), room("b", free_memory=9 * GIB)], "b", id="then-most-free"),
        pytest.param([room("a", free_memory=None), room("b", free_memory=6 * GIB)], "b", id="unknown-is-not-free"),
        pytest.param([room("a", free_memory=None), room("b", free_memory=GIB)], "a", id="unknown-is-not-full-either"),
        pytest.param([room("a"), room("b")], "a", id="by-name-when-all-else-is-equal"),
    ],
)
def test_the_order_of_nodes(nodes: list[NodeRoom], best: str) -> None:
    assert chosen(place(NEED, nodes)).node_id == best


def test_a_measured_footprint_goes_before_the_estimate() -> None:
    node = room(free_memory=3 * GIB)
    assert isinstance(place(NEED, [node]).outcome, Waiting)
    assert chosen(place(replace(NEED, measured_bytes={"cpu": 2 * GIB}), [node])).memory_bytes == 2 * GIB
    assert isinstance(place(replace(NEED, measured_bytes={"nvidia": 2 * GIB}), [node]).outcome, Waiting)


def test_weights_that_are_there_need_no_disk() -> None:
    node = room(free_disk=0)
    assert isinstance(place(NEED, [node]).outcome, Waiting)
    assert chosen(place(replace(NEED, staged_on=frozenset({"a"})), [node])).disk_bytes == 0
    assert chosen(place(replace(NEED, shared_directory=True), [node])).disk_bytes == 0


NEARLY_FULL = "its disk has 512.0 MiB free, less than the 1.0 GiB it should keep"
LOW = room(low_disk=NEARLY_FULL, free_disk=GIB // 2)
AT_HAND = replace(NEED, staged_on=frozenset({"a"}))


@pytest.mark.parametrize(
    ("need", "node", "reason"),
    [
        pytest.param(NEED, LOW, NEARLY_FULL, id="weights-would-have-to-come"),
        pytest.param(replace(NEED, weights_bytes=None), LOW, NEARLY_FULL, id="weights-of-unknown-size-too"),
        pytest.param(
            replace(AT_HAND, to_install_on=frozenset({"a"})), LOW, NEARLY_FULL, id="the-backend-would-have-to-come"
        ),
        pytest.param(AT_HAND, LOW, None, id="everything-is-there"),
        pytest.param(AT_HAND, replace(LOW, free_disk=None), None, id="everything-is-there-and-nobody-knows-the-disk"),
        pytest.param(replace(NEED, shared_directory=True), LOW, None, id="the-weights-are-on-shared-storage"),
        pytest.param(
            AT_HAND,
            replace(LOW, free_disk=1 << 20),
            f"{NEARLY_FULL}; a process takes 64.0 MiB of it to start",
            id="no-process-could-be-started",
        ),
        pytest.param(
            AT_HAND, replace(LOW, conditions=("its clock is off",)), "its clock is off", id="what-else-keeps-work-away"
        ),
    ],
)
def test_a_disk_below_its_headroom_takes_only_what_brings_no_files(
    need: Need, node: NodeRoom, reason: str | None
) -> None:
    outcome = place(need, [node]).outcome
    assert outcome == Waiting(reason=f"no node can take it; a: {reason}") if reason else isinstance(outcome, Placed)


@pytest.mark.parametrize("kind", ["data_directory", "clock_skew", "ports_exhausted", "of-a-newer-worker"])
def test_a_node_that_cannot_work_takes_nothing_and_one_with_a_full_disk_nothing_to_write(kind: str) -> None:
    full = Condition(kind=ConditionKind.DISK_PRESSURE, reason="its disk is full", remedy="")
    ill = Condition(kind=kind, reason="it is ill", remedy="")
    for conditions, reason, at_hand in (((full,), "its disk is full", Placed), ((full, ill), "it is ill", Waiting)):
        node = make_room(machine(conditions=conditions))
        assert isinstance(place(replace(NEED, staged_on=frozenset({node.id})), [node]).outcome, at_hand)
        refused = place(NEED, [node]).outcome
        assert isinstance(refused, Waiting)
        assert reason in refused.reason


@pytest.mark.parametrize("memory", [16 * GIB, GIB], ids=["beside-the-old-one", "after-the-old-one"])
def test_a_new_version_does_not_wait_for_a_disk_that_has_all_it_needs(memory: int) -> None:
    """The old one serves there, so its weights are there; an upgrade has put the new version there before."""
    node = replace(LOW, free_memory=memory, replicas=(OLD_COPY,))
    successor = replace(AT_HAND, replaces="old", surge_on="a")
    decision = place(successor, [node])
    if isinstance(decision.outcome, Waiting):
        found = place_instead(successor, [node], "old")
        assert found is not None
        decision = found
    assert (chosen(decision).node_id, chosen(decision).slot) == ("a", 1)
    with_other_weights = replace(successor, staged_on=frozenset())
    assert isinstance(place(with_other_weights, [node]).outcome, Waiting)
    assert place_instead(with_other_weights, [node], "old") is None


def test_a_disk_below_its_headroom_comes_after_all_that_have_room() -> None:
    others = [room("b", free_memory=None), room("c", replicas=(held("1"),), in_flight=3)]
    for other in others:
        assert chosen(place(AT_HAND, [LOW, other])).node_id == other.id


def test_the_least_recently_used_idle_replica_makes_room() -> None:
    replicas = (
        held("young", "x", idle_ms=1_000),
        held("old", "y", idle_ms=90_000),
        held("busy", "z", in_flight=1, evictable=False, idle_ms=99_000),
    )
    outcome = chosen(place(NEED, [room(free_memory=2 * GIB, replicas=replicas)]))
    assert outcome.evict == ("old",)


def test_as_few_as_possible_are_evicted() -> None:
    small = (held("1", "x", memory_bytes=2 * GIB, idle_ms=90_000), held("2", "y", memory_bytes=2 * GIB, idle_ms=80_000))
    nodes = [
        room("two-go", free_memory=2 * GIB, replicas=small),
        room("one-goes", free_memory=2 * GIB, replicas=(held("3", "z", idle_ms=1_000),)),
    ]
    assert chosen(place(NEED, nodes)).evict == ("3",)


@pytest.mark.parametrize(("spare", "evict"), [(1, None), (2, ("1", "2"))])
def test_no_more_of_a_model_make_room_than_it_can_spare(spare: int, evict: tuple[str, ...] | None) -> None:
    """INV-26: each of them could go, but not both."""
    twins = tuple(held(name, "x", slot=slot, memory_bytes=2 * GIB, spare=spare) for slot, name in enumerate("12"))
    for need, free in ((NEED, 2 * GIB), (replace(NEED, groups=frozenset({"big"})), 16 * GIB)):
        here = tuple(replace(one, groups=need.groups) for one in twins)
        outcome = place(need, [room(free_memory=free, replicas=here)]).outcome
        assert (outcome.evict if isinstance(outcome, Placed) else None) == evict


def test_nobody_is_evicted_where_there_is_room_elsewhere() -> None:
    nodes = [room("full", free_memory=GIB, replicas=(held("1"),)), room("unknown", free_memory=None)]
    outcome = chosen(place(NEED, nodes))
    assert (outcome.node_id, outcome.evict) == ("unknown", ())


def test_an_idle_rival_of_the_group_makes_way() -> None:
    need = replace(NEED, groups=frozenset({"big"}))
    outcome = chosen(place(need, [room(replicas=(held("rival", groups=frozenset({"big"})),))]))
    assert outcome.evict == ("rival",)


def test_a_successor_may_stand_beside_the_one_it_replaces() -> None:
    node = room(replicas=(held("1", "m"),))
    assert isinstance(place(NEED, [node]).outcome, Waiting)
    assert chosen(place(replace(NEED, surge_on="a"), [node])).slot == 1


def test_a_successor_from_another_node_keeps_to_the_limit() -> None:
    leaving = room("a", status=NodeStatus.DRAINING, replicas=(held("1", "m"),))
    full = room("b", replicas=(held("2", "m"),))
    outcome = place(replace(NEED, surge_on="a"), [leaving, full]).outcome
    assert isinstance(outcome, Waiting)
    assert "b: it runs 1 of this model already" in outcome.reason


def test_a_lowered_limit_counts_replicas_and_not_slots() -> None:
    node = room(slots_per_model=1, replicas=(held("1", "m"), held("2", "m", slot=3)))
    assert isinstance(place(replace(NEED, surge_on="a"), [node]).outcome, Waiting)


@pytest.mark.parametrize(
    ("nodes", "most", "count", "reason"),
    [
        pytest.param([room("a"), room("b")], 5, 2, "2 nodes: it runs 1 of this model already", id="slots"),
        pytest.param([room("a", slots_per_model=9)], 5, 3, "are needed", id="memory"),
        pytest.param([room("a"), room("b")], 2, 2, "", id="all-fit"),
        pytest.param([room("a", free_memory=0, replicas=(held("1", memory_bytes=8 * GIB),))], 2, 1, "it runs 1",
                     id="by-ending-an-idle-one"),
        pytest.param([], 1, 0, "there are no nodes", id="no-machines"),
        pytest.param([room()], -1, 0, "", id="more-run-than-are-wanted"),
    ],
)  # fmt: skip
def test_how_many_more_fit(nodes: list[NodeRoom], most: int, count: int, reason: str) -> None:
    found, told = count_room(NEED, nodes, most)
    assert found == count
    assert (reason in told) if reason else not told


def optional_gib(most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, most).map(lambda count: count * GIB)


@st.composite
def rooms(draw: st.DrawFn) -> list[NodeRoom]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        replicas = []
        for index in range(draw(st.integers(0, 4))):
            busy = draw(st.booleans())
            replicas.append(
                HeldReplica(
                    id=f"{number}-{index}",
                    model=draw(st.sampled_from("mnop")),
                    slot=index,
                    in_flight=int(busy),
                    idle_ms=draw(st.integers(0, 10)) * 1000,
                    memory_bytes=draw(optional_gib(8)),
                    groups=draw(st.sampled_from([frozenset(), frozenset({"g"})])),
                    evictable=not busy and draw(st.booleans()),
                )
            )
        found.append(
            room(
                f"n{number}",
                status=draw(st.sampled_from(NodeStatus)),
                slots_per_model=draw(st.integers(1, 3)),
                free_memory=draw(optional_gib(16)),
                free_disk=draw(optional_gib(16)),
                replicas=tuple(replicas),
            )
        )
    return found


needs = st.builds(
    Need,
    model=st.just("m"),
    weights_bytes=optional_gib(8),
    groups=st.sampled_from([frozenset(), frozenset({"g"})]),
    surge_on=st.sampled_from([None, "n0", "n1"]),
)


@given(needs, rooms())
def test_any_decision_is_sound(need: Need, nodes: list[NodeRoom]) -> None:
    decision = place(need, nodes)
    assert len(decision.candidates) == len(nodes)
    assert all(candidate.reason for candidate in decision.candidates if candidate.verdict is PlacementVerdict.RULED_OUT)
    if isinstance(decision.outcome, Waiting):
        assert decision.outcome.reason
        assert all(candidate.verdict is PlacementVerdict.RULED_OUT for candidate in decision.candidates)
        return
    placed = decision.outcome
    [node] = [node for node in nodes if node.id == placed.node_id]
    victims = [replica for replica in node.replicas if replica.id in placed.evict]
    stay = [replica for replica in node.replicas if replica.id not in placed.evict]
    assert node.status is NodeStatus.HEALTHY
    assert len(victims) == len(placed.evict)
    assert all(victim.evictable and victim.in_flight == 0 for victim in victims)
    assert placed.slot not in {replica.slot for replica in node.replicas if replica.model == "m"}
    assert not any(need.groups & replica.groups for replica in stay if replica.model != "m")
    if node.free_memory is not None and placed.memory_bytes is not None:
        assert placed.memory_bytes <= node.free_memory + sum(victim.memory_bytes or 0 for victim in victims)
    if node.free_disk is not None:
        assert placed.disk_bytes <= node.free_disk


@given(needs, rooms())
def test_the_order_in_which_nodes_are_listed_does_not_matter(need: Need, nodes: list[NodeRoom]) -> None:
    assert place(need, nodes).outcome == place(need, nodes[::-1]).outcome or isinstance(
        place(need, nodes).outcome, Waiting
    )


def setback(failures: int = 1, *, rests: bool = True, until_ms: int = 60_000, at_ms: int = 0) -> LoadBackoff:
    return LoadBackoff(
        failures=failures, error=f"no luck at {at_ms}", failed_at_ms=at_ms, until_ms=until_ms, rests=rests
    )


def test_a_machine_that_has_just_failed_it_rests_while_others_are_tried() -> None:
    need = replace(NEED, setbacks={"a": setback()})
    decision = place(need, [room("a"), room("b", in_flight=9)])
    assert chosen(decision).node_id == "b"
    reasons = {candidate.node_id: candidate.reason for candidate in decision.candidates}
    assert reasons["a"] == "it failed here and is tried here again from 00:01:00 UTC on: no luck at 0"


def test_a_machine_whose_rest_is_over_comes_after_all_others_that_have_room() -> None:
    need = replace(NEED, setbacks={"a": setback(rests=False)})
    full = room("c", free_memory=1 * GIB, replicas=(held("1", memory_bytes=15 * GIB),))
    assert chosen(place(need, [room("a"), room("b", in_flight=9)])).node_id == "b"
    assert chosen(place(need, [room("a"), full])) == chosen(place(NEED, [room("a")])), "nobody has to go for it"


def test_when_everybody_failed_it_waits_for_the_first_whose_rest_is_over() -> None:
    need = replace(NEED, setbacks={"a": setback(until_ms=9_000), "b": setback(until_ms=5_000)})
    outcome = place(need, [room("a"), room("b")]).outcome
    assert isinstance(outcome, Waiting)
    assert outcome.until_ms == 5_000


def test_one_failure_ends_no_other_model_but_two_do() -> None:
    full = room("b", free_memory=1 * GIB, replicas=(held("1", memory_bytes=15 * GIB),))
    once = place(replace(NEED, setbacks={"a": setback()}), [room("a"), full]).outcome
    assert isinstance(once, Waiting)
    assert once.until_ms == 60_000
    for rests in (True, False):
        twice = chosen(place(replace(NEED, setbacks={"a": setback(2, rests=rests)}), [room("a"), full]))
        assert (twice.node_id, twice.evict) == ("b", ("1",))


def test_a_model_that_fails_everywhere_is_not_carried_through_a_whole_herd() -> None:
    failed = {f"n{number}": setback(until_ms=1_000 * number) for number in range(1, 4)}
    herd = [room(f"n{number}") for number in range(1, 9)]
    outcome = place(replace(NEED, setbacks=failed), herd).outcome
    assert isinstance(outcome, Waiting)
    assert (outcome.until_ms, "3 machines in a row" in outcome.reason) == (1_000, True)
    only = place(replace(NEED, setbacks=failed, only_node="n8"), herd)
    assert chosen(only).node_id == "n8", "one that is wanted there has nothing to do with theirs"
    one_is_over = {**failed, "n1": setback(rests=False)}
    assert chosen(place(replace(NEED, setbacks=one_is_over), herd)).node_id == "n4"


def test_the_cause_is_what_all_who_rest_said_the_latest_first() -> None:
    found = [setback(at_ms=1), setback(at_ms=2), setback(at_ms=3, rests=False), setback(at_ms=1)]
    assert cause_of(found) == "no luck at 2; no luck at 1"


SUCCESSOR = replace(NEED, replaces="old", surge_on="a")


@pytest.mark.parametrize(
    ("rooms", "need", "evict"),
    [
        pytest.param([room(free_memory=GIB, replicas=(OLD_COPY,))], SUCCESSOR, (), id="a-gpu-for-one-model"),
        pytest.param(
            [room(free_memory=GIB, replicas=(replace(OLD_COPY, memory_bytes=None),))],
            SUCCESSOR,
            (),
            id="what-the-old-one-takes-is-what-the-new-one-takes",
        ),
        pytest.param(
            [room(free_memory=GIB, replicas=(OLD_COPY, held("idle")))],
            replace(SUCCESSOR, weights_bytes=6 * GIB),
            ("idle",),
            id="with-others-that-may-go-as-well",
        ),
        pytest.param([room(free_memory=GIB)], SUCCESSOR, None, id="it-is-gone-already"),
        pytest.param(
            [room(free_memory=GIB, replicas=(OLD_COPY,))],
            replace(SUCCESSOR, weights_bytes=8 * GIB),
            None,
            id="there-would-be-no-room-either",
        ),
        pytest.param(
            [room(free_memory=GIB, replicas=(OLD_COPY,), status=NodeStatus.DRAINING)],
            SUCCESSOR,
            None,
            id="its-node-takes-nothing",
        ),
        pytest.param(
            [room(free_memory=GIB, replicas=(OLD_COPY,))],
            replace(SUCCESSOR, only_node="b"),
            None,
            id="meant-for-another-node",
        ),
    ],
)
def test_where_memory_does_not_hold_both_the_old_one_makes_room(
    rooms: list[NodeRoom], need: Need, evict: tuple[str, ...] | None
) -> None:
    assert isinstance(place(need, rooms).outcome, Waiting) or rooms[0].replicas == ()
    decision = place_instead(need, rooms, "old")
    if evict is None:
        assert decision is None
        return
    assert decision is not None
    assert decision.need.instead_of == "old"
    assert (chosen(decision).node_id, chosen(decision).slot, chosen(decision).evict) == ("a", 1, evict)


def test_a_replica_is_never_evicted_for_its_own_successor() -> None:
    """It may have to be started again, which only a stop for its successor remembers."""
    idle = replace(OLD_COPY, evictable=True)
    assert isinstance(place(SUCCESSOR, [room(free_memory=GIB, replicas=(idle,))]).outcome, Waiting)


@pytest.mark.parametrize(
    ("serving", "kept", "at_once"),
    [(1, 1, 1), (2, 2, 1), (3, 1, 1), (8, 1, 2), (8, 7, 1), (100, 90, 10), (100, 1, 25)],
)
def test_how_many_are_stopped_before_their_successors_serve(serving: int, kept: int, at_once: int) -> None:
    assert stop_first_at_once(serving, kept=kept) == at_once
