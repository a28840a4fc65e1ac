"""Patience by size, quiet retries, and what a waiting request is told."""

import pytest

from corral.core.replicas.load_jobs import (
    GIB,
    LOAD_RETRIES,
    LoadProgress,
    LoadState,
    load_stall_s,
    loading_object,
    retry_after_s,
    stall_window_s,
)


def test_the_window_of_a_load_grows_with_its_weights() -> None:
    assert load_stall_s(None) == 300
    assert load_stall_s(90 * GIB) == 300 + 1800
    assert load_stall_s(10_000 * GIB) == 6 * 3600
    assert stall_window_s(LoadState.LOADING, 3 * GIB) == 360
    assert [stall_window_s(LoadState.INSTALLING, size) for size in (None, 3 * GIB)] == [300, 360]
    assert stall_window_s(LoadState.STAGING, 900 * GIB) == 300, "bytes tell that it lives, so their number is no excuse"


def test_a_failing_load_is_tried_less_and_less_often() -> None:
    delays = [LOAD_RETRIES.delay_s(attempt) for attempt in range(1, 12)]
    assert delays == sorted(delays)
    assert delays[0] == 5
    assert delays[-1] == 300
    assert LOAD_RETRIES.delay_s(3, 0.0) == delays[2] / 2


@pytest.mark.parametrize(
    ("eta_s", "waited_s", "seconds"), [(None, 60, 60), (1.0, 60, 5), (40.0, 60, 40), (9e9, 60, 300), (None, 0.1, 5)]
)
def test_retry_after(eta_s: float | None, waited_s: float, seconds: int) -> None:
    progress = LoadProgress(model="m", state=LoadState.STAGING, eta_s=eta_s)
    assert retry_after_s(progress, waited_s=waited_s) == seconds


def test_the_loading_object_has_the_fields_of_the_contract() -> None:
    progress = LoadProgress(
        model="m", state=LoadState.STAGING, node="w1", bytes_sent=25, total_bytes=100, total_files=2, eta_s=7.4
    )
    assert loading_object(progress) == {
        "model": "m",
        "state": "staging",
        "node": "w1",
        "progress": 25.0,
        "bytes_sent": 25,
        "total_bytes": 100,
        "file_index": 0,
        "total_files": 2,
        "eta_seconds": 7,
    }
