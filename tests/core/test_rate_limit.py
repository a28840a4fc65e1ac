from hypothesis import given
from hypothesis import strategies as st

from corral.core.rate_limit import RateLimiter, TokenBucket


def test_a_burst_is_allowed_and_then_one_at_a_time() -> None:
    limiter = RateLimiter(TokenBucket(capacity=3, per_s=0.5), max_keys=10)
    assert [limiter.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limiter.wait_s("a", 0.0) == 2.0
    assert not limiter.take("a", 1.9)
    assert limiter.take("a", 2.0)
    assert not limiter.take("a", 2.0)


def test_one_keys_greed_is_not_anothers_loss() -> None:
    limiter = RateLimiter(TokenBucket(capacity=1, per_s=1), max_keys=10)
    assert limiter.take("a", 0.0)
    assert not limiter.take("a", 0.0)
    assert limiter.wait_s("b", 0.0) == 0.0
    assert limiter.take("b", 0.0)


def test_a_million_keys_take_no_more_room_than_was_given() -> None:
    limiter = RateLimiter(TokenBucket(capacity=1, per_s=1), max_keys=16)
    for number in range(1000):
        limiter.take(str(number), 0.0)
    assert len(limiter) == 16
    assert limiter.wait_s("999", 0.0) > 0


@given(st.lists(st.floats(0, 5), max_size=200))
def test_never_more_than_the_burst_and_what_time_has_brought(pauses: list[float]) -> None:
    limiter = RateLimiter(TokenBucket(capacity=5, per_s=2), max_keys=1)
    now_s, taken = 0.0, 0
    for pause in pauses:
        now_s += pause
        taken += limiter.take("a", now_s)
        assert taken <= 5 + 2 * now_s + 1e-6
