"""What becomes of an intent after each kind of outcome, and what counts as done."""

from dataclasses import replace

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
    retry_delay_s,
)
from corral.core.backends.operations import NodeProgressStatus, status_after
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend

LIMITS = RetryLimits(attempts=10, base_s=30, cap_s=900)
S = IntentState


def intent(**fields: object) -> Intent:
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
    return replace(plain, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "attempts", "expected", "shown"),
    [
        pytest.param(
            AttemptConfirmed("d"), 3, NextStep(state=S.SUCCEEDED, attempts=3, digest="d"), "success", id="observed"
        ),
        pytest.param(
            AttemptUnconfirmed("slow", 900),
            3,
            NextStep(state=S.UNCONFIRMED, attempts=3, due_in_s=900, error="slow"),
            "running_on_worker",
            id="a-time-out-spends-no-attempt-and-is-due-after-the-time-out",
        ),
        pytest.param(
            AttemptUndelivered("away", 2, no_responder=True),
            3,
            NextStep(state=S.PENDING, attempts=3, due_in_s=2, error="away", node_unhealthy=True),
            "queued",
            id="nobody-there-spends-no-attempt-and-makes-the-node-unhealthy",
        ),
        pytest.param(
            AttemptUndelivered("no bus", 2),
            0,
            NextStep(state=S.PENDING, attempts=0, due_in_s=2, error="no bus"),
            "queued",
            id="our-own-bus-away-says-nothing-about-the-node",
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
            id="an-order-the-worker-takes-for-outdated-gets-a-higher-number",
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
            id="called-off",
        ),
    ],
)
def test_plan_next(outcome: AttemptOutcome, attempts: int, expected: NextStep, shown: str) -> None:
    step = plan_next(intent(attempts=attempts), outcome, draw=1.0, limits=LIMITS)
    assert step == expected
    assert status_after(step) == NodeProgressStatus(shown)


@given(st.integers(1, 100), st.floats(0, 1))
def test_a_wait_is_never_nothing_and_never_longer_than_the_longest(attempt: int, draw: float) -> None:
    assert LIMITS.base_s / 2 <= retry_delay_s(attempt, draw=draw, limits=LIMITS) <= LIMITS.cap_s


NEW, OLD = "sha256:new", "sha256:old"


@pytest.mark.parametrize(
    ("fields", "found", "answered", "done"),
    [
        pytest.param({}, {"digest": NEW}, False, True, id="presence-of-the-digest-proves-an-install"),
        pytest.param({}, {"digest": OLD}, False, False, id="another-digest-does-not"),
        pytest.param({}, {"digest": OLD}, True, False, id="the-workers-word-does-not-outweigh-its-table"),
        pytest.param({}, None, True, False, id="what-is-not-listed-is-not-installed"),
        pytest.param({}, {}, False, True, id="a-localai-worker-without-digests-lists-it"),
        pytest.param({"verb": Verb.UPGRADE}, {}, False, False, id="presence-does-not-prove-an-upgrade"),
        pytest.param({"verb": Verb.UPGRADE}, {}, True, True, id="with-the-workers-word-it-does"),
        pytest.param({"verb": Verb.UPGRADE}, {"digest": NEW}, False, True, id="the-wanted-digest-proves-an-upgrade"),
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
        pytest.param({"verb": Verb.DELETE}, None, True, True, id="with-the-workers-word-it-does-delete"),
        pytest.param({"verb": Verb.DELETE}, {"digest": NEW}, True, False, id="what-is-still-there-is-not-deleted"),
    ],
)
def test_what_counts_as_carried_out(
    fields: dict[str, object], found: dict[str, object] | None, answered: bool, done: bool
) -> None:
    backends = (
        []
        if found is None
        else [
            ObservedBackend(name="cpu-echo", **found),  # type: ignore[arg-type]
            ObservedBackend(name="echo", is_meta=True, concrete="cpu-echo"),
        ]
    )
    assert (find_missing(intent(**fields), backends, answered=answered) is None) == done
