from corral.core.nodes.traffic_history import (
    SLOT_S,
    SLOTS,
    TrafficHistory,
    TrafficSample,
    estimate_quantile,
    sample_between,
)


def test_samples_of_two_frontends_add_up_within_a_slot() -> None:
    pulse = TrafficHistory(now_s=1000.0)
    pulse.add(TrafficSample(requests=2, tokens_out=10, first_byte=(1, 1)), now_s=1012.0)
    pulse.add(TrafficSample(requests=3, failed=1, first_byte=(0, 3)), now_s=1019.0)
    assert pulse.read(now_s=1025.0) == [(5.0, TrafficSample(requests=5, failed=1, tokens_out=10, first_byte=(1, 4)))]


def test_a_quiet_slot_counts_as_nothing_and_one_that_still_runs_is_left_out() -> None:
    pulse = TrafficHistory(now_s=1000.0)
    pulse.add(TrafficSample(requests=1), now_s=1012.0)
    pulse.add(TrafficSample(requests=9), now_s=1042.0)
    assert [beat.requests for _, beat in pulse.read(now_s=1042.0)] == [1, 0, 0]


def test_only_the_last_hour_is_kept() -> None:
    pulse = TrafficHistory(now_s=0.0)
    for slot in range(3 * SLOTS):
        pulse.add(TrafficSample(requests=slot), now_s=slot * SLOT_S)
    shown = pulse.read(now_s=3 * SLOTS * SLOT_S)
    assert len(shown) == SLOTS - 1
    assert shown[-1] == (0.0, TrafficSample(requests=3 * SLOTS - 1))


def test_counters_are_read_as_what_came_between() -> None:
    after = TrafficSample(requests=5, tokens_in=7, first_byte=(2, 3))
    assert sample_between(TrafficSample(), after) == after
    assert sample_between(TrafficSample(requests=4, tokens_in=7, first_byte=(2, 2)), after) == TrafficSample(
        requests=1, first_byte=(0, 1)
    )


def test_a_quantile_lies_within_its_bucket() -> None:
    assert estimate_quantile((1.0, 2.0), (0, 0, 0), 0.5) is None
    assert estimate_quantile((1.0, 2.0), (0, 10, 0), 0.5) == 1.5
    assert estimate_quantile((1.0, 2.0), (10, 0, 0), 1.0) == 1.0
    assert estimate_quantile((1.0, 2.0), (0, 0, 4), 0.5) == 2.0
