"""What failed until its retries were exhausted is tried again: after a while, or when something has changed."""

from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_drift import DELETED, DONE, HAS_NEW, HAS_OLD, policy, spec_with, state
from corral.core.backends.drift import Correction, find_stuck, plan_corrections
from corral.core.backends.exhausted import exhausted_retry
from corral.core.backends.intents import Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import OnDrift
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.presence import Presence

RETRY = exhausted_retry(3600.0)
MINUTE, HOUR = 60_000, 3_600_000
GIB = 1 << 30
FULL = Condition(kind=ConditionKind.DISK_PRESSURE, reason="its disk is full", remedy="free some")


def dead(verb: Verb = Verb.INSTALL, **fields: Any) -> Intent:
    plain = replace(DONE, state=IntentState.DEAD_LETTERED, verb=verb, finished_at=0, free_disk_at_end=0)
    return replace(plain, **fields)


def corrections(
    node: NodeBackends, *, now_ms: int, on_drift: OnDrift | None = None, changed_ms: int = 0
) -> list[Correction]:
    policies = [policy(generation=1, on_drift=on_drift)] if on_drift is not None else []
    return plan_corrections(
        [node], policies, now_ms=now_ms, settle_ms=3000, exhausted_retry=RETRY, galleries_changed_ms=changed_ms
    )


