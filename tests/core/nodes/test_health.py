"""The health of one node, from a round trip on the bus and the age of its heartbeat."""

from dataclasses import replace

import pytest

from core.replicas.test_availability import node
from corral.core.nodes.health import (
    BusProbe,
    HealthRecord,
    any_live,
    health_record_of,
    judge_health,
    pick_changed,
    with_health_record,
)
from corral.core.nodes.node import NodeId, NodeType
from corral.core.nodes.presence import Limits, Presence

NOW = 1_000_000
LIMITS = Limits(suspect_after_s=30.0, offline_after_s=60.0, bus_failures=2)
LONG = 3600.0
LIVE = HealthRecord(
    node_id=NodeId("n"),
    node_type=NodeType.BACKEND,
    approved=True,
    epoch=3,
    reports_epoch=True,
    presence=Presence.LIVE,
    presence_reason="",
    presence_since=0,
    last_heartbeat=NOW - 1_000,
    bus_answered=True,
    bus_failures=0,
    bus_no_responders=False,
)
JOINING = replace(LIVE, presence=Presence.JOINING, bus_answered=False)
SILENT_SINCE = NOW - 45_000
ANSWER = BusProbe(NodeId("n"), answered=True, epoch=3)
TIMEOUT = BusProbe(NodeId("n"), answered=False)
NOBODY = BusProbe(NodeId("n"), answered=False, no_responders=True)


def judge(
    record: HealthRecord, probe: BusProbe | None, *, listened_s: float = LONG, others: bool = False
) -> HealthRecord:
    return judge_health(record, probe, now_ms=NOW, listened_s=listened_s, limits=LIMITS, others_live=others)


@pytest.mark.parametrize(
    ("record", "probe", "expected"),
    [
        pytest.param(LIVE, ANSWER, Presence.LIVE, id="a-live-node-that-answers-stays-live"),
        pytest.param(JOINING, ANSWER, Presence.LIVE, id="a-heartbeat-and-an-answer-make-a-node-live"),
        pytest.param(JOINING, None, Presence.JOINING, id="a-heartbeat-alone-does-not"),
        pytest.param(
            replace(JOINING, last_heartbeat=None), ANSWER, Presence.JOINING, id="an-answer-alone-does-not-either"
        ),
        pytest.param(LIVE, TIMEOUT, Presence.LIVE, id="one-lost-round-trip-is-noise"),
        pytest.param(replace(LIVE, bus_failures=1), TIMEOUT, Presence.SUSPECT, id="two-make-a-node-suspect"),
        pytest.param(
            replace(LIVE, last_heartbeat=SILENT_SINCE), ANSWER, Presence.SUSPECT, id="so-does-a-late-heartbeat"
        ),
        pytest.param(
            replace(LIVE, last_heartbeat=SILENT_SINCE, bus_failures=1),
            NOBODY,
            Presence.GONE,
            id="silence-on-both-paths-is-the-end",
        ),
        pytest.param(
            replace(LIVE, last_heartbeat=SILENT_SINCE, bus_failures=1),
            TIMEOUT,
            Presence.SUSPECT,
            id="a-time-out-is-weaker-than-no-responder",
        ),
        pytest.param(
            replace(LIVE, last_heartbeat=NOW - 60_000, bus_failures=1),
            TIMEOUT,
            Presence.GONE,
            id="until-the-offline-limit",
        ),
        pytest.param(
            replace(LIVE, presence=Presence.SUSPECT, bus_failures=2), ANSWER, Presence.LIVE, id="an-answer-restores-it"
        ),
        pytest.param(
            replace(LIVE, presence=Presence.GONE, last_heartbeat=SILENT_SINCE),
            None,
            Presence.GONE,
            id="an-offline-node-stays-offline",
        ),
        pytest.param(
            replace(LIVE, presence=Presence.GONE), ANSWER, Presence.LIVE, id="until-it-is-heard-on-both-paths"
        ),
        pytest.param(replace(LIVE, presence=Presence.LEFT), ANSWER, Presence.LEFT, id="a-node-that-left-must-register"),
        pytest.param(
            replace(JOINING, approved=False), ANSWER, Presence.JOINING, id="a-node-without-approval-is-never-live"
        ),
        pytest.param(
            replace(JOINING, approved=False, last_heartbeat=SILENT_SINCE), None, Presence.GONE, id="but-it-can-be-lost"
        ),
        pytest.param(
            replace(JOINING, node_type=NodeType.AGENT), None, Presence.LIVE, id="an-agent-needs-its-heartbeat-alone"
        ),
        pytest.param(
            replace(LIVE, node_type=NodeType.AGENT, last_heartbeat=SILENT_SINCE),
            None,
            Presence.GONE,
            id="and-is-lost-without-it",
        ),
    ],
)
def test_presence_after_a_round_trip(record: HealthRecord, probe: BusProbe | None, expected: Presence) -> None:
    after = judge(record, probe)
    assert after.presence is expected
    assert judge(after, None).presence is expected, "without another round trip nothing changes"


