from hypothesis import given
from hypothesis import strategies as st

from corral.core.rate_limit import RateLimiter, TokenBucket


def test_a_burst_is_allowed_and_then_one_at_a_time() -> None:
    allowances = RateLimiter(TokenBucket(most=3, per_s=0.5), keys_most=10)
    assert [allowances.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert allowances.wait_s("a", 0.0) == 2.0
    assert not allowances.take("a", 1.9)
    assert allowances.take("a", 2.0)
    assert not allowances.take("a", 2.0)


def test_one_keys_greed_is_not_anothers_loss() -> None:
    allowances = RateLimiter(TokenBucket(most=1, per_s=1), keys_most=10)
    assert allowances.take("a", 0.0)
    assert not allowances.take("a", 0.0)
    assert allowances.wait_s("b", 0.0) == 0.0
    assert allowances.take("b", 0.0)


def test_a_million_keys_take_no_more_room_than_was_given() -> None:
    allowances = RateLimiter(TokenBucket(most=1, per_s=1), keys_most=16)
    for number in range(1000):
        allowances.take(str(number), 0.0)
    assert len(allowances) == 16
    assert allowances.wait_s("999", 0.0) > 0


@given(st.lists(st.floats(0, 5), max_size=200))
def test_never_more_than_the_burst_and_what_time_has_brought(pauses: list[float]) -> None:
    allowances = RateLimiter(TokenBucket(most=5, per_s=2), keys_most=1)
    now_s, taken = 0.0, 0
    for pause in pauses:
        now_s += pause
        taken += allowances.take("a", now_s)
        assert taken <= 5 + 2 * now_s + 1e-6
