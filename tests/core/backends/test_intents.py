"""What becomes of an intent after each kind of outcome, and what counts as done."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.backends.build import BuildRef
from corral.core.backends.intents import (
    AttemptCancelled,
    AttemptConfirmed,
    AttemptOutcome,
    AttemptRejected,
    AttemptUnconfirmed,
    AttemptUndelivered,
    BackendSpec,
    Intent,
    IntentState,
    NextStep,
    RetryLimits,
    Verb,
    find_missing,
    plan_next,
    with_last_error,
)
from corral.core.backends.operations import NodeProgressStatus, status_after
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend

LIMITS = RetryLimits(attempts=10, base_s=30, cap_s=900)
S = IntentState


def intent(**fields: Any) -> Intent:
    plain = Intent(
        id="i",
        node_id=NodeId("n"),
        backend="echo",
        verb=Verb.INSTALL,
        generation=7,
        operation_id="o",
        spec=BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest="sha256:new")),
        state=S.RUNNING,
        newest=True,
        attempts=3,
        due_at=0,
        last_error="",
        cancel_requested=False,
        claim_token="t",
        fence=1,
        finished_at=None,
    )
    return replace(plain, **fields)


@pytest.mark.parametrize(
    ("outcome", "attempts", "expected", "shown"),
    [
        pytest.param(
            AttemptConfirmed("d"), 3, NextStep(state=S.SUCCEEDED, attempts=3, digest="d"), "success", id="confirmed"
        ),
        pytest.param(
            AttemptUnconfirmed("slow", 900),
            3,
            NextStep(state=S.UNCONFIRMED, attempts=3, due_in_s=900, error="slow"),
            "running_on_worker",
            id="a-time-out-spends-no-attempt-and-is-due-after-the-time-out",
        ),
        pytest.param(
            AttemptUndelivered("offline", 2, no_responder=True),
            3,
            NextStep(state=S.PENDING, attempts=3, due_in_s=2, error="offline", node_unhealthy=True),
            "queued",
            id="an-offline-node-spends-no-attempt-and-makes-the-node-unhealthy",
        ),
        pytest.param(
            AttemptUndelivered("no bus", 2),
            0,
            NextStep(state=S.PENDING, attempts=0, due_in_s=2, error="no bus"),
            "queued",
            id="our-own-bus-connection-says-nothing-about-the-node",
        ),
        pytest.param(
            AttemptRejected("disk full"),
            0,
            NextStep(state=S.PENDING, attempts=1, due_in_s=30, error="disk full", failed=True),
            "error",
            id="a-definite-failure-spends-an-attempt-and-backs-off",
        ),
        pytest.param(
            AttemptRejected("old", outdated=True),
            0,
            NextStep(state=S.PENDING, attempts=1, due_in_s=30, error="old", failed=True, higher_generation=True),
            "error",
            id="an-intent-that-the-worker-considers-outdated-gets-a-higher-generation",
        ),
        pytest.param(
            AttemptRejected("disk full"),
            9,
            NextStep(state=S.DEAD_LETTERED, attempts=10, error="disk full", failed=True),
            "error",
            id="the-tenth-failure-is-the-last",
        ),
        pytest.param(
            AttemptRejected("does not start", final=True),
            0,
            NextStep(state=S.DEAD_LETTERED, attempts=1, error="does not start", failed=True, final=True),
            "error",
            id="a-version-that-took-the-old-one-down-in-vain-is-not-tried-again",
        ),
        pytest.param(
            AttemptCancelled("cancelled"),
            3,
            NextStep(state=S.CANCELLED, attempts=3, error="cancelled"),
            "cancelled",
            id="cancelled",
        ),
    ],
)
def test_plan_next(outcome: AttemptOutcome, attempts: int, expected: NextStep, shown: str) -> None:
    step = plan_next(intent(attempts=attempts), outcome, draw=1.0, limits=LIMITS)
    assert step == expected
    assert status_after(step) == NodeProgressStatus(shown)


@given(st.integers(1, 100), st.floats(0, 1))
def test_a_wait_is_never_nothing_and_never_longer_than_the_longest(attempt: int, draw: float) -> None:
    assert LIMITS.base_s / 2 <= LIMITS.backoff.delay_s(attempt, draw) <= LIMITS.cap_s


NEW, OLD = "sha256:new", "sha256:old"


@pytest.mark.parametrize(
    ("fields", "found", "answered", "done"),
    [
        pytest.param({}, {"digest": NEW}, False, True, id="presence-of-the-digest-proves-an-install"),
        pytest.param({}, {"digest": OLD}, False, False, id="another-digest-does-not"),
        pytest.param({}, {"digest": OLD}, True, False, id="the-workers-reply-does-not-outweigh-its-report"),
        pytest.param({}, None, True, False, id="what-is-not-listed-is-not-installed"),
        pytest.param({}, {}, False, True, id="a-localai-worker-without-digests-lists-it"),
        pytest.param({"verb": Verb.UPGRADE}, {}, False, False, id="presence-does-not-prove-an-upgrade"),
        pytest.param({"verb": Verb.UPGRADE}, {}, True, True, id="with-the-workers-reply-it-does"),
        pytest.param({"verb": Verb.UPGRADE}, {"digest": NEW}, False, True, id="the-desired-digest-proves-an-upgrade"),
        pytest.param(
            {"verb": Verb.UPGRADE, "spec": BackendSpec(reference="echo", build=BuildRef(name="cpu-echo"))},
            {"digest": OLD, "generation": 7},
            False,
            True,
            id="so-does-the-generation",
        ),
        pytest.param(
            {"spec": BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest=NEW), force=True)},
            {"digest": NEW, "generation": 6},
            False,
            False,
            id="presence-does-not-prove-a-reinstall",
        ),
        pytest.param({"verb": Verb.DELETE}, None, False, False, id="absence-alone-does-not-prove-a-delete"),
        pytest.param({"verb": Verb.DELETE}, None, True, True, id="with-the-workers-reply-it-does-delete"),
        pytest.param({"verb": Verb.DELETE}, {"digest": NEW}, True, False, id="what-is-still-there-is-not-deleted"),
    ],
)
def test_what_counts_as_carried_out(
    fields: dict[str, Any], found: dict[str, Any] | None, answered: bool, done: bool
) -> None:
    backends = (
        []
        if found is None
        else [
            ObservedBackend(name="cpu-echo", **found),
            ObservedBackend(name="echo", is_meta=True, concrete="cpu-echo"),
        ]
    )
    assert (find_missing(intent(**fields), backends, answered=answered) is None) == done


@pytest.mark.parametrize(
    ("verb", "ensures_presence", "changes_version", "is_undone_by_cancel"),
    [
        (Verb.INSTALL, True, False, False),
        (Verb.UPGRADE, True, True, True),
        (Verb.ROLLBACK, True, True, True),
        (Verb.PIN, True, True, True),
        (Verb.FOLLOW, True, False, False),
        (Verb.DELETE, False, False, True),
    ],
)
def test_verbs(verb: Verb, ensures_presence: bool, changes_version: bool, is_undone_by_cancel: bool) -> None:
    assert (verb.ensures_presence, verb.changes_version) == (ensures_presence, changes_version)
    assert verb.is_undone_by_cancel is is_undone_by_cancel


def test_what_only_the_last_report_shows_is_kept_with_the_step() -> None:
    step = plan_next(intent(), AttemptConfirmed("sha256:found"), draw=1.0, limits=LIMITS)
    assert (step.digest, step.error, step.due_in_s, step.failed) == ("sha256:found", "", 0.0, False)


@pytest.mark.parametrize("attempts", [0, 8, 9, 20])
def test_a_final_failure_ends_it_whatever_attempts_are_left(attempts: int) -> None:
    outcome = AttemptRejected("does not start", outdated=True, final=True)
    step = plan_next(intent(attempts=attempts), outcome, draw=1.0, limits=LIMITS)
    assert (step.state, step.final, step.higher_generation) == (S.DEAD_LETTERED, True, False)


@pytest.mark.parametrize(
    ("state", "live"),
    [
        (S.PENDING, True),
        (S.RUNNING, True),
        (S.UNCONFIRMED, True),
        (S.SUCCEEDED, False),
        (S.SUPERSEDED, False),
        (S.CANCELLED, False),
        (S.DEAD_LETTERED, False),
    ],
)
def test_live_states(state: IntentState, live: bool) -> None:
    assert state.live is live


@pytest.mark.parametrize(
    ("spec", "exact"),
    [
        pytest.param({}, False, id="a-gallery-entry"),
        pytest.param({"build": BuildRef(digest=NEW)}, False, id="a-digest-that-was-looked-up"),
        pytest.param({"uri": "quay.io/a/b:latest"}, False, id="a-tag"),
        pytest.param({"uri": "quay.io/a/b@sha256:" + "a" * 64}, True, id="a-person-wrote-the-digest"),
        pytest.param({"pinned": True}, True, id="a-pin-prescribes-it"),
    ],
)
def test_whether_a_person_named_the_version(spec: dict[str, Any], exact: bool) -> None:
    assert BackendSpec(reference="echo", **spec).is_exact is exact


@pytest.mark.parametrize(
    ("attempt", "draw", "delay_s"),
    [
        pytest.param(1, 1.0, 30, id="the-first-step"),
        pytest.param(1, 0.0, 15, id="half-of-it-is-jitter"),
        pytest.param(2, 1.0, 60, id="then-twice-as-long"),
        pytest.param(5, 1.0, 480, id="and-so-on"),
        pytest.param(6, 1.0, 900, id="up-to-the-cap"),
        pytest.param(6, 0.5, 675, id="with-jitter"),
        pytest.param(1000, 1.0, 900, id="without-overflow"),
    ],
)
def test_retry_delay(attempt: int, draw: float, delay_s: float) -> None:
    assert LIMITS.backoff.delay_s(attempt, draw) == delay_s


@pytest.mark.parametrize(
    ("attempts", "last_error", "expected"),
    [
        pytest.param(0, "", "cancelled", id="never-attempted"),
        pytest.param(0, "the node was offline", "cancelled", id="an-undelivered-attempt-is-no-failure"),
        pytest.param(1, "disk full", "cancelled; it had failed once: disk full", id="once"),
        pytest.param(4, "disk full", "cancelled; it had failed 4 times: disk full", id="several-times"),
        pytest.param(2, "", "cancelled", id="without-a-reason"),
    ],
)
def test_a_cancellation_keeps_the_last_failure(attempts: int, last_error: str, expected: str) -> None:
    given_intent = intent(attempts=attempts, last_error=last_error)
    assert with_last_error("cancelled", given_intent) == expected
    step = plan_next(given_intent, AttemptCancelled("cancelled"), draw=1.0, limits=LIMITS)
    assert step.error == expected


def test_a_worker_that_could_not_be_told_is_told_later() -> None:
    outcome = AttemptCancelled("cancelled", worker_unreached=True)
    step = plan_next(intent(), outcome, draw=1.0, limits=LIMITS)
    assert (step.state, step.stop_requested) == (S.CANCELLED, True)
    assert not plan_next(intent(), AttemptCancelled("cancelled"), draw=1.0, limits=LIMITS).stop_requested


OUTCOMES = st.one_of(
    st.builds(AttemptConfirmed, st.sampled_from(["", "d"])),
    st.builds(AttemptUnconfirmed, st.just("slow"), st.floats(0, 900)),
    st.builds(AttemptUndelivered, st.just("offline"), st.floats(0, 900), st.booleans()),
    st.builds(AttemptRejected, st.just("disk full"), st.booleans(), st.booleans()),
    st.builds(AttemptCancelled, st.just("cancelled"), st.booleans()),
)


@given(st.lists(OUTCOMES, max_size=30), st.floats(0, 1), st.integers(1, 12))
def test_any_sequence_of_outcomes_keeps_the_rules(outcomes: list[AttemptOutcome], draw: float, most: int) -> None:
    """Only a rejection spends an attempt, nobody tries more often than allowed, and what has ended says why."""
    limits = RetryLimits(attempts=most, base_s=1, cap_s=10)
    current = intent(attempts=0)
    for outcome in outcomes:
        step = plan_next(current, outcome, draw=draw, limits=limits)
        spent = step.attempts - current.attempts
        assert spent == (1 if isinstance(outcome, AttemptRejected) else 0)
        assert step.attempts <= most
        assert step.failed == isinstance(outcome, AttemptRejected)
        if step.state.live:
            assert step.due_in_s >= 0
            assert not step.final
        else:
            assert step.due_in_s == 0
            assert step.error or step.state is S.SUCCEEDED
            return
        current = replace(current, attempts=step.attempts, state=step.state, last_error=step.error)


@pytest.mark.parametrize(
    ("fields", "backends", "answered", "words"),
    [
        pytest.param({}, [], True, "cpu-echo is not installed", id="the-build-by-its-name"),
        pytest.param(
            {"spec": BackendSpec(reference="echo")}, [], True, "echo is not installed", id="or-by-the-intents-name"
        ),
        pytest.param(
            {},
            [ObservedBackend(name="cpu-echo", problem="its files are damaged")],
            True,
            "cpu-echo is not installed: its files are damaged",
            id="with-the-problem-that-the-node-reports",
        ),
        pytest.param(
            {},
            [ObservedBackend(name="cpu-echo", digest=NEW, problem="its start script is missing")],
            True,
            None,
            id="a-problem-of-a-complete-version-is-another-matter",
        ),
        pytest.param(
            {},
            [ObservedBackend(name="cpu-echo", digest=OLD)],
            True,
            "cpu-echo is at sha256:old instead of sha256:new",
            id="another-version",
        ),
        pytest.param(
            {"verb": Verb.DELETE},
            [ObservedBackend(name="cpu-echo", digest=NEW)],
            True,
            "cpu-echo is still installed",
            id="a-delete-that-did-nothing",
        ),
        pytest.param({"verb": Verb.DELETE}, [], False, "the worker has not confirmed the delete", id="no-answer"),
        pytest.param(
            {"verb": Verb.ROLLBACK},
            [ObservedBackend(name="cpu-echo")],
            False,
            "cpu-echo is installed, but the node's report does not confirm the rollback",
            id="no-proof",
        ),
        pytest.param(
            {"verb": Verb.ROLLBACK},
            [ObservedBackend(name="cpu-echo", digest=NEW)],
            False,
            None,
            id="the-digest-proves-a-rollback",
        ),
        pytest.param(
            {},
            [ObservedBackend(name="other", alias="echo", digest=NEW)],
            False,
            None,
            id="installed-under-another-name-with-the-alias",
        ),
    ],
)
def test_what_is_missing_in_words(
    fields: dict[str, Any], backends: list[ObservedBackend], answered: bool, words: str | None
) -> None:
    assert find_missing(intent(**fields), backends, answered=answered) == words


FOUND = {
    "new": ObservedBackend(name="cpu-echo", digest=NEW),
    "old": ObservedBackend(name="cpu-echo", digest=OLD),
    "applied": ObservedBackend(name="cpu-echo", digest=NEW, generation=7),
    "unknown": ObservedBackend(name="cpu-echo"),
}


@pytest.mark.parametrize(
    ("verb", "force", "found", "done_unanswered", "done_answered"),
    [
        (Verb.INSTALL, False, "nothing", False, False),
        (Verb.INSTALL, False, "new", True, True),
        (Verb.INSTALL, False, "old", False, False),
        (Verb.INSTALL, False, "applied", True, True),
        (Verb.INSTALL, False, "unknown", True, True),
        (Verb.INSTALL, True, "nothing", False, False),
        (Verb.INSTALL, True, "new", False, True),
        (Verb.INSTALL, True, "old", False, False),
        (Verb.INSTALL, True, "applied", True, True),
        (Verb.INSTALL, True, "unknown", False, True),
        (Verb.UPGRADE, False, "nothing", False, False),
        (Verb.UPGRADE, False, "new", True, True),
        (Verb.UPGRADE, False, "old", False, False),
        (Verb.UPGRADE, False, "applied", True, True),
        (Verb.UPGRADE, False, "unknown", False, True),
        (Verb.ROLLBACK, False, "nothing", False, False),
        (Verb.ROLLBACK, False, "new", True, True),
        (Verb.ROLLBACK, False, "old", False, False),
        (Verb.ROLLBACK, False, "applied", True, True),
        (Verb.ROLLBACK, False, "unknown", False, True),
        (Verb.DELETE, False, "nothing", False, True),
        (Verb.DELETE, False, "new", False, False),
        (Verb.DELETE, False, "old", False, False),
        (Verb.DELETE, False, "applied", False, False),
        (Verb.DELETE, False, "unknown", False, False),
    ],
)
def test_every_verb_against_every_report(
    verb: Verb, force: bool, found: str, done_unanswered: bool, done_answered: bool
) -> None:
    """Without a reply and with one."""
    given_intent = intent(verb=verb, spec=replace(intent().spec, force=force))
    backends = [FOUND[found]] if found in FOUND else []
    done = [find_missing(given_intent, backends, answered=answered) is None for answered in (False, True)]
    assert done == [done_unanswered, done_answered]


@pytest.mark.parametrize(
    ("limits", "attempts", "state", "due_in_s"),
    [
        pytest.param(RetryLimits(attempts=1), 0, S.DEAD_LETTERED, 0.0, id="one-attempt-and-no-retry"),
        pytest.param(RetryLimits(attempts=2, base_s=1), 0, S.PENDING, 1.0, id="one-retry"),
        pytest.param(RetryLimits(attempts=2, base_s=1), 1, S.DEAD_LETTERED, 0.0, id="and-no-second-one"),
        pytest.param(RetryLimits(attempts=9, base_s=1, cap_s=3), 4, S.PENDING, 3.0, id="delays-end-at-the-cap"),
        pytest.param(RetryLimits(attempts=2), 8, S.DEAD_LETTERED, 0.0, id="a-limit-that-was-lowered-meanwhile"),
    ],
)
def test_retry_limits(limits: RetryLimits, attempts: int, state: IntentState, due_in_s: float) -> None:
    step = plan_next(intent(attempts=attempts), AttemptRejected("disk full"), draw=1.0, limits=limits)
    assert (step.state, step.due_in_s, step.attempts) == (state, due_in_s, attempts + 1)


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (NextStep(state=S.SUCCEEDED, attempts=0), NodeProgressStatus.SUCCESS),
        (NextStep(state=S.CANCELLED, attempts=0), NodeProgressStatus.CANCELLED),
        (NextStep(state=S.SUPERSEDED, attempts=0), NodeProgressStatus.CANCELLED),
        (NextStep(state=S.DEAD_LETTERED, attempts=1), NodeProgressStatus.ERROR),
        (NextStep(state=S.UNCONFIRMED, attempts=0), NodeProgressStatus.RUNNING_ON_WORKER),
        (NextStep(state=S.RUNNING, attempts=0), NodeProgressStatus.DOWNLOADING),
        (NextStep(state=S.PENDING, attempts=1, failed=True), NodeProgressStatus.ERROR),
        (NextStep(state=S.PENDING, attempts=1), NodeProgressStatus.QUEUED),
    ],
)
def test_the_status_that_people_see(step: NextStep, status: NodeProgressStatus) -> None:
    assert status_after(step) is status


def test_a_report_of_other_backends_proves_nothing() -> None:
    others = [ObservedBackend(name="other", digest=NEW, generation=7), ObservedBackend(name="cuda-echo", digest=NEW)]
    assert find_missing(intent(), others, answered=True) == "cpu-echo is not installed"
    assert find_missing(intent(verb=Verb.DELETE), others, answered=True) is None


@given(st.floats(0, 1), st.integers(1, 40))
def test_delays_never_shrink_from_one_attempt_to_the_next(draw: float, attempt: int) -> None:
    now, later = (LIMITS.backoff.delay_s(number, draw) for number in (attempt, attempt + 1))
    assert later >= now


@pytest.mark.parametrize("attempts", [0, 3, 9])
@pytest.mark.parametrize(
    ("outcome", "due_in_s"),
    [
        pytest.param(AttemptUndelivered("offline", 2.0, no_responder=True), 2.0, id="the-node-is-offline"),
        pytest.param(AttemptUndelivered("the worker was restarted", 0.5), 0.5, id="the-worker-was-restarted"),
        pytest.param(AttemptUnconfirmed("no reply", 900.0), 900.0, id="no-reply-in-time"),
    ],
)
def test_what_is_not_the_intents_fault_is_retried_for_ever(
    outcome: AttemptOutcome, due_in_s: float, attempts: int
) -> None:
    step = plan_next(intent(attempts=attempts), outcome, draw=0.0, limits=LIMITS)
    assert (step.state.live, step.attempts, step.due_in_s, step.failed) == (True, attempts, due_in_s, False)


@pytest.mark.parametrize(
    ("answered", "looks_up_itself", "words"),
    [
        pytest.param(
            True,
            False,
            "cpu-echo is at sha256:bbbbbbbbbbbb instead of sha256:aaaaaaaaaaaa",
            id="a-corral-worker-was-told",
        ),
        pytest.param(True, True, None, id="a-tag-moved-before-a-localai-worker-looked-it-up"),
        pytest.param(
            False, True, "cpu-echo is at sha256:bbbbbbbbbbbb instead of sha256:aaaaaaaaaaaa", id="it-has-not-answered"
        ),
    ],
)
def test_a_tag_that_moved(answered: bool, looks_up_itself: bool, words: str | None) -> None:
    wanted = BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest="sha256:" + "a" * 64))
    backends = [ObservedBackend(name="cpu-echo", digest="sha256:" + "b" * 64)]
    upgrade = intent(verb=Verb.UPGRADE, spec=wanted)
    assert find_missing(upgrade, backends, answered=answered, looks_up_itself=looks_up_itself) == words


@pytest.mark.parametrize(
    ("before", "offered", "is_done"),
    [("b", "a", False), ("", "a", True), ("c", "a", True), ("b", "b", True), ("b", "", True)],
    ids=["unchanged", "unknown-before", "another-version", "it-had-what-is-offered", "nothing-known-to-be-newer"],
)
def test_a_localai_worker_that_confirms_an_upgrade_without_one(before: str, offered: str, is_done: bool) -> None:
    digest = {letter: "sha256:" + letter * 64 for letter in "abc"} | {"": ""}
    wanted = BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest=digest[offered]))
    backends = [ObservedBackend(name="cpu-echo", digest=digest["b"])]
    upgrade = intent(verb=Verb.UPGRADE, spec=wanted)
    missing = find_missing(upgrade, backends, answered=True, looks_up_itself=True, digest_before=digest[before])
    assert (missing is None) == is_done


@pytest.mark.parametrize(
    ("points_to", "missing"),
    [("cpu-echo", None), ("cuda-echo", "echo is cuda-echo there instead of cpu-echo")],
)
@pytest.mark.parametrize("verb", [Verb.UPGRADE, Verb.ROLLBACK])
def test_a_change_of_the_build_is_done_when_the_family_points_to_it(
    verb: Verb, points_to: str, missing: str | None
) -> None:
    backends = [
        ObservedBackend(name="cpu-echo", digest=NEW),
        ObservedBackend(name="cuda-echo", digest=OLD),
        ObservedBackend(name="echo", is_meta=True, concrete=points_to),
    ]
    spec = BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest=NEW))
    assert find_missing(intent(verb=verb, spec=spec), backends, answered=True) == missing