@pytest.mark.parametrize(
    ("node", "now_ms", "changed_ms", "verbs"),
    [
        pytest.param(state(spec=dead()), MINUTE, 0, [], id="nothing-changed"),
        pytest.param(state(spec=dead()), HOUR, 0, [Verb.INSTALL], id="an-hour-passed"),
        pytest.param(state(spec=dead(), presence_since=1), 29_999, 1, [], id="too-soon-after-the-last-try"),
        pytest.param(state(spec=dead(), presence_since=1), 30_000, 0, [Verb.INSTALL], id="the-node-came-back"),
        pytest.param(state(spec=dead(epoch_at_end=1), epoch=2), 3000, 0, [Verb.INSTALL], id="it-registered-again"),
        pytest.param(state(spec=dead(epoch_at_end=2), epoch=2), 3000, 0, [], id="the-same-worker"),
        pytest.param(state(spec=dead()), MINUTE, 1, [Verb.INSTALL], id="a-gallery-changed"),
        pytest.param(
            state(spec=dead(), available_disk=GIB, total_disk=100 * GIB), MINUTE, 0, [Verb.INSTALL], id="disk-freed"
        ),
        pytest.param(
            state(spec=dead(), available_disk=GIB - 1, total_disk=100 * GIB), MINUTE, 0, [], id="disk-hardly-freed"
        ),
        pytest.param(
            state(spec=dead(), available_disk=GIB, total_disk=4000 * GIB),
            MINUTE,
            0,
            [Verb.INSTALL],
            id="room-for-a-backend-on-a-large-disk",
        ),
        pytest.param(
            state(spec=dead(), available_disk=GIB - 1, total_disk=4000 * GIB), MINUTE, 0, [], id="none-on-a-large-disk"
        ),
        pytest.param(
            state(spec=dead(), available_disk=GIB // 4, total_disk=25 * GIB),
            MINUTE,
            0,
            [Verb.INSTALL],
            id="a-hundredth-of-a-small-disk",
        ),
        pytest.param(state(spec=dead(free_disk_at_end=None), available_disk=GIB), MINUTE, 0, [], id="disk-unknown"),
        pytest.param(
            state(HAS_NEW, spec=replace(DELETED, state=IntentState.DEAD_LETTERED)),
            HOUR,
            0,
            [Verb.DELETE],
            id="a-delete-too",
        ),
        pytest.param(
            state(HAS_OLD, spec=dead(Verb.UPGRADE, final=True)),
            9 * HOUR,
            0,
            [],
            id="what-serves-is-not-interrupted-every-hour",
        ),
        pytest.param(state(HAS_OLD, spec=dead(Verb.UPGRADE)), HOUR, 0, [Verb.UPGRADE], id="an-upgrade-every-hour"),
        pytest.param(
            state(HAS_OLD, spec=dead(Verb.UPGRADE), presence_since=1),
            HOUR,
            0,
            [Verb.UPGRADE],
            id="an-upgrade-on-a-change",
        ),
        pytest.param(
            state(HAS_OLD, spec=dead(Verb.UPGRADE), changed_at=HOUR - 1, conditions=(FULL,)),
            HOUR - 1,
            0,
            [],
            id="a-refused-message-or-a-condition-that-begins-is-no-change-that-may-help",
        ),
        pytest.param(
            state(HAS_OLD, spec=dead(Verb.UPGRADE, conditions_at_end=frozenset({FULL.kind})), conditions=(FULL,)),
            HOUR - 1,
            0,
            [],
            id="a-condition-that-lasts",
        ),
        pytest.param(
            state(HAS_OLD, spec=dead(Verb.UPGRADE, conditions_at_end=frozenset({FULL.kind}))),
            MINUTE,
            0,
            [Verb.UPGRADE],
            id="a-condition-that-ended",
        ),
        pytest.param(state(spec=dead(Verb.UPGRADE)), 3000, 0, [Verb.INSTALL], id="a-wiped-disk-after-a-failed-upgrade"),
    ],
)
def test_dead_letters(node: NodeBackends, now_ms: int, changed_ms: int, verbs: list[Verb]) -> None:
    assert [heal.verb for heal in corrections(node, now_ms=now_ms, changed_ms=changed_ms)] == verbs


def test_only_drift_that_is_to_be_corrected_is_retried() -> None:
    wiped = state(spec=dead(generation=7))
    assert corrections(wiped, now_ms=HOUR, on_drift=OnDrift.CORRECT)
    assert not corrections(wiped, now_ms=HOUR, on_drift=OnDrift.REPORT)


def test_after_a_change_in_a_gallery_the_name_is_looked_up_again() -> None:
    (same,) = corrections(state(spec=dead()), now_ms=HOUR)
    assert (same.resolved, same.failed_before) == (True, True)
    (anew,) = corrections(state(spec=dead()), now_ms=HOUR, changed_ms=1)
    assert not anew.resolved
    exact = dead(spec=replace(DONE.spec, pinned=True))
    (kept,) = corrections(state(spec=exact), now_ms=HOUR, changed_ms=1)
    assert kept.resolved, "what a person went back to stays that"


def test_after_a_version_that_took_down_what_served_only_another_one_is_tried() -> None:
    def after(cause: int, *backends: ObservedBackend, **fields: Any) -> list[Correction]:
        failed = dead(Verb.UPGRADE, final=True, **fields)
        return corrections(state(*backends, spec=failed, presence_since=cause), now_ms=HOUR)

    (looked_up,) = after(1, HAS_OLD)
    assert (looked_up.verb, looked_up.resolved, looked_up.only_another_version) == (Verb.UPGRADE, False, True)
    assert after(0, HAS_OLD) == []
    assert after(1, HAS_OLD, spec=replace(DONE.spec, pinned=True)) == [], "a person named this very one"
    (wiped,) = after(1)
    assert (wiped.verb, wiped.only_another_version) == (Verb.INSTALL, False), "nothing serves there any more"


CANCELLED_UPGRADE = replace(
    DONE, verb=Verb.UPGRADE, state=IntentState.CANCELLED, generation=20, spec=spec_with(digest="sha256:newer")
)
CANCELLED_DELETE = replace(DELETED, state=IntentState.CANCELLED, generation=20)


def after_cancel(*backends: ObservedBackend, cancelled: Intent, before: Intent) -> NodeBackends:
    return replace(state(*backends, spec=cancelled), restored={"echo": before})


@pytest.mark.parametrize("cancelled", [CANCELLED_UPGRADE, CANCELLED_DELETE], ids=["upgrade", "delete"])
@pytest.mark.parametrize("before", [IntentState.SUCCEEDED, IntentState.SUPERSEDED])
def test_an_intent_that_a_cancelled_one_had_replaced_holds_again(cancelled: Intent, before: IntentState) -> None:
    held = replace(DONE, state=before)
    (heal,) = corrections(after_cancel(cancelled=cancelled, before=held), now_ms=HOUR)
    assert (heal.verb, heal.spec, heal.expected_generation) == (Verb.INSTALL, DONE.spec, 20)
    assert corrections(after_cancel(HAS_NEW, cancelled=cancelled, before=held), now_ms=HOUR) == []


def test_a_cancel_that_has_just_ended_settles_first() -> None:
    just = replace(CANCELLED_UPGRADE, finished_at=HOUR - 1)
    assert corrections(after_cancel(cancelled=just, before=DONE), now_ms=HOUR) == []


@pytest.mark.parametrize(
    ("changes", "presence", "looked_up"),
    [
        pytest.param({}, Presence.LIVE, True, id="it-failed-and-waits-for-its-next-try"),
        pytest.param({"attempts": 0}, Presence.LIVE, False, id="it-was-never-tried"),
        pytest.param({"state": IntentState.RUNNING}, Presence.LIVE, False, id="it-is-being-carried-out"),
        pytest.param({"verb": Verb.DELETE}, Presence.LIVE, False, id="a-delete-needs-no-version"),
        pytest.param({"verb": Verb.ROLLBACK}, Presence.LIVE, False, id="a-rollback-is-to-a-version-that-is-there"),
        pytest.param({"spec": replace(DONE.spec, pinned=True)}, Presence.LIVE, True, id="pinned"),
        pytest.param({"spec": spec_with(digest="")}, Presence.LIVE, False, id="it-has-no-digest"),
        pytest.param({"spec": spec_with(uris=())}, Presence.LIVE, False, id="only-the-worker-looks-it-up"),
        pytest.param({"state": IntentState.DEAD_LETTERED}, Presence.LIVE, False, id="its-retries-are-exhausted"),
        pytest.param(
            {"state": IntentState.DEAD_LETTERED, "spec": replace(DONE.spec, pinned=True)},
            Presence.LIVE,
            True,
            id="a-pinned-one-is-looked-up-for-the-reason",
        ),
        pytest.param({}, Presence.GONE, False, id="its-node-is-away"),
    ],
)
def test_live_intents_whose_version_may_no_longer_exist(
    changes: dict[str, Any], presence: Presence, looked_up: bool
) -> None:
    stuck = replace(DONE, **{"state": IntentState.PENDING, "attempts": 1, "finished_at": None, **changes})
    assert find_stuck([state(spec=stuck, presence=presence)]) == ([stuck] if looked_up else [])
