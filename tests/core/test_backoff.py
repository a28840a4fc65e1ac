"""One back-off formula, and the numbers with which each part of Corral uses it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.bus.client import REOPEN
from corral.controller.replicas import bucket_gc, orphan_gc, stopper
from corral.core.backends.intents import RetryLimits
from corral.core.backoff import PROCESS_RESTARTS, Backoff
from corral.core.processes.restarts import RestartPolicy
from corral.core.replicas.load_jobs import LOAD_RETRIES
from corral.frontend.gateway.endpoints import AVOIDED
from corral.store.engine import retrying
from corral.store.engine.database import CONFLICT_RETRIES
from corral.system.loops import AFTER_CRASH, AFTER_ERROR
from corral.worker.membership.membership import JOIN_RETRIES


@pytest.mark.parametrize(
    ("jitter", "attempt", "draw", "expected_s"),
    [
        pytest.param(0.0, 1, 0.0, 2.0, id="the-first-delay-is-the-base"),
        pytest.param(0.0, 0, 0.0, 2.0, id="attempt-zero-counts-as-the-first"),
        pytest.param(0.0, -5, 0.0, 2.0, id="so-does-anything-below"),
        pytest.param(0.0, 2, 0.0, 4.0, id="it-doubles"),
        pytest.param(0.0, 4, 0.0, 16.0, id="with-every-attempt"),
        pytest.param(0.0, 5, 0.0, 30.0, id="up-to-the-cap"),
        pytest.param(0.0, 100_000, 0.0, 30.0, id="however-often-it-failed"),
        pytest.param(0.5, 2, 0.0, 2.0, id="half-jitter-keeps-half-of-the-delay"),
        pytest.param(0.5, 2, 0.5, 3.0, id="half-jitter-in-the-middle"),
        pytest.param(0.5, 2, 1.0, 4.0, id="half-jitter-adds-up-to-the-whole-delay"),
        pytest.param(1.0, 2, 0.0, 0.0, id="full-jitter-may-retry-at-once"),
        pytest.param(1.0, 2, 0.25, 1.0, id="full-jitter-scales-with-the-draw"),
        pytest.param(1.0, 9, 1.0, 30.0, id="jitter-never-exceeds-the-cap"),
    ],
)
def test_delay(jitter: float, attempt: int, draw: float, expected_s: float) -> None:
    assert Backoff(base_s=2.0, cap_s=30.0, jitter=jitter).delay_s(attempt, draw) == expected_s


def test_without_a_draw_the_delay_is_the_longest() -> None:
    assert Backoff(base_s=2.0, cap_s=30.0, jitter=0.5).delay_s(1) == 2.0


@pytest.mark.parametrize(
    ("backoff", "first_s", "later_s"),
    [
        pytest.param(RetryLimits().backoff, (15, 30), (450, 900), id="intents"),
        pytest.param(LOAD_RETRIES, (2.5, 5), (150, 300), id="load-jobs"),
        pytest.param(RestartPolicy().backoff, (0.5, 1), (30, 60), id="backend-processes"),
        pytest.param(PROCESS_RESTARTS, (0.25, 0.5), (15, 30), id="own-child-processes"),
        pytest.param(JOIN_RETRIES, (0.05, 0.1), (7.5, 15), id="joining"),
        pytest.param(REOPEN, (0.25, 0.25), (10, 10), id="bus-connection"),
        pytest.param(AVOIDED, (1, 1), (15, 15), id="endpoints-that-failed"),
        pytest.param(CONFLICT_RETRIES, (0, 0.01), (0, 0.5), id="conflicting-transactions"),
        pytest.param(retrying.RETRIES, (0.1, 0.1), (1, 1), id="unavailable-store"),
        pytest.param(stopper.RETRIES, (1, 1), (256, 256), id="replica-stops"),
        pytest.param(orphan_gc.RETRIES, (5, 5), (900, 900), id="staged-file-deletions"),
        pytest.param(bucket_gc.RETRIES, (5, 5), (900, 900), id="bucket-deletions"),
        pytest.param(AFTER_ERROR, (0.05, 0.1), (1, 2), id="loops-after-an-error"),
        pytest.param(AFTER_CRASH, (0.05, 0.1), (15, 30), id="loops-after-a-crash"),
    ],
)
def test_each_use_has_its_bounds(backoff: Backoff, first_s: tuple[float, float], later_s: tuple[float, float]) -> None:
    """After the first failure and after the hundredth: the shortest and the longest delay."""
    assert (backoff.delay_s(1, 0.0), backoff.delay_s(1, 1.0)) == first_s
    assert (backoff.delay_s(100, 0.0), backoff.delay_s(100, 1.0)) == later_s


@given(
    base_s=st.floats(0.001, 100),
    cap_s=st.floats(0.001, 10_000),
    jitter=st.floats(0, 1),
    attempt=st.integers(-3, 10_000),
    draw=st.floats(0, 1),
)
def test_a_delay_is_never_negative_never_above_the_cap_and_never_shorter_than_the_one_before(
    base_s: float, cap_s: float, jitter: float, attempt: int, draw: float
) -> None:
    backoff = Backoff(base_s=base_s, cap_s=cap_s, jitter=jitter)
    assert 0 <= backoff.delay_s(attempt, draw) <= cap_s * (1 + 1e-9)
    assert backoff.delay_s(attempt, draw) <= backoff.delay_s(attempt + 1, draw)
