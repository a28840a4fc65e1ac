"""Placement as tables: what a replica needs, what rules a node out, which node is best, what is evicted; and what must
hold for any fleet, as properties."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.replicas.test_availability import node as cluster_node
from corral.core.models.load_plan import Elastic
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.capacity import node_capacity
from corral.core.replicas.load_backoff import LoadBackoff
from corral.core.replicas.placement import (
    GIB,
    LEAST_HEADROOM_BYTES,
    SCORE_NAMES,
    START_BYTES,
    Candidate,
    Decision,
    HeldReplica,
    Need,
    NodeCapacity,
    Placed,
    PlacementVerdict,
    Waiting,
    count_placements,
    estimate_bytes,
    free_slot,
    place,
    place_instead,
)

MIB = 1 << 20
CHOSEN, POSSIBLE, RULED_OUT = PlacementVerdict


def node(name: str = "a", **changes: Any) -> NodeCapacity:
    plain = NodeCapacity(
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
    return replace(plain, **changes)


def held(identity: str, model: str = "other", **changes: Any) -> HeldReplica:
    plain = HeldReplica(id=identity, model=model, slot=0, memory_bytes=4 * GIB, evictable=True)
    return replace(plain, **changes)


def backoff(
    failures: int = 1, *, cooling_down: bool = True, until_ms: int = 60_000, error: str = "no such file"
) -> LoadBackoff:
    return LoadBackoff(failures=failures, error=error, failed_at_ms=0, until_ms=until_ms, cooling_down=cooling_down)


def chosen(decision: Decision) -> Placed:
    assert isinstance(decision.outcome, Placed), decision
    return decision.outcome


def waiting(decision: Decision) -> Waiting:
    assert isinstance(decision.outcome, Waiting), decision
    return decision.outcome


NEED = Need(model="m", weights_bytes=4 * GIB)
BIG = frozenset({"big"})
OLD_COPY = held("old", "m", memory_bytes=5 * GIB, evictable=False)
PROTECTED = "its replicas are busy or protected by min_replicas"


# What a replica needs


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        pytest.param(NEED, int(4 * GIB * 1.2) + 256 * MIB, id="the-estimate-adds-a-fifth-and-256-mib-to-the-weights"),
        pytest.param(replace(NEED, weights_bytes=None), None, id="weights-of-unknown-size-have-no-estimate"),
        pytest.param(replace(NEED, weights_bytes=0), 256 * MIB, id="a-model-without-weights-needs-the-engine-alone"),
        pytest.param(replace(NEED, measured_bytes={"cpu": 2 * GIB}), 2 * GIB, id="a-measured-footprint-wins"),
        pytest.param(
            replace(NEED, weights_bytes=None, measured_bytes={"cpu": 2 * GIB}), 2 * GIB, id="also-without-a-known-size"
        ),
        pytest.param(
            replace(NEED, weights_bytes=None, measured_bytes={"nvidia": 2 * GIB}),
            None,
            id="a-footprint-on-other-hardware-says-nothing",
        ),
    ],
)
def test_memory_that_a_replica_needs(need: Need, expected: int | None) -> None:
    assert need.memory_bytes("cpu") == expected


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        pytest.param(NEED, 5 * GIB, id="small-weights-keep-1-gib-of-headroom"),
        pytest.param(replace(NEED, weights_bytes=100 * GIB), 105 * GIB, id="large-weights-keep-5-percent"),
        pytest.param(replace(NEED, weights_bytes=20 * GIB), 21 * GIB, id="both-are-the-same-at-20-gib"),
        pytest.param(replace(NEED, weights_bytes=None), LEAST_HEADROOM_BYTES, id="unknown-weights-need-the-headroom"),
        pytest.param(replace(NEED, staged_on=frozenset({"a"})), 0, id="staged-weights-need-no-disk"),
        pytest.param(replace(NEED, staged_on=frozenset({"b"})), 5 * GIB, id="weights-staged-elsewhere-do"),
        pytest.param(replace(NEED, shared_directory=True), 0, id="a-shared-directory-needs-no-disk"),
    ],
)
def test_disk_space_that_a_replica_needs(need: Need, expected: int) -> None:
    assert need.disk_bytes("a") == expected


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        pytest.param(NEED, True, id="weights-must-be-written"),
        pytest.param(replace(NEED, staged_on=frozenset({"a"})), False, id="nothing-must-be-written"),
        pytest.param(
            replace(NEED, staged_on=frozenset({"a"}), to_install_on=frozenset({"a"})), True, id="the-backend-must-be"
        ),
        pytest.param(
            replace(NEED, shared_directory=True, to_install_on=frozenset({"b"})),
            False,
            id="the-backend-is-missing-elsewhere",
        ),
    ],
)
def test_whether_files_must_be_written_to_a_node(need: Need, expected: bool) -> None:
    assert need.brings_files("a") is expected


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        pytest.param(NEED, 0, id="no-failure-is-known"),
        pytest.param(replace(NEED, backoffs={"a": backoff(3)}), 3, id="failures-on-the-node-count"),
        pytest.param(replace(NEED, backoffs={"b": backoff(3)}), 0, id="failures-on-another-node-do-not"),
        pytest.param(
            replace(NEED, unconfirmed_on=frozenset({"a"})), 1, id="a-build-from-an-unreachable-source-counts-as-one"
        ),
        pytest.param(
            replace(NEED, unconfirmed_on=frozenset({"a"}), backoffs={"a": backoff(2)}),
            2,
            id="failures-are-not-added-to-it",
        ),
    ],
)
def test_failures_of_a_node(need: Need, expected: int) -> None:
    assert need.failures_on("a") == expected


# What rules a node out


LIMIT_1 = "already runs 1 replica of this model (limit 1; raise it with `corral nodes limit`)"
LIMIT_2 = "already runs 2 replicas of this model (limit 2; raise it with `corral nodes limit`)"


@pytest.mark.parametrize(
    ("need", "here", "reason"),
    [
        pytest.param(NEED, node(status=NodeStatus.PENDING), "it is pending", id="a-node-without-approval"),
        pytest.param(NEED, node(status=NodeStatus.UNHEALTHY), "it is unhealthy", id="an-unhealthy-node"),
        pytest.param(NEED, node(status=NodeStatus.OFFLINE), "it is offline", id="an-offline-node"),
        pytest.param(NEED, node(status=NodeStatus.DRAINING), "it is draining", id="a-draining-node"),
        pytest.param(NEED, node(conditions=("its clock is off",)), "its clock is off", id="a-node-with-a-condition"),
        pytest.param(
            NEED,
            node(conditions=("its clock is off", "its ports are used up")),
            "its clock is off",
            id="of-several-conditions-the-first-is-shown",
        ),
        pytest.param(NEED, node(takes_backends=False), "it is an agent node, which runs no backends", id="an-agent"),
        pytest.param(
            replace(NEED, selector={"tier": "slow"}),
            node(),
            "its label tier is fast, not slow",
            id="a-label-with-another-value",
        ),
        pytest.param(
            replace(NEED, selector={"gpu": "x"}),
            node(),
            "its label gpu is not set, not x",
            id="a-label-that-is-not-set",
        ),
        pytest.param(
            replace(NEED, selector={"tier": "fast", "gpu": "x"}),
            node(),
            "its label gpu is not set, not x",
            id="all-labels-of-the-selector-must-match",
        ),
        pytest.param(
            replace(NEED, variant_problems={"a": "no build for cpu"}), node(), "no build for cpu", id="no-build-for-it"
        ),
        pytest.param(
            replace(NEED, deleted={"a": "ann deleted it"}), node(), "ann deleted it", id="its-backend-was-deleted"
        ),
        pytest.param(NEED, node(replicas=(held("1", "m"),)), LIMIT_1, id="its-limit-of-replicas-is-reached"),
        pytest.param(
            NEED,
            node(slots_per_model=2, replicas=(held("1", "m"), held("2", "m", slot=1))),
            LIMIT_2,
            id="a-limit-of-two-is-reached-by-two",
        ),
        pytest.param(
            NEED,
            node(slots_per_model=0),
            "already runs 0 replicas of this model (limit 0; raise it with `corral nodes limit`)",
            id="a-limit-of-zero-is-always-reached",
        ),
        pytest.param(
            NEED,
            node(free_disk=4 * GIB),
            "5.0 GiB of disk space needed, 4.0 GiB free",
            id="a-disk-with-the-size-but-without-headroom",
        ),
        pytest.param(
            replace(NEED, weights_bytes=100 * GIB),
            node(free_disk=104 * GIB, free_memory=None),
            "105.0 GiB of disk space needed, 104.0 GiB free",
            id="headroom-of-large-weights-is-a-share",
        ),
        pytest.param(
            NEED,
            node(free_disk=-GIB),
            "5.0 GiB of disk space needed, 0 B free",
            id="an-overcommitted-disk-has-none-free",
        ),
        pytest.param(
            NEED,
            node(free_memory=4 * GIB),
            "5.0 GiB of memory needed, 4.0 GiB free",
            id="memory-and-nothing-runs-there",
        ),
        pytest.param(
            NEED,
            node(free_memory=4 * GIB, replicas=(held("1", evictable=False),)),
            f"5.0 GiB of memory needed, 4.0 GiB free; {PROTECTED}",
            id="memory-and-nothing-may-be-evicted",
        ),
        pytest.param(
            NEED,
            node(free_memory=-GIB, budget="10%"),
            "5.0 GiB of memory needed, 0 B free within its budget of 10%",
            id="a-budget-that-is-used-up",
        ),
        pytest.param(
            replace(NEED, groups=BIG),
            node(replicas=(held("1", "rival", groups=BIG, evictable=False),)),
            f"rival runs there and shares concurrency group big; {PROTECTED}",
            id="a-busy-model-of-the-same-concurrency-group",
        ),
        pytest.param(
            replace(NEED, groups=frozenset({"a", "b"})),
            node(replicas=(held("1", "rival", groups=frozenset({"c", "b", "a"}), evictable=False),)),
            f"rival runs there and shares concurrency group a, b; {PROTECTED}",
            id="all-shared-groups-are-named",
        ),
        pytest.param(
            replace(NEED, only_node="b"),
            node(),
            "the replica was requested for another node",
            id="another-node-was-requested",
        ),
        pytest.param(
            replace(NEED, backoffs={"a": backoff()}),
            node(),
            "load failed on this node; next attempt after 00:01:00 UTC: no such file",
            id="a-load-that-just-failed-there",
        ),
        pytest.param(
            replace(NEED, backoffs={"a": backoff(3)}),
            node(),
            "load failed on this node 3 times; next attempt after 00:01:00 UTC: no such file",
            id="a-load-that-failed-there-repeatedly",
        ),
    ],
)
def test_what_rules_a_node_out(need: Need, here: NodeCapacity, reason: str) -> None:
    decision = place(need, [here])
    assert decision.candidates == (Candidate(node_id="a", node_name="a", verdict=RULED_OUT, reason=reason),)
    assert waiting(decision).reason == (reason if need.deleted else f"no node can take it; a: {reason}")


EVERYTHING: tuple[tuple[Need, dict[str, Any], str], ...] = (
    (replace(NEED), {"status": NodeStatus.OFFLINE}, "it is offline"),
    (replace(NEED), {"conditions": ("its clock is off",)}, "its clock is off"),
    (replace(NEED), {"takes_backends": False}, "it is an agent node, which runs no backends"),
    (replace(NEED, only_node="b"), {}, "the replica was requested for another node"),
    (replace(NEED, selector={"x": "y"}), {}, "its label x is not set, not y"),
    (replace(NEED, deleted={"a": "ann deleted it"}), {}, "ann deleted it"),
    (replace(NEED, backoffs={"a": backoff()}), {}, "load failed on this node"),
    (replace(NEED), {"free_disk": 0}, "of disk space needed"),
    (replace(NEED), {"replicas": (held("1", "m"), held("2", "r", groups=BIG, evictable=False))}, "already runs 1"),
    (replace(NEED, groups=BIG), {"replicas": (held("2", "r", groups=BIG, evictable=False),)}, "concurrency group big"),
    (replace(NEED), {"free_memory": 0}, "of memory needed"),
)


@pytest.mark.parametrize("first", range(len(EVERYTHING)), ids=[reason for *_, reason in EVERYTHING])
def test_the_most_permanent_reason_is_shown(first: int) -> None:
    """A node with this problem and all that follow shows this one: what an administrator must change comes first."""
    need, changes = NEED, dict[str, Any]()
    for its_need, its_changes, _ in reversed(EVERYTHING[first:]):
        different = {
            name: getattr(its_need, name) for name in Need.__slots__ if getattr(its_need, name) != getattr(NEED, name)
        }
        need, changes = replace(need, **different), {**changes, **its_changes}
    [candidate] = place(need, [node(**changes)]).candidates
    assert EVERYTHING[first][2] in candidate.reason


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="an-idle-node-with-capacity"),
        pytest.param({"free_memory": None}, id="memory-that-is-not-reported"),
        pytest.param({"free_disk": None}, id="a-disk-that-is-not-reported"),
        pytest.param({"slots_per_model": 2, "replicas": (held("1", "m"),)}, id="a-second-replica-within-the-limit"),
        pytest.param({"replicas": (held("1"),)}, id="beside-another-model"),
        pytest.param({"replicas": (held("1", groups=BIG),)}, id="beside-a-model-of-a-group-that-it-is-not-in"),
        pytest.param({"free_disk": 5 * GIB}, id="exactly-enough-disk"),
        pytest.param({"free_memory": int(4 * GIB * 1.2) + 256 * MIB}, id="exactly-enough-memory"),
    ],
)
def test_what_does_not_rule_a_node_out(changes: dict[str, Any]) -> None:
    decision = place(NEED, [node(**changes)])
    assert chosen(decision).node_id == "a"
    assert [candidate.verdict for candidate in decision.candidates] == [CHOSEN]


# Which node is best


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param({"in_flight": 9}, {"failed": True}, id="a-load-failed-there-before-anything-else"),
        pytest.param({"replicas": (held("1"),)}, {"free_memory": None}, id="known-capacity-before-an-idle-node"),
        pytest.param({"replicas": (held("1"),)}, {"free_disk": None}, id="a-known-disk-counts-as-well"),
        pytest.param(
            {"free_memory": None, "free_disk": None},
            {"low_disk": "its disk is nearly full", "staged": True},
            id="unknown-capacity-before-a-disk-that-is-nearly-full",
        ),
        pytest.param(
            {"free_memory": 6 * GIB}, {"replicas": (held("1"),), "free_memory": 60 * GIB}, id="an-idle-node-first"
        ),
        pytest.param(
            {"replicas": (held("1"), held("2", "x"))},
            {"replicas": (held("3", in_flight=1),), "in_flight": 1},
            id="then-the-fewest-requests-in-flight",
        ),
        pytest.param(
            {"slots_per_model": 3, "replicas": (held("1"), held("2", "x"))},
            {"slots_per_model": 3, "replicas": (held("3", "m"),)},
            id="then-the-fewest-replicas-of-the-same-model",
        ),
        pytest.param(
            {"replicas": (held("1"),), "free_memory": 6 * GIB},
            {"replicas": (held("2"), held("3", "x")), "staged": True},
            id="then-the-fewest-replicas",
        ),
        pytest.param({"staged": True, "free_memory": 6 * GIB}, {}, id="then-a-node-that-has-the-weights"),
        pytest.param({"free_memory": 9 * GIB}, {"free_memory": 8 * GIB}, id="then-the-most-free-memory"),
    ],
)
def test_the_better_of_two_nodes(better: dict[str, Any], worse: dict[str, Any]) -> None:
    """The names say the opposite: a name decides only between equals."""
    nodes, need = [], NEED
    for name, changes in (("z-better", dict(better)), ("a-worse", dict(worse))):
        if changes.pop("staged", False):
            need = replace(need, staged_on=need.staged_on | {name})
        if changes.pop("failed", False):
            need = replace(need, backoffs={name: backoff(cooling_down=False)})
        nodes.append(node(name, **changes))
    assert chosen(place(need, nodes)).node_id == "z-better"
    assert chosen(place(need, nodes[::-1])).node_id == "z-better"


def test_equal_nodes_are_taken_in_the_order_of_their_names() -> None:
    assert chosen(place(NEED, [node("c"), node("a"), node("b")])).node_id == "a"


def test_unknown_memory_is_taken_before_memory_that_is_known_to_be_too_little() -> None:
    assert chosen(place(NEED, [node("a", free_memory=GIB), node("b", free_memory=None)])).node_id == "b"


def test_a_build_from_an_unreachable_source_is_the_last_choice_but_a_choice() -> None:
    need = replace(NEED, unconfirmed_on=frozenset({"a"}), to_install_on=frozenset({"a"}))
    assert chosen(place(need, [node("a"), node("b", in_flight=9)])).node_id == "b"
    assert chosen(place(need, [node("a")])).node_id == "a"


def test_a_score_names_what_it_compares() -> None:
    here = node(slots_per_model=4, in_flight=2, replicas=(held("1", "m"), held("2")), free_memory=8 * GIB + 1)
    [candidate] = place(NEED, [here]).candidates
    assert candidate.score is not None
    assert dict(zip(SCORE_NAMES, candidate.score, strict=True)) == {
        "failed_here": 0,
        "capacity_uncertain": 0,
        "not_idle": 1,
        "in_flight": 2,
        "same_model": 1,
        "replicas": 2,
        "weights_missing": 1,
        "free_mib_negated": -8192,
    }


def test_nodes_that_were_not_needed_for_the_decision_are_explained_when_somebody_reads_it() -> None:
    nodes = [node("idle"), node("busy", in_flight=3), node("full", free_memory=0, in_flight=4)]
    decision = place(NEED, nodes)
    assert list(decision.verdicts[1:]) == [None, None], "the first group had a node that fits"
    assert [candidate.verdict for candidate in decision.candidates] == [CHOSEN, POSSIBLE, RULED_OUT]


@pytest.mark.parametrize(
    ("limit", "slots", "surge_on", "expected"),
    [
        pytest.param(1, [], None, 0, id="the-first-slot-of-an-empty-node"),
        pytest.param(3, [0, 2], None, 1, id="the-lowest-free-slot"),
        pytest.param(2, [0, 1], None, None, id="no-slot-at-the-limit"),
        pytest.param(2, [0, 1], "a", 2, id="one-more-beside-the-replica-that-it-replaces"),
        pytest.param(2, [0, 1], "b", None, id="not-when-that-runs-on-another-node"),
        pytest.param(1, [0, 3], "a", None, id="a-lowered-limit-counts-replicas-and-not-slot-numbers"),
        pytest.param(2, [5], None, 0, id="a-replica-in-a-slot-beyond-the-limit-counts-as-one"),
        pytest.param(0, [], None, None, id="a-limit-of-zero-has-no-slot"),
    ],
)
def test_free_slot(limit: int, slots: Sequence[int], surge_on: str | None, expected: int | None) -> None:
    here = node(slots_per_model=limit, replicas=tuple(held(str(slot), "m", slot=slot) for slot in slots))
    assert free_slot(replace(NEED, surge_on=surge_on), here) == expected


def test_slots_of_other_models_are_not_counted() -> None:
    assert free_slot(NEED, node(replicas=(held("1", "x"), held("2", "y")))) == 0


def test_a_placement_says_what_is_reserved() -> None:
    need = replace(NEED, measured_bytes={"cpu": 2 * GIB})
    assert place(need, [node()]).outcome == Placed(node_id="a", slot=0, memory_bytes=2 * GIB, disk_bytes=5 * GIB)


# Disk pressure


NEARLY_FULL = "its disk has 512.0 MiB free, less than the 1.0 GiB it should keep"
LOW = node(low_disk=NEARLY_FULL, free_disk=GIB // 2)
AT_HAND = replace(NEED, staged_on=frozenset({"a"}))


@pytest.mark.parametrize(
    ("need", "here", "reason"),
    [
        pytest.param(NEED, LOW, NEARLY_FULL, id="weights-must-be-written"),
        pytest.param(replace(NEED, weights_bytes=None), LOW, NEARLY_FULL, id="weights-of-unknown-size-as-well"),
        pytest.param(
            replace(AT_HAND, to_install_on=frozenset({"a"})), LOW, NEARLY_FULL, id="the-backend-must-be-installed"
        ),
        pytest.param(AT_HAND, LOW, None, id="all-files-are-there"),
        pytest.param(AT_HAND, replace(LOW, free_disk=None), None, id="all-files-are-there-and-the-disk-is-unknown"),
        pytest.param(AT_HAND, replace(LOW, free_disk=START_BYTES), None, id="just-enough-to-start-a-process"),
        pytest.param(replace(NEED, shared_directory=True), LOW, None, id="the-weights-are-in-a-shared-directory"),
        pytest.param(
            AT_HAND,
            replace(LOW, free_disk=START_BYTES - 1),
            f"{NEARLY_FULL}; starting a process needs 64.0 MiB",
            id="too-little-to-start-a-process",
        ),
        pytest.param(
            AT_HAND,
            replace(LOW, conditions=("its clock is off",)),
            "its clock is off",
            id="other-conditions-come-first",
        ),
    ],
)
def test_a_disk_below_its_headroom_takes_only_what_brings_no_files(
    need: Need, here: NodeCapacity, reason: str | None
) -> None:
    outcome = place(need, [here]).outcome
    assert outcome == Waiting(reason=f"no node can take it; a: {reason}") if reason else isinstance(outcome, Placed)


@pytest.mark.parametrize("kind", ["data_directory", "clock_skew", "ports_exhausted", "of-a-newer-worker"])
def test_a_node_with_a_condition_takes_nothing_and_one_with_disk_pressure_nothing_to_write(kind: str) -> None:
    full = Condition(kind=ConditionKind.DISK_PRESSURE, reason="its disk is full", remedy="")
    ill = Condition(kind=kind, reason="it is ill", remedy="")
    for conditions, reason, at_hand in (((full,), "its disk is full", Placed), ((full, ill), "it is ill", Waiting)):
        here = node_capacity(cluster_node(conditions=conditions))
        assert isinstance(place(replace(NEED, staged_on=frozenset({here.id})), [here]).outcome, at_hand)
        assert reason in waiting(place(NEED, [here])).reason


@pytest.mark.parametrize(
    "memory",
    [pytest.param(16 * GIB, id="beside-the-old-replica"), pytest.param(GIB, id="after-the-old-replica")],
)
def test_a_new_version_does_not_wait_for_a_disk_that_has_all_it_needs(memory: int) -> None:
    """The old replica serves there, so its weights are there; the upgrade has installed the new version before."""
    here = replace(LOW, free_memory=memory, replicas=(OLD_COPY,))
    successor = replace(AT_HAND, replaces="old", surge_on="a")
    decision: Decision | None = place(successor, [here])
    if decision is not None and isinstance(decision.outcome, Waiting):
        decision = place_instead(successor, [here], "old")
    assert decision is not None
    assert (chosen(decision).node_id, chosen(decision).slot) == ("a", 1)
    with_other_weights = replace(successor, staged_on=frozenset())
    assert waiting(place(with_other_weights, [here])).reason.endswith(NEARLY_FULL)
    assert place_instead(with_other_weights, [here], "old") is None


# Eviction


def idle(identity: str, model: str, gib: int = 4, **changes: Any) -> HeldReplica:
    return held(identity, model, memory_bytes=gib * GIB, **changes)


FULL: dict[str, Any] = {"free_memory": 2 * GIB}
"""Memory for NEED with 4 GiB more."""


@pytest.mark.parametrize(
    ("need", "nodes", "expected"),
    [
        pytest.param(NEED, [node(**FULL, replicas=(idle("1", "x"),))], ("a", ("1",)), id="an-idle-replica-is-evicted"),
        pytest.param(
            NEED,
            [
                node(
                    **FULL,
                    replicas=(
                        idle("young", "x", idle_ms=1_000),
                        idle("old", "y", idle_ms=90_000),
                        idle("busy", "z", in_flight=1, evictable=False, idle_ms=99_000),
                    ),
                )
            ],
            ("a", ("old",)),
            id="the-least-recently-used-one-goes",
        ),
        pytest.param(
            NEED,
            [node(**FULL, replicas=(idle("1", "x", 2, idle_ms=2), idle("2", "y", 2, idle_ms=1)))],
            ("a", ("1", "2")),
            id="as-many-as-are-needed-go",
        ),
        pytest.param(
            NEED,
            [
                node("two", **FULL, replicas=(idle("1", "x", 2, idle_ms=90_000), idle("2", "y", 2, idle_ms=80_000))),
                node("one", **FULL, replicas=(idle("3", "z", idle_ms=1_000),)),
            ],
            ("one", ("3",)),
            id="the-node-with-the-fewest-evictions",
        ),
        pytest.param(
            NEED,
            [
                node("a", **FULL, replicas=(idle("1", "x", idle_ms=1_000),)),
                node("b", **FULL, replicas=(idle("2", "y", idle_ms=9_000),)),
            ],
            ("b", ("2",)),
            id="among-equals-the-node-that-was-idle-longest",
        ),
        pytest.param(
            NEED,
            [node("b", **FULL, replicas=(idle("1", "x"),)), node("a", **FULL, replicas=(idle("2", "y"),))],
            ("a", ("2",)),
            id="and-then-by-name",
        ),
        pytest.param(
            NEED,
            [node(**FULL, replicas=(held("1", "x", memory_bytes=None), idle("2", "y")))],
            ("a", ("2",)),
            id="a-replica-of-unknown-size-is-kept",
        ),
        pytest.param(
            NEED,
            [node("full", **FULL, replicas=(idle("1", "x"),)), node("unknown", free_memory=None)],
            ("unknown", ()),
            id="nothing-is-evicted-while-a-node-may-have-capacity",
        ),
        pytest.param(
            NEED,
            [node("full", **FULL, replicas=(idle("1", "x"),)), node("busy", in_flight=9)],
            ("busy", ()),
            id="nothing-is-evicted-for-a-better-score",
        ),
        pytest.param(
            NEED, [node(**FULL, replicas=(idle("1", "x", 1),))], None, id="nothing-is-evicted-when-that-is-not-enough"
        ),
        pytest.param(
            NEED,
            [node(free_memory=16 * GIB, free_disk=0, replicas=(idle("1", "x"),))],
            None,
            id="an-eviction-frees-no-disk",
        ),
        pytest.param(
            NEED,
            [node(**FULL, replicas=(idle("1", "m"), idle("2", "x")))],
            None,
            id="an-eviction-frees-no-slot-of-the-same-model",
        ),
        pytest.param(
            replace(NEED, groups=BIG),
            [node(replicas=(idle("rival", "x", groups=BIG),))],
            ("a", ("rival",)),
            id="an-idle-model-of-the-same-group-is-evicted",
        ),
        pytest.param(
            replace(NEED, groups=BIG),
            [node(free_memory=GIB, replicas=(idle("rival", "x", 1, groups=BIG), idle("2", "y", 4)))],
            ("a", ("rival", "2")),
            id="and-others-when-its-memory-is-not-enough",
        ),
        pytest.param(
            replace(NEED, groups=BIG),
            [node(replicas=(idle("1", "x", groups=BIG), idle("2", "y", groups=BIG, evictable=False)))],
            None,
            id="all-models-of-the-group-must-be-evictable",
        ),
        pytest.param(
            replace(NEED, groups=BIG),
            [node(slots_per_model=2, replicas=(idle("1", "m", groups=BIG),))],
            ("a", ()),
            id="a-model-shares-its-groups-with-itself",
        ),
        pytest.param(
            replace(NEED, groups=BIG, weights_bytes=None),
            [node(replicas=(idle("rival", "x", groups=BIG),))],
            ("a", ("rival",)),
            id="a-need-of-unknown-size-evicts-its-group-alone",
        ),
        pytest.param(
            replace(NEED, groups=BIG),
            [node(free_memory=None, replicas=(idle("rival", "x", groups=BIG), idle("2", "y")))],
            ("a", ("rival",)),
            id="so-does-a-need-on-a-node-of-unknown-memory",
        ),
        pytest.param(
            replace(NEED, replaces="old", surge_on="a"),
            [node(free_memory=GIB, replicas=(replace(OLD_COPY, evictable=True),))],
            None,
            id="the-replica-that-is-replaced-is-never-evicted",
        ),
    ],
)
def test_what_is_evicted(
    need: Need, nodes: Sequence[NodeCapacity], expected: tuple[str, tuple[str, ...]] | None
) -> None:
    outcome = place(need, nodes).outcome
    assert (expected is None) == isinstance(outcome, Waiting)
    if isinstance(outcome, Placed):
        assert (outcome.node_id, outcome.evict) == expected


@pytest.mark.parametrize(
    ("spare", "evict"),
    [
        pytest.param(1, None, id="one-alone-may-go-and-two-are-needed"),
        pytest.param(2, ("1", "2"), id="both-may-go"),
    ],
)
def test_no_more_replicas_of_a_model_are_evicted_than_it_can_spare(spare: int, evict: tuple[str, ...] | None) -> None:
    """INV-26: each of them could go, but not both."""
    twins = tuple(held(name, "x", slot=slot, memory_bytes=2 * GIB, spare=spare) for slot, name in enumerate("12"))
    for need, free in ((NEED, 2 * GIB), (replace(NEED, groups=BIG), 16 * GIB)):
        here = tuple(replace(one, groups=need.groups) for one in twins)
        outcome = place(need, [node(free_memory=free, replicas=here)]).outcome
        assert (outcome.evict if isinstance(outcome, Placed) else None) == evict


# Replacing a replica


SUCCESSOR = replace(NEED, replaces="old", surge_on="a")


def test_a_successor_may_run_beside_the_replica_that_it_replaces() -> None:
    here = node(replicas=(held("1", "m"),))
    assert waiting(place(NEED, [here])).reason == f"no node can take it; a: {LIMIT_1}"
    assert chosen(place(replace(NEED, surge_on="a"), [here])).slot == 1


def test_a_successor_on_another_node_keeps_to_the_limit_there() -> None:
    leaving = node("a", status=NodeStatus.DRAINING, replicas=(held("1", "m"),))
    full = node("b", replicas=(held("2", "m"),))
    assert f"b: {LIMIT_1}" in waiting(place(replace(NEED, surge_on="a"), [leaving, full])).reason


@pytest.mark.parametrize(
    ("nodes", "need", "evict"),
    [
        pytest.param([node(free_memory=GIB, replicas=(OLD_COPY,))], SUCCESSOR, (), id="a-gpu-for-one-model"),
        pytest.param(
            [node(free_memory=GIB, replicas=(replace(OLD_COPY, memory_bytes=None),))],
            SUCCESSOR,
            (),
            id="an-old-replica-of-unknown-size-counts-as-much-as-the-new-one",
        ),
        pytest.param(
            [node(free_memory=GIB, replicas=(OLD_COPY, held("idle")))],
            replace(SUCCESSOR, weights_bytes=6 * GIB),
            ("idle",),
            id="idle-replicas-of-other-models-may-go-as-well",
        ),
        pytest.param([node(free_memory=GIB)], SUCCESSOR, None, id="the-old-replica-is-gone"),
        pytest.param(
            [node(free_memory=GIB, replicas=(OLD_COPY,))],
            replace(SUCCESSOR, weights_bytes=8 * GIB),
            None,
            id="the-memory-of-the-old-replica-is-not-enough",
        ),
        pytest.param(
            [node(free_memory=GIB, replicas=(OLD_COPY,), status=NodeStatus.DRAINING)],
            SUCCESSOR,
            None,
            id="its-node-is-draining",
        ),
        pytest.param(
            [node(free_memory=GIB, replicas=(OLD_COPY,))],
            replace(SUCCESSOR, only_node="b"),
            None,
            id="another-node-was-requested",
        ),
        pytest.param(
            [node(free_memory=GIB, replicas=(OLD_COPY,))],
            replace(SUCCESSOR, only_node="a"),
            (),
            id="its-own-node-was-requested",
        ),
    ],
)
def test_where_memory_does_not_hold_both_the_old_replica_is_stopped_first(
    nodes: list[NodeCapacity], need: Need, evict: tuple[str, ...] | None
) -> None:
    assert isinstance(place(need, nodes).outcome, Waiting)
    decision = place_instead(need, nodes, "old")
    if evict is None:
        assert decision is None
        return
    assert decision is not None
    assert decision.need.instead_of == "old"
    assert (chosen(decision).node_id, chosen(decision).slot, chosen(decision).evict) == ("a", 1, evict)


# Failed loads and deleted backends


@pytest.mark.parametrize(
    ("backoffs", "nodes", "expected"),
    [
        pytest.param({"a": backoff()}, [node("a"), node("b", in_flight=9)], "b", id="another-node-is-tried-first"),
        pytest.param(
            {"a": backoff(cooling_down=False)},
            [node("a"), node("b", in_flight=9)],
            "b",
            id="also-when-the-cool-down-is-over",
        ),
        pytest.param(
            {"a": backoff(cooling_down=False)},
            [node("a"), node("b", free_memory=GIB, replicas=(held("1", memory_bytes=15 * GIB),))],
            "a",
            id="after-one-failure-the-node-comes-before-an-eviction",
        ),
        pytest.param(
            {"a": backoff(2, cooling_down=False)},
            [node("a"), node("b", free_memory=GIB, replicas=(held("1", memory_bytes=15 * GIB),))],
            "b",
            id="after-two-failures-an-eviction-comes-first",
        ),
        pytest.param(
            {"a": backoff(2)},
            [node("a"), node("b", free_memory=GIB, replicas=(held("1", memory_bytes=15 * GIB),))],
            "b",
            id="also-during-the-cool-down",
        ),
        pytest.param(
            {"a": backoff()},
            [node("a"), node("b", free_memory=GIB, replicas=(held("1", memory_bytes=15 * GIB),))],
            None,
            id="during-the-cool-down-of-one-failure-nothing-is-evicted",
        ),
        pytest.param(
            {"a": backoff(5, cooling_down=False)},
            [node("a"), node("b", free_memory=0)],
            "a",
            id="it-is-the-last-resort",
        ),
        pytest.param(
            {"a": backoff(1, cooling_down=False), "b": backoff(3, cooling_down=False)},
            [node("a", in_flight=9), node("b")],
            "a",
            id="fewer-failures-come-first",
        ),
        pytest.param({"a": backoff()}, [node("a")], None, id="it-waits-when-there-is-no-other-node"),
    ],
)
def test_nodes_where_the_load_failed(
    backoffs: Mapping[str, LoadBackoff], nodes: Sequence[NodeCapacity], expected: str | None
) -> None:
    outcome = place(replace(NEED, backoffs=backoffs), nodes).outcome
    assert (outcome.node_id if isinstance(outcome, Placed) else None) == expected


@pytest.mark.parametrize(
    ("backoffs", "until_ms"),
    [
        pytest.param(
            {"a": backoff(until_ms=9_000), "b": backoff(until_ms=5_000)}, 5_000, id="until-the-first-may-retry"
        ),
        pytest.param(
            {"a": backoff(until_ms=9_000), "c": backoff(until_ms=1)}, 9_000, id="only-nodes-that-could-take-it"
        ),
        pytest.param({"c": backoff(until_ms=1)}, None, id="no-time-when-capacity-is-what-it-waits-for"),
    ],
)
def test_how_long_a_load_that_failed_waits(backoffs: Mapping[str, LoadBackoff], until_ms: int | None) -> None:
    nodes = [node(name, free_memory=16 * GIB if name in backoffs else 0) for name in ("a", "b")]
    nodes.append(node("c", status=NodeStatus.OFFLINE))
    assert waiting(place(replace(NEED, backoffs=backoffs), nodes)).until_ms == until_ms


def test_a_model_that_fails_everywhere_is_not_tried_on_the_whole_fleet_at_once() -> None:
    failed = {f"n{number}": backoff(until_ms=1_000 * number) for number in range(1, 4)}
    fleet = [node(f"n{number}") for number in range(1, 9)]
    assert waiting(place(replace(NEED, backoffs=failed), fleet)) == Waiting(
        reason="loading failed on 3 nodes in a row; next attempt after 00:00:01 UTC", until_ms=1_000
    )
    only = place(replace(NEED, backoffs=failed, only_node="n8"), fleet)
    assert chosen(only).node_id == "n8", "a node that was requested is tried in any case"
    one_is_over = {**failed, "n1": backoff(cooling_down=False)}
    assert chosen(place(replace(NEED, backoffs=one_is_over), fleet)).node_id == "n4"


def test_a_load_goes_to_a_node_where_its_backend_was_not_deleted() -> None:
    decision = place(replace(NEED, deleted={"a": "ann deleted it"}), [node("a"), node("b", free_memory=8 * GIB)])
    assert chosen(decision).node_id == "b"
    assert {candidate.node_id: candidate.reason for candidate in decision.candidates}["a"] == "ann deleted it"


@pytest.mark.parametrize(
    ("others", "by_choice"),
    [
        pytest.param([], True, id="it-was-deleted-everywhere"),
        pytest.param([node("b", labels={}), node("c", status=NodeStatus.OFFLINE)], True, id="others-cannot-take-it"),
        pytest.param([node("b", free_memory=0)], False, id="another-node-may-have-capacity-later"),
    ],
)
def test_a_load_whose_backend_was_deleted_waits_for_an_install(others: list[NodeCapacity], by_choice: bool) -> None:
    need = replace(NEED, selector={"tier": "fast"}, deleted={"a": "ann deleted it"})
    outcome = waiting(place(need, [node("a"), *others]))
    assert outcome.by_choice is by_choice
    assert (outcome.reason == "ann deleted it") is by_choice


def test_of_several_deletions_the_most_common_reason_is_shown() -> None:
    need = replace(NEED, deleted={"a": "ann deleted it", "b": "bob deleted it", "c": "bob deleted it"})
    assert waiting(place(need, [node("a"), node("b"), node("c")])).reason == "bob deleted it"


# The reason in one sentence


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        pytest.param([], "the cluster has no nodes; add one with `corral worker --join`", id="an-empty-cluster"),
        pytest.param(
            [node("a", status=NodeStatus.OFFLINE)], "no node can take it; a: it is offline", id="one-node-is-named"
        ),
        pytest.param(
            [node(name, status=NodeStatus.OFFLINE) for name in "abc"],
            "no node can take it; 3 nodes: it is offline",
            id="several-nodes-are-counted",
        ),
        pytest.param(
            [
                node("a", status=NodeStatus.DRAINING),
                *(node(name, status=NodeStatus.OFFLINE) for name in "bc"),
            ],
            "no node can take it; 2 nodes: it is offline; a: it is draining",
            id="the-most-common-reason-comes-first",
        ),
        pytest.param(
            [
                node("a", status=NodeStatus.OFFLINE),
                node("b", status=NodeStatus.DRAINING),
                node("c", status=NodeStatus.PENDING),
                node("d", status=NodeStatus.UNHEALTHY),
            ],
            "no node can take it; a: it is offline; b: it is draining; c: it is pending",
            id="at-most-three-reasons-are-shown",
        ),
    ],
)
def test_why_no_node_can_take_it(nodes: list[NodeCapacity], reason: str) -> None:
    assert waiting(place(NEED, nodes)) == Waiting(reason=reason)


@pytest.mark.parametrize(
    ("nodes", "most", "count", "reason"),
    [
        pytest.param([node("a"), node("b")], 2, 2, "", id="all-fit"),
        pytest.param([node("a"), node("b")], 5, 2, f"no node can take it; 2 nodes: {LIMIT_1}", id="slots-run-out"),
        pytest.param(
            [node("a", slots_per_model=9)],
            5,
            3,
            f"no node can take it; a: 5.0 GiB of memory needed, 870.4 MiB free; {PROTECTED}",
            id="memory-runs-out",
        ),
        pytest.param(
            [node("a", slots_per_model=9, free_disk=12 * GIB, free_memory=None)],
            5,
            2,
            "no node can take it; a: 5.0 GiB of disk space needed, 2.0 GiB free",
            id="the-disk-runs-out",
        ),
        pytest.param(
            [node("a", free_memory=0, replicas=(held("1", memory_bytes=8 * GIB),))],
            2,
            1,
            f"no node can take it; a: {LIMIT_1}",
            id="idle-replicas-of-other-models-are-evicted",
        ),
        pytest.param([node("a", slots_per_model=3, free_memory=None)], 3, 3, "", id="unknown-memory-limits-nothing"),
        pytest.param([], 1, 0, "the cluster has no nodes; add one with `corral worker --join`", id="an-empty-cluster"),
        pytest.param([node()], 0, 0, "", id="none-is-desired"),
        pytest.param([node()], -1, 0, "", id="more-run-than-are-desired"),
    ],
)
def test_how_many_more_fit(nodes: list[NodeCapacity], most: int, count: int, reason: str) -> None:
    assert count_placements(NEED, nodes, most) == (count, reason)


# What must hold for any fleet


def optional_gib(most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, most).map(lambda count: count * GIB)


@st.composite
def fleets(draw: st.DrawFn) -> list[NodeCapacity]:
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
            node(
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


@given(needs, fleets())
def test_any_decision_is_sound(need: Need, nodes: list[NodeCapacity]) -> None:
    decision = place(need, nodes)
    assert len(decision.candidates) == len(nodes)
    assert all(candidate.reason for candidate in decision.candidates if candidate.verdict is RULED_OUT)
    if isinstance(decision.outcome, Waiting):
        assert decision.outcome.reason
        assert all(candidate.verdict is RULED_OUT for candidate in decision.candidates)
        return
    placed = decision.outcome
    [here] = [one for one in nodes if one.id == placed.node_id]
    victims = [replica for replica in here.replicas if replica.id in placed.evict]
    stay = [replica for replica in here.replicas if replica.id not in placed.evict]
    assert here.status is NodeStatus.HEALTHY
    assert len(victims) == len(placed.evict)
    assert all(victim.evictable and victim.in_flight == 0 for victim in victims)
    assert placed.slot not in {replica.slot for replica in here.replicas if replica.model == "m"}
    assert not any(need.groups & replica.groups for replica in stay if replica.model != "m")
    if here.free_memory is not None and placed.memory_bytes is not None:
        assert placed.memory_bytes <= here.free_memory + sum(victim.memory_bytes or 0 for victim in victims)
    if here.free_disk is not None:
        assert placed.disk_bytes <= here.free_disk


@given(needs, fleets())
def test_the_order_in_which_nodes_are_listed_does_not_matter(need: Need, nodes: list[NodeCapacity]) -> None:
    outcome = place(need, nodes).outcome
    assert isinstance(outcome, Waiting) or place(need, nodes[::-1]).outcome == outcome


@given(needs, fleets())
def test_nothing_is_evicted_while_a_node_can_take_it_as_it_is(need: Need, nodes: list[NodeCapacity]) -> None:
    decision = place(need, nodes)
    if isinstance(decision.outcome, Placed) and decision.outcome.evict:
        assert POSSIBLE not in {candidate.verdict for candidate in decision.candidates}


@given(needs, fleets(), fleets())
def test_another_node_never_makes_a_placement_impossible(
    need: Need, nodes: list[NodeCapacity], more: list[NodeCapacity]
) -> None:
    others = [replace(one, id=f"more {one.id}", name=f"more {one.name}") for one in more]
    if isinstance(place(need, nodes).outcome, Placed):
        assert isinstance(place(need, [*nodes, *others]).outcome, Placed)


@given(needs, fleets(), st.integers(0, 6))
def test_a_count_of_placements_is_complete_or_has_a_reason(need: Need, nodes: list[NodeCapacity], most: int) -> None:
    count, reason = count_placements(need, nodes, most)
    assert 0 <= count <= most
    assert (count == most) == (reason == "")
    assert (count > 0) == (most > 0 and isinstance(place(need, nodes).outcome, Placed))


@pytest.mark.parametrize(
    ("need", "free", "expected"),
    [
        pytest.param({"weights_bytes": GIB}, 20 * GIB, estimate_bytes(GIB), id="an-inelastic-engine-needs-no-more"),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.SLOTS}, 20 * GIB, estimate_bytes(GIB) + 2 * GIB,
            id="a-configured-context-gets-as-much-for-slots",
        ),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.SLOTS, "measured_bytes": {"cpu": 9 * GIB},
             "measured_slots": {"cpu": 32}},
            estimate_bytes(GIB) + GIB // 4, estimate_bytes(GIB) + (9 * GIB - estimate_bytes(GIB)) // 32
            + (GIB // 4 - (9 * GIB - estimate_bytes(GIB)) // 32) // 2,
            id="of-many-slots-elsewhere-one-is-needed-here",
        ),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.SLOTS, "measured_bytes": {"cpu": 9 * GIB},
             "measured_slots": {"cpu": 1}},
            9 * GIB, 9 * GIB, id="one-slot-with-a-large-context-needs-what-was-measured",
        ),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.SLOTS, "measured_bytes": {"cpu": GIB}}, GIB, GIB,
            id="less-than-the-estimate-where-less-was-measured",
        ),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.CONTEXT}, 20 * GIB, estimate_bytes(GIB) + 2 * GIB,
            id="a-small-model-gets-two-gib-for-context",
        ),
        pytest.param(
            {"weights_bytes": 3 * GIB, "elastic": Elastic.CONTEXT}, 20 * GIB, estimate_bytes(3 * GIB) + 3 * GIB,
            id="a-larger-one-as-much-as-its-weights",
        ),
        pytest.param(
            {"weights_bytes": 40 * GIB, "elastic": Elastic.CONTEXT}, 80 * GIB, estimate_bytes(40 * GIB) + 4 * GIB,
            id="and-never-more-than-four-gib",
        ),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.CONTEXT}, estimate_bytes(GIB) + GIB,
            estimate_bytes(GIB) + GIB // 2, id="half-of-what-is-left-stays-free",
        ),
        pytest.param(
            {"weights_bytes": GIB, "elastic": Elastic.CONTEXT, "measured_bytes": {"cpu": 9 * GIB}},
            estimate_bytes(GIB), estimate_bytes(GIB), id="what-it-took-elsewhere-is-not-needed-here",
        ),
        pytest.param(
            {"weights_bytes": GIB, "measured_bytes": {"cpu": 9 * GIB}}, 20 * GIB, 9 * GIB,
            id="a-fixed-context-needs-what-was-measured",
        ),
        pytest.param({"elastic": Elastic.CONTEXT}, 20 * GIB, None, id="weights-of-unknown-size"),
    ],
)  # fmt: skip
def test_memory_is_reserved_for_context(need: dict[str, Any], free: int, expected: int | None) -> None:
    node = NodeCapacity(
        id="n", name="n", status=NodeStatus.HEALTHY, labels={}, capability="default", device="cpu", slots_per_model=1,
        free_memory=free, free_disk=900 * GIB,
    )  # fmt: skip
    outcome = place(Need(model="m", **need), [node]).outcome
    assert isinstance(outcome, Placed)
    assert outcome.memory_bytes == expected
