"""How many requests an engine takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.nodes.engine_capacity import (
    LLAMA_CPP,
    SGLANG,
    SLOTS_MOST,
    VLLM,
    EngineCapacity,
    EngineLoad,
    check_engine,
    find_family,
    open_limit,
    plan_limit,
    read_load,
)

IDLE = EngineLoad(running=0, waiting=0)


@pytest.mark.parametrize(
    ("before", "load", "slots", "expected"),
    [
        pytest.param(None, IDLE, 4, 5, id="known-slots-get-one-request-ahead"),
        pytest.param(None, IDLE, 32, 36, id="many-slots-get-an-eighth-ahead"),
        pytest.param(5, EngineLoad(running=4, waiting=60), 4, 5, id="a-flood-does-not-change-known-slots"),
        pytest.param(None, IDLE, None, None, id="an-idle-engine-of-unknown-size-has-no-limit"),
        pytest.param(None, EngineLoad(running=300, waiting=0), None, None, id="an-engine-without-a-queue-has-no-limit"),
        pytest.param(
            None,
            EngineLoad(running=256, waiting=256, queue_s=4.0, first_token_s=4.5),
            None,
            288,
            id="a-queue-that-makes-first-tokens-late-shows-what-the-engine-takes",
        ),
        pytest.param(
            None,
            EngineLoad(running=256, waiting=256, queue_s=0.1, first_token_s=4.5),
            None,
            None,
            id="a-queue-that-is-left-at-once-costs-nothing",
        ),
        pytest.param(
            512,
            EngineLoad(running=8, waiting=500, queue_s=4.0, first_token_s=4.5),
            None,
            256,
            id="one-look-halves-the-limit-at-most",
        ),
        pytest.param(
            300,
            EngineLoad(running=256, waiting=40, queue_s=4.0, first_token_s=4.5),
            None,
            300,
            id="a-small-correction-is-not-made",
        ),
        pytest.param(100, EngineLoad(running=90, waiting=0), None, 125, id="a-limit-that-holds-requests-back-grows"),
        pytest.param(100, EngineLoad(running=40, waiting=0), None, 100, id="a-limit-that-nobody-reaches-stays"),
        pytest.param(100, EngineLoad(running=90, waiting=3), None, 100, id="a-full-engine-keeps-its-limit"),
        pytest.param(60, EngineLoad(running=60, waiting=0), 64, 72, id="it-grows-to-the-known-slots-and-no-further"),
        pytest.param(
            72,
            EngineLoad(running=20, waiting=52, queue_s=9.0, first_token_s=9.1),
            64,
            36,
            id="an-engine-that-runs-out-of-cache-takes-fewer-than-its-slots",
        ),
        pytest.param(
            None,
            EngineLoad(running=0, waiting=64),
            None,
            None,
            id="requests-that-arrived-together-are-not-yet-a-queue",
        ),
        pytest.param(
            64,
            EngineLoad(running=16, waiting=48),
            None,
            32,
            id="without-times-a-queue-as-long-as-the-batch-is-long",
        ),
        pytest.param(64, EngineLoad(running=40, waiting=20), None, 64, id="without-times-a-shorter-one-is-not"),
    ],
)
def test_the_limit_follows_what_the_engine_takes(
    before: int | None, load: EngineLoad, slots: int | None, expected: int | None
) -> None:
    assert plan_limit(before, load, slots=slots) == expected


@given(
    size=st.integers(min_value=8, max_value=2000),
    offered=st.integers(min_value=1, max_value=4000),
    first=st.one_of(st.none(), st.integers(min_value=4, max_value=4000)),
)
def test_the_limit_settles_near_the_size_of_an_engine_that_does_not_tell_it(
    size: int, offered: int, first: int | None
) -> None:
    """The engine takes `size`, the clients offer `offered`, and the gateway passes on what the limit allows."""
    limit = first
    for _ in range(60):
        open_now = offered if limit is None else min(offered, limit)
        running = min(size, open_now)
        waiting = open_now - running
        late = waiting > running // 8
        load = EngineLoad(running=running, waiting=waiting, queue_s=5.0 if late else 0.1, first_token_s=6.0)
        limit = plan_limit(limit, load, slots=None)
    open_now = offered if limit is None else min(offered, limit)
    assert open_now >= min(size, offered)  # the engine is full
    assert open_now <= max(8, size * 1.5)  # and the rest waits at the gateway


def test_engines_are_recognised_by_their_metrics() -> None:
    assert find_family({"process_cpu_seconds_total": 1.0, "vllm:num_requests_running": 0.0}) is VLLM
    assert find_family({"sglang:num_running_reqs": 0.0}) is SGLANG
    assert find_family({"llamacpp:requests_processing": 0.0}) is LLAMA_CPP
    assert find_family({"tgi_queue_size": 0.0}) is None


def test_times_are_means_since_the_last_look() -> None:
    before = {"vllm:request_queue_time_seconds_sum": 10.0, "vllm:request_queue_time_seconds_count": 100.0}
    now = {
        "vllm:num_requests_running": 7.0,
        "vllm:num_requests_waiting": 2.0,
        "vllm:request_queue_time_seconds_sum": 13.0,
        "vllm:request_queue_time_seconds_count": 102.0,
        "vllm:time_to_first_token_seconds_sum": 0.0,
        "vllm:time_to_first_token_seconds_count": 0.0,
    }
    assert read_load(VLLM, now, before) == EngineLoad(running=7, waiting=2, queue_s=1.5, first_token_s=None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e12])
def test_a_figure_that_cannot_be_is_unknown(value: float) -> None:
    assert read_load(VLLM, {"vllm:num_requests_running": value, "vllm:num_requests_waiting": 0.0}, {}) is None


@pytest.mark.parametrize(
    ("configured", "engine", "expected"),
    [
        pytest.param(None, None, None, id="nothing-known"),
        pytest.param(2, None, 2, id="the-configuration-alone"),
        pytest.param(None, EngineCapacity(slots=4, limit=5), 5, id="the-engine-alone"),
        pytest.param(2, EngineCapacity(slots=4, limit=5), 2, id="the-configuration-limits-the-engine"),
        pytest.param(600, EngineCapacity(limit=288), 288, id="the-engine-limits-the-configuration"),
    ],
)
def test_a_replica_has_the_lower_of_both_limits(
    configured: int | None, engine: EngineCapacity | None, expected: int | None
) -> None:
    assert open_limit(configured, engine) == expected


@pytest.mark.parametrize(
    "engine", [EngineCapacity(slots=0), EngineCapacity(limit=-1), EngineCapacity(limit=SLOTS_MOST + 1)]
)
def test_figures_out_of_range_are_rejected(engine: EngineCapacity) -> None:
    with pytest.raises(ValueError, match="out of range"):
        check_engine(engine)
