"""Presence: the table of transitions is whole, and neither signal alone makes a node flap."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.nodes.node import NodeStatus, classify_status
from corral.core.nodes.presence import (
    TRANSITIONS,
    Evidence,
    Limits,
    Presence,
    PresenceEvent,
    classify_evidence,
    next_presence,
)

LIMITS = Limits(suspect_after_s=30, offline_after_s=60, bus_failures=2)


def evidence(
    *,
    silence: float | None = 0.0,
    answered: bool = True,
    failures: int = 0,
    nobody: bool = False,
    on_bus: bool = True,
    listened: float = 1000.0,
    not_live: float = 0.0,
    others: bool = True,
) -> Evidence:
    return Evidence(
        heartbeat_silence_s=silence,
        listened_s=listened,
        expected_on_bus=on_bus,
        bus_answered=answered,
        bus_failures=failures,
        bus_no_responders=nobody,
        not_live_s=not_live,
        others_live=others,
    )


def test_every_state_has_an_answer_to_every_event() -> None:
    assert set(TRANSITIONS) == set(itertools.product(Presence, PresenceEvent))


@pytest.mark.parametrize("event", [event for event in PresenceEvent if event not in ("registered", "restarted")])
def test_a_node_that_has_left_returns_only_by_registering(event: PresenceEvent) -> None:
    assert next_presence(Presence.LEFT, event) is Presence.LEFT


@pytest.mark.parametrize("presence", list(Presence))
def test_a_new_process_has_to_prove_itself(presence: Presence) -> None:
    assert next_presence(presence, PresenceEvent.RESTARTED) is Presence.JOINING


def test_renewing_a_credential_does_not_disturb_a_live_node() -> None:
    assert next_presence(Presence.LIVE, PresenceEvent.REGISTERED) is Presence.LIVE


@pytest.mark.parametrize(
    ("given_evidence", "event"),
    [
        pytest.param(evidence(), PresenceEvent.PROVEN, id="a-fresh-beat-and-an-answer-prove-it"),
        pytest.param(evidence(failures=1), None, id="one-lost-round-trip-is-noise"),
        pytest.param(evidence(failures=2), PresenceEvent.ONE_PATH_SILENT, id="two-are-not"),
        pytest.param(evidence(silence=29.9), PresenceEvent.PROVEN, id="a-late-beat-is-still-fresh"),
        pytest.param(evidence(silence=30), PresenceEvent.ONE_PATH_SILENT, id="three-missed-beats-make-suspect"),
        pytest.param(
            evidence(silence=59, not_live=29), PresenceEvent.ONE_PATH_SILENT, id="within-the-offline-limit-only-suspect"
        ),
        pytest.param(evidence(silence=60, not_live=30), PresenceEvent.ONE_PATH_LOST, id="no-beats-for-the-limit"),
        pytest.param(
            evidence(silence=40, not_live=30), PresenceEvent.ONE_PATH_SILENT, id="the-bus-was-silent-before-the-beats"
        ),
        pytest.param(
            evidence(failures=2, not_live=59), PresenceEvent.ONE_PATH_SILENT, id="suspect-at-once-is-not-lost-sooner"
        ),
        pytest.param(evidence(failures=2, not_live=60), PresenceEvent.ONE_PATH_LOST, id="no-answers-for-the-limit"),
        pytest.param(
            evidence(failures=2, not_live=9000, others=False), PresenceEvent.ONE_PATH_SILENT, id="all-nodes-at-once"
        ),
        pytest.param(
            evidence(failures=2, not_live=9000, listened=59), PresenceEvent.ONE_PATH_SILENT, id="we-have-just-begun"
        ),
        pytest.param(evidence(failures=1, not_live=9000), None, id="an-answer-and-one-lost-round-trip-say-nothing"),
        pytest.param(
            evidence(silence=40, failures=2), PresenceEvent.ONE_PATH_SILENT, id="a-time-out-is-no-evidence-of-death"
        ),
        pytest.param(evidence(silence=40, failures=2, nobody=True), PresenceEvent.ALL_SILENT, id="nobody-listening-is"),
        pytest.param(evidence(silence=60, failures=2), PresenceEvent.ALL_SILENT, id="silence-everywhere-ends-it"),
        pytest.param(evidence(answered=False), None, id="not-seen-on-the-bus-yet"),
        pytest.param(evidence(silence=None, listened=5.0), None, id="never-beaten-proves-nothing"),
        pytest.param(evidence(on_bus=False, answered=False), PresenceEvent.PROVEN, id="agents-are-not-on-the-bus"),
        pytest.param(evidence(on_bus=False, silence=31), PresenceEvent.ALL_SILENT, id="an-agents-silence-is-all"),
    ],
)
def test_classify_evidence(given_evidence: Evidence, event: PresenceEvent | None) -> None:
    verdict = classify_evidence(given_evidence, LIMITS)
    assert (verdict.event if verdict else None) == event


@given(
    silence=st.floats(0, 500) | st.none(),
    failures=st.integers(0, 5),
    answered=st.booleans(),
    nobody=st.booleans(),
    presence=st.sampled_from(Presence),
)
def test_judging_the_same_evidence_twice_changes_nothing_the_second_time(
    silence: float | None, failures: int, answered: bool, nobody: bool, presence: Presence
) -> None:
    verdict = classify_evidence(evidence(silence=silence, failures=failures, answered=answered, nobody=nobody), LIMITS)
    if verdict is not None:
        once = next_presence(presence, verdict.event)
        assert next_presence(once, verdict.event) is once


@given(failures=st.integers(0, 5), nobody=st.booleans(), answered=st.booleans(), age=st.floats(0, 10_000))
def test_a_frontend_that_has_just_begun_to_listen_declares_nobody_gone(
    failures: int, nobody: bool, answered: bool, age: float
) -> None:
    listened = 5.0
    fresh = evidence(silence=min(age, listened), failures=failures, nobody=nobody, answered=answered, listened=listened)
    verdict = classify_evidence(fresh, LIMITS)
    assert verdict is None or verdict.event is not PresenceEvent.ALL_SILENT


@pytest.mark.parametrize("presence", list(Presence))
@pytest.mark.parametrize("draining", [False, True])
def test_nothing_but_an_approval_ends_pending(presence: Presence, draining: bool) -> None:
    assert classify_status(approved=False, draining=draining, presence=presence) is NodeStatus.PENDING


@pytest.mark.parametrize(
    ("presence", "draining", "status"),
    [
        (Presence.LIVE, False, NodeStatus.HEALTHY),
        (Presence.LIVE, True, NodeStatus.DRAINING),
        (Presence.JOINING, False, NodeStatus.UNHEALTHY),
        (Presence.SUSPECT, True, NodeStatus.UNHEALTHY),
        (Presence.GONE, True, NodeStatus.OFFLINE),
        (Presence.LEFT, False, NodeStatus.OFFLINE),
    ],
)
def test_status_of_an_approved_node(presence: Presence, draining: bool, status: NodeStatus) -> None:
    assert classify_status(approved=True, draining=draining, presence=presence) is status


def test_renewing_a_credential_does_not_bring_back_a_node_that_is_gone() -> None:
    """A worker that cannot reach the bus renews every few seconds, over the path that works."""
    assert next_presence(Presence.GONE, PresenceEvent.REGISTERED) is Presence.GONE


def test_a_node_that_has_just_fallen_silent_is_not_said_to_send_heartbeats() -> None:
    """A worker that was killed is missed on the bus long before its last heartbeat is old."""
    just = classify_evidence(evidence(silence=20, failures=2), Limits())
    later = classify_evidence(evidence(silence=9, failures=2, not_live=31), Limits())
    assert just is not None
    assert later is not None
    assert "heartbeats are received" not in just.reason
    assert later.reason.startswith("heartbeats are received, but it does not answer on the message bus")
