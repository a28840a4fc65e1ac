"""Back-off of failed loads: what is shown, and how long a node cools down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.replicas.load_backoff import LoadBackoff, cause_of, cooldown_s, format_utc_time


def backoff(error: str, *, failures: int = 1, at_ms: int = 0, cooling_down: bool = True) -> LoadBackoff:
    return LoadBackoff(failures=failures, error=error, failed_at_ms=at_ms, until_ms=60_000, cooling_down=cooling_down)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        pytest.param(1, "load failed on this node; next attempt after 00:01:00 UTC: no such file", id="one-failure"),
        pytest.param(
            3,
            "load failed on this node 3 times; next attempt after 00:01:00 UTC: no such file",
            id="several-are-counted",
        ),
    ],
)
def test_the_reason_says_when_the_node_is_tried_again_and_why_it_failed(failures: int, expected: str) -> None:
    assert backoff("no such file", failures=failures).reason == expected


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [pytest.param(0, "00:00:00 UTC", id="the-epoch"), pytest.param(45_296_789, "12:34:56 UTC", id="whole-seconds")],
)
def test_times_are_shown_in_utc(at_ms: int, expected: str) -> None:
    assert format_utc_time(at_ms) == expected


@pytest.mark.parametrize(
    ("backoffs", "expected"),
    [
        pytest.param([], "", id="nothing-failed"),
        pytest.param([backoff("no such file")], "no such file", id="the-error-of-one-node"),
        pytest.param([backoff("a", at_ms=1), backoff("b", at_ms=2)], "b; a", id="the-latest-first"),
        pytest.param([backoff("a", at_ms=1), backoff("a", at_ms=2)], "a", id="equal-errors-once"),
        pytest.param([backoff("a"), backoff("b", cooling_down=False)], "a", id="only-of-nodes-that-cool-down"),
        pytest.param(
            [backoff("It failed."), backoff("It broke.", at_ms=-1)], "It failed; It broke", id="without-full-stops"
        ),
    ],
)
def test_the_cause_of_a_load_that_failed_on_several_nodes(backoffs: list[LoadBackoff], expected: str) -> None:
    assert cause_of(backoffs) == expected


@pytest.mark.parametrize(
    ("attempts", "failures_here", "expected"),
    [
        pytest.param(1, 1, 5.0, id="the-first-failure"),
        pytest.param(2, 1, 10.0, id="the-second-attempt-of-the-load-elsewhere"),
        pytest.param(1, 3, 20.0, id="the-third-failure-on-this-node"),
        pytest.param(50, 1, 300.0, id="at-most-five-minutes"),
    ],
)
def test_a_cool_down_grows_with_attempts_and_failures(attempts: int, failures_here: int, expected: float) -> None:
    assert cooldown_s(attempts, failures_here, draw=1.0) == expected


@given(st.integers(1, 100), st.integers(1, 100), st.floats(0, 1))
def test_a_cool_down_is_never_shorter_than_half_its_length(attempts: int, failures: int, draw: float) -> None:
    longest_s = cooldown_s(attempts, failures, draw=1.0)
    assert longest_s / 2 <= cooldown_s(attempts, failures, draw=draw) <= longest_s