@pytest.mark.parametrize(
    ("others", "not_live_ms", "expected"),
    [
        pytest.param(True, 60_000, Presence.GONE, id="its-replicas-are-moved-after-the-offline-limit"),
        pytest.param(True, 59_000, Presence.SUSPECT, id="not-before"),
        pytest.param(False, 600_000, Presence.SUSPECT, id="nor-when-no-other-node-is-live"),
    ],
)
def test_a_node_that_is_silent_on_one_path(others: bool, not_live_ms: int, expected: Presence) -> None:
    since = NOW - not_live_ms
    record = replace(LIVE, presence=Presence.SUSPECT, presence_since=since, bus_failures=2)
    assert judge(record, TIMEOUT, others=others).presence is expected


@pytest.mark.parametrize(
    ("record", "probe", "listened_s"),
    [
        pytest.param(
            replace(LIVE, last_heartbeat=SILENT_SINCE),
            ANSWER,
            5.0,
            id="an-old-heartbeat-counts-only-after-we-have-listened",
        ),
        pytest.param(
            replace(LIVE, presence=Presence.GONE, presence_reason="r", last_heartbeat=SILENT_SINCE),
            TIMEOUT,
            LONG,
            id="still-silent-on-both",
        ),
    ],
)
def test_evidence_that_changes_no_presence(record: HealthRecord, probe: BusProbe, listened_s: float) -> None:
    after = judge(record, probe, listened_s=listened_s)
    assert (after.presence, after.presence_reason) == (record.presence, record.presence_reason)


@pytest.mark.parametrize(
    ("record", "probe", "expected"),
    [
        pytest.param(LIVE, ANSWER, True, id="the-registered-process-answered"),
        pytest.param(LIVE, replace(ANSWER, epoch=2), False, id="an-earlier-process-answered"),
        pytest.param(LIVE, replace(ANSWER, epoch=None), False, id="a-process-that-does-not-say-which-it-is"),
        pytest.param(
            replace(LIVE, reports_epoch=False),
            replace(ANSWER, epoch=None),
            True,
            id="a-localai-worker-reports-no-epoch",
        ),
        pytest.param(LIVE, TIMEOUT, False, id="nobody-answered"),
    ],
)
def test_whether_an_answer_counts(record: HealthRecord, probe: BusProbe, expected: bool) -> None:
    assert record.is_answered_by(probe) is expected


@pytest.mark.parametrize(
    ("before", "probe", "answered", "failures", "no_responders"),
    [
        pytest.param(LIVE, None, True, 0, False, id="nothing-was-tried"),
        pytest.param(LIVE, TIMEOUT, True, 1, False, id="a-failure-is-counted"),
        pytest.param(replace(LIVE, bus_failures=2), NOBODY, True, 2, True, id="up-to-the-limit"),
        pytest.param(
            replace(LIVE, bus_failures=2, bus_no_responders=True), ANSWER, True, 0, False, id="an-answer-resets"
        ),
        pytest.param(JOINING, ANSWER, True, 0, False, id="the-first-answer-is-stored"),
    ],
)
def test_round_trips_are_counted(
    before: HealthRecord, probe: BusProbe | None, answered: bool, failures: int, no_responders: bool
) -> None:
    after = judge(before, probe)
    assert (after.bus_answered, after.bus_failures, after.bus_no_responders) == (answered, failures, no_responders)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], False, id="no-node"),
        pytest.param([LIVE], True, id="a-live-node"),
        pytest.param([JOINING], False, id="a-joining-node"),
        pytest.param([replace(LIVE, node_type=NodeType.AGENT)], False, id="an-agent-can-take-no-replicas"),
    ],
)
def test_whether_any_node_is_live(records: list[HealthRecord], expected: bool) -> None:
    assert any_live(records) is expected


def test_only_nodes_whose_record_changes_are_stored() -> None:
    fine, lost = LIVE, replace(LIVE, node_id=NodeId("lost"), bus_failures=1)
    probes = {NodeId("n"): ANSWER, NodeId("lost"): replace(TIMEOUT, node_id=NodeId("lost"))}
    assert pick_changed([fine, lost], probes, now_ms=NOW, listened_s=LONG, limits=LIMITS) == ["lost"]


def test_a_record_is_the_part_of_a_node_that_health_changes() -> None:
    here = node(presence=Presence.SUSPECT, presence_reason="late", bus_failures=2, bus_no_responders=True)
    record = health_record_of(here)
    assert with_health_record(node(), record) == here
    assert record.reports_epoch
    assert not health_record_of(node(instance=None)).reports_epoch
