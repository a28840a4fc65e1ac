import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.processes.restarts import GiveUp, RestartAfter, RestartPolicy, plan_restart

POLICY = RestartPolicy(budget=3, window_s=100, base_s=1, cap_s=3)


@pytest.mark.parametrize(
    ("crashes_s", "now_s", "draw", "expected"),
    [
        pytest.param([10], 10, 1.0, RestartAfter(delay_s=1, attempt=1), id="the-first-crash-waits-the-base"),
        pytest.param([10], 10, 0.0, RestartAfter(delay_s=0.5, attempt=1), id="chance-takes-at-most-half"),
        pytest.param([5, 10], 10, 1.0, RestartAfter(delay_s=2, attempt=2), id="the-second-waits-twice-as-long"),
        pytest.param([1, 5, 10], 10, 1.0, RestartAfter(delay_s=3, attempt=3), id="up-to-the-cap"),
        pytest.param([1, 5, 9, 109], 109, 1.0, RestartAfter(delay_s=1, attempt=1), id="old-crashes-are-forgiven"),
        pytest.param([5000, 10], 10, 1.0, RestartAfter(delay_s=1, attempt=1), id="times-of-another-boot-do-not-count"),
    ],
)
def test_plan_restart(crashes_s: list[float], now_s: float, draw: float, expected: RestartAfter) -> None:
    assert plan_restart(POLICY, crashes_s, now_s=now_s, draw=draw) == expected


def test_a_spent_budget_ends_it_with_a_reason() -> None:
    plan = plan_restart(POLICY, [1, 2, 3, 4], now_s=4, draw=0.5)
    assert isinstance(plan, GiveUp)
    assert "4 times within 100 s" in plan.reason


@given(st.lists(st.floats(0, 1000), max_size=200), st.floats(0, 1))
def test_a_delay_is_never_nothing_and_never_above_the_cap(crashes_s: list[float], draw: float) -> None:
    plan = plan_restart(POLICY, crashes_s, now_s=1000, draw=draw)
    if isinstance(plan, RestartAfter):
        assert 0.5 <= plan.delay_s <= 3
