"""What keeps a reachable node from taking new work."""

import pytest

from corral.core.nodes.conditions import CLOCK_TOLERANCE_MS, judge_clock


@pytest.mark.parametrize(
    ("off_ms", "said"),
    [
        pytest.param(0, None, id="right"),
        pytest.param(CLOCK_TOLERANCE_MS, None, id="just-tolerable"),
        pytest.param(-CLOCK_TOLERANCE_MS, None, id="just-tolerable-backwards"),
        pytest.param(20 * 60_000, "its clock is 1200 s ahead of the store's", id="twenty-minutes-ahead"),
        pytest.param(-61_000, "its clock is 61 s behind the store's", id="a-minute-behind"),
    ],
)
def test_a_clock_more_than_a_minute_off_is_a_condition(off_ms: int, said: str | None) -> None:
    now_ms = 1_790_000_000_000
    found = judge_clock(now_ms + off_ms, now_ms=now_ms)
    assert (found.reason if found is not None else None) == said
