"""Whether a request fits the limits of its key: decided from what is counted, at any second."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.access.key_limits import LimitKind, LimitsInForce
from corral.core.access.key_meter import KeyMeter, MeteredRequest, OwnUse, Periods, Refusal

PERIODS = Periods(day=20_000, day_ends_s=50_000.0, month_ends_s=900_000.0)
T = 1000.0


def used(*requests: tuple[float, int], open_now: bool = False) -> KeyMeter:
    """A meter that counted requests at these times with these tokens."""
    meter = KeyMeter("k")
    for at_s, tokens in requests:
        metered = meter.begin(tokens, at_s, PERIODS)
        if not open_now:
            meter.end(metered, 0, tokens, at_s, PERIODS)
    return meter


@pytest.mark.parametrize(
    ("requests", "limits", "tokens", "now_s", "expected"),
    [
        pytest.param([], {"requests_per_minute": 1}, 0, T, None, id="the-first-fits"),
        pytest.param([(T, 0)], {}, 9999, T, None, id="without-limits-everything-fits"),
        pytest.param([(T, 0)], {"requests_per_minute": 2}, 0, T, None, id="one-is-left"),
        pytest.param(
            [(T, 0), (T + 10, 0)], {"requests_per_minute": 2}, 0, T + 20,
            Refusal(LimitKind.REQUESTS_PER_MINUTE, 2, 2, 41.0), id="until-the-oldest-leaves-the-window",
        ),
        pytest.param(
            [(T, 0)], {"requests_per_minute": 1}, 0, T + 60,
            Refusal(LimitKind.REQUESTS_PER_MINUTE, 1, 1, 1.0), id="not-yet-at-the-edge-of-the-minute",
        ),
        pytest.param([(T, 0)], {"requests_per_minute": 1}, 0, T + 61, None, id="after-the-window-it-fits-again"),
        pytest.param([(T, 90)], {"tokens_per_minute": 100}, 10, T, None, id="exactly-the-rest-fits"),
        pytest.param(
            [(T, 50), (T + 5, 45)], {"tokens_per_minute": 100}, 10, T + 6,
            Refusal(LimitKind.TOKENS_PER_MINUTE, 100, 95, 55.0), id="until-enough-tokens-leave-the-window",
        ),
        pytest.param([], {"tokens_per_minute": 100}, 500, T, None, id="larger-than-the-limit-fits-an-empty-window"),
        pytest.param(
            [(T, 1)], {"tokens_per_minute": 100}, 500, T,
            Refusal(LimitKind.TOKENS_PER_MINUTE, 100, 1, 61.0), id="but-no-other",
        ),
        pytest.param(
            [(T, 80)], {"tokens_per_day": 100}, 30, T,
            Refusal(LimitKind.TOKENS_PER_DAY, 100, 80, 49_000.0), id="until-the-day-ends",
        ),
        pytest.param([(T, 80)], {"tokens_per_day": 100}, 20, T + 600, None, id="a-day-outlasts-the-window"),
        pytest.param(
            [(T, 80)], {"tokens_per_month": 100}, 30, T,
            Refusal(LimitKind.TOKENS_PER_MONTH, 100, 80, 899_000.0), id="until-the-month-ends",
        ),
    ],
)  # fmt: skip
def test_what_fits(
    requests: list[tuple[float, int]], limits: dict[str, Any], tokens: int, now_s: float, expected: Refusal | None
) -> None:
    assert used(*requests).refuses(LimitsInForce(**limits), tokens, now_s, PERIODS) == expected


def test_open_requests_count_until_they_end_however_they_end() -> None:
    limits = LimitsInForce(concurrent_requests=2)
    meter = KeyMeter("k")
    first, second = (meter.begin(0, T, PERIODS) for _ in range(2))
    refusal = meter.refuses(limits, 0, T, PERIODS)
    assert refusal is not None
    assert (refusal.kind, refusal.used, refusal.left) == (LimitKind.CONCURRENT_REQUESTS, 2, 0)
    meter.end(first, 1, 1, T, PERIODS)
    assert meter.refuses(limits, 0, T, PERIODS) is None
    meter.open_elsewhere = 1
    assert meter.refuses(limits, 0, T, PERIODS) is not None
    meter.abandon(second, T, PERIODS, was_sent=False)
    assert meter.refuses(limits, 0, T, PERIODS) is None


@pytest.mark.parametrize(
    ("tokens_in", "tokens_out", "after_s", "window", "day"),
    [
        pytest.param(10, 20, 1, 30, 30, id="fewer-than-estimated"),
        pytest.param(100, 400, 1, 500, 500, id="more-than-estimated"),
        pytest.param(100, 400, 90, 200, 500, id="the-estimate-has-left-the-window-the-rest-counts-now"),
        pytest.param(10, 20, 90, 0, 30, id="the-estimate-has-left-the-window-and-nothing-is-taken-back"),
    ],
)
def test_an_answer_replaces_the_estimate(tokens_in: int, tokens_out: int, after_s: int, window: int, day: int) -> None:
    meter = KeyMeter("k")
    metered = meter.begin(300, T, PERIODS)
    assert (meter.tokens, meter.day_tokens) == (300, 300)
    meter.end(metered, tokens_in, tokens_out, T + after_s, PERIODS)
    meter.roll(T + after_s)
    assert (meter.tokens, meter.day_tokens, meter.month_tokens, meter.own_spent) == (window, day, day, day)


def test_requests_that_end_together_count_what_each_of_them_used() -> None:
    meter = KeyMeter("k")
    long = [meter.begin(10_300, T, PERIODS) for _ in range(10)]
    short = meter.begin(260, T, PERIODS)
    meter.open = 0
    meter.correct([*long, short], 10 * 10_000 + 4, 10 * 10 + 2, T + 1, PERIODS)
    assert (meter.tokens, meter.day_tokens, meter.own_spent) == (100_106, 100_106, 100_106)


@pytest.mark.parametrize(("was_sent", "window"), [(True, 300), (False, 0)])
def test_a_request_without_an_answer_counts_in_the_window_if_a_replica_had_it(was_sent: bool, window: int) -> None:
    meter = KeyMeter("k")
    meter.abandon(meter.begin(300, T, PERIODS), T, PERIODS, was_sent=was_sent)
    assert (meter.requests, meter.tokens, meter.day_tokens, meter.open) == (1, window, 0, 0)


@pytest.mark.parametrize(
    ("day", "expected"), [(PERIODS.day, 40), (PERIODS.day + 1, 40)], ids=["today", "after-midnight"]
)
def test_a_budget_pays_for_the_prompt_of_a_request_whose_client_left(day: int, expected: int) -> None:
    periods = Periods(day=PERIODS.day, day_ends_s=T + 5)
    meter = KeyMeter("k")
    metered = meter.begin(300, T, periods)
    if day != periods.day:
        periods.day, meter.day_tokens = day, 0
    meter.abandon(metered, T + 6, periods, was_sent=True, prompt=40)
    assert (meter.tokens, meter.day_tokens, meter.own_spent) == (300, expected, 40)


def test_a_request_that_ends_on_the_next_day_counts_there() -> None:
    periods = Periods(day=1, day_ends_s=T + 5)
    meter = KeyMeter("k")
    metered = meter.begin(300, T, periods)
    periods.day, meter.day_tokens = 2, 0
    meter.end(metered, 40, 60, T + 6, periods)
    assert meter.day_tokens == 100


@pytest.mark.parametrize(
    ("own", "recent", "window", "expected"),
    [
        pytest.param(30, 30, 30, 60, id="two-that-did-not-know-of-each-other"),
        pytest.param(30, 30, 60, 60, id="it-had-heard-of-ours"),
        pytest.param(0, 30, 60, 60, id="we-have-just-started-and-it-knows-what-we-had-counted"),
        pytest.param(30, 0, 0, 30, id="it-has-just-started"),
    ],
)
def test_meeting_another_process(own: int, recent: int, window: int, expected: int) -> None:
    meter = used(*[(T, 1)] * own)
    meter.meet((recent, recent), (window, window), T)
    assert (meter.requests, meter.tokens) == (expected, expected)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        pytest.param(0, [(101, 303), (101, 303), (101, 303)], 303, id="all-knew-of-each-other"),
        pytest.param(0, [(101, 303), (101, 303)], 303, id="one-of-them-has-died"),
        pytest.param(0, [(101, 101), (101, 202), (101, 303)], 303, id="some-knew-more"),
        pytest.param(0, [(300, 303), (2, 2), (1, 303)], 303, id="of-different-sizes"),
        pytest.param(50, [(101, 303), (101, 353), (101, 353)], 353, id="beside-our-own"),
        pytest.param(0, [(100, 100), (100, 100), (100, 100)], 300, id="none-knew-of-another"),
    ],
)
def test_a_process_that_starts_counts_the_use_of_several_others_once(
    own: int, others: list[tuple[int, int]], expected: int
) -> None:
    meter = used(*[(T, 1)] * own)
    for recent, window in others:
        meter.meet((recent, recent), (window, window), T + 1)
    assert (meter.requests, meter.tokens) == (expected, expected)


def test_what_was_learned_of_others_leaves_the_window_with_them() -> None:
    meter = KeyMeter("k")
    meter.meet((1, 1), (101, 101), T)
    meter.meet((50, 50), (50, 50), T + 70)
    assert (meter.requests, meter.tokens) == (50, 50)


def test_corrections_of_other_processes_do_not_take_back_our_own_tokens() -> None:
    meter = used((T, 100))
    meter.add_elsewhere(1, 50, 50, T)
    meter.add_elsewhere(0, -80, -80, T + 1)
    assert (meter.tokens, meter.recent_tokens, meter.day_tokens) == (100, 100, 70)


@pytest.mark.parametrize(
    ("now_s", "day"),
    [
        pytest.param(T + 1, 500, id="sums-are-late-while-requests-end"),
        pytest.param(T + 60, 200, id="the-store-is-right-when-the-key-is-idle"),
    ],
)
def test_sums_of_the_store(now_s: float, day: int) -> None:
    meter = used((T, 500))
    meter.adopt_sums(200, 900, now_s)
    assert (meter.day_tokens, meter.month_tokens) == (day, 900)


def test_a_meter_made_again_continues_its_counts() -> None:
    assert KeyMeter("k", OwnUse(5, 6, 7)).own == OwnUse(5, 6, 7)


Step = tuple[float, int, int]


@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 200), st.integers(0, 400)), max_size=80),
    st.integers(1, 8),
)
def test_no_sixty_seconds_hold_more_requests_than_the_limit_and_counts_do_not_drift(
    steps: list[Step], most: int
) -> None:
    limits = LimitsInForce(requests_per_minute=most)
    meter, now_s, admitted = KeyMeter("k"), T, []
    for pause_s, estimate, actual in steps:
        now_s += pause_s
        refusal = meter.refuses(limits, estimate, now_s, PERIODS)
        if refusal is not None:
            assert 0 < refusal.wait_s <= 61
            assert meter.refuses(limits, estimate, now_s + refusal.wait_s + 0.01, PERIODS) is None
            meter.roll(now_s)
            now_s += refusal.wait_s + 0.01
        admitted.append(now_s)
        meter.end(meter.begin(estimate, now_s, PERIODS), 0, actual, now_s, PERIODS)
    for start_s in admitted:
        assert sum(start_s <= at_s < start_s + 60 for at_s in admitted) <= most
    meter.roll(now_s + 100)
    assert (meter.requests, meter.tokens, meter.recent_requests, meter.recent_tokens, meter.open) == (0, 0, 0, 0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "ask", "ask", "end", "elsewhere", "midnight", "other-limits"]),
                  st.sampled_from([0.0, 0.0, 0.0, 0.3, 5.0]), st.integers(0, 60)),
        max_size=60,
    ),
    st.tuples(*[st.sampled_from([0, 3, 200])] * 5),
)  # fmt: skip
def test_admitting_quickly_decides_and_counts_as_looking_at_every_limit_does(
    steps: list[tuple[str, float, int]], limits: tuple[int, ...]
) -> None:
    quick, slow, now_s = KeyMeter("k"), KeyMeter("k"), T
    periods = Periods(day=1, day_ends_s=50_000.0, month_ends_s=900_000.0)
    by_name: dict[str, Any] = dict(zip([kind.value for kind in LimitKind], limits, strict=True))
    in_force = [LimitsInForce(**by_name), LimitsInForce(requests_per_minute=2, tokens_per_day=100)]
    open_ones: list[tuple[MeteredRequest, MeteredRequest]] = []
    for kind, pause_s, number in steps:
        now_s += pause_s
        match kind:
            case "ask":
                found = quick.admit(in_force[0], number, now_s, periods)
                expected = slow.refuses(in_force[0], number, now_s, periods)
                assert found == (expected or (quick, number, now_s, periods.day))
                if not isinstance(found, Refusal):
                    open_ones.append((found, slow.begin(number, now_s, periods)))
            case "end" if open_ones:
                for meter, metered in zip((quick, slow), open_ones.pop(), strict=True):
                    meter.end(metered, number, number, now_s, periods)
            case "elsewhere":
                for meter in (quick, slow):
                    meter.add_elsewhere(1, number, number, now_s)
                    meter.add_open_elsewhere(number % 2)
            case "midnight":
                periods.day += 1
                quick.begin_day()
                slow.begin_day()
            case "other-limits":
                in_force.reverse()
        wanted = in_force[0]
        used = (slow.requests, slow.tokens)
        most = (wanted.requests_per_minute, wanted.tokens_per_minute)
        assert quick.left(wanted) == tuple(max(0, m - u) for m, u in zip(most, used, strict=True))
    quick.roll(now_s)
    slow.roll(now_s)
    for name in ("requests", "tokens", "open", "day_tokens", "month_tokens", "own", "recent_requests", "recent_tokens"):
        assert getattr(quick, name) == getattr(slow, name), name
