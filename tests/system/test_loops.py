"""Loops are started again: at once after a blink, ever later while nothing helps."""

import asyncio
from itertools import pairwise

import pytest
from structlog.testing import CapturingLogger

from corral.core.errors import Unavailable
from corral.system import loops
from corral.system.loops import FailureStreak, keep_running
from harness.waiting import wait_until_async


@pytest.mark.parametrize(
    ("error", "longest_s"),
    [
        pytest.param(Unavailable("the store restarts"), 2.0, id="an-error-that-passes"),
        pytest.param(ZeroDivisionError(), 30.0, id="a-crash"),
    ],
)
def test_the_first_restart_comes_at_once_and_later_ones_within_a_bound(error: Exception, longest_s: float) -> None:
    streak = FailureStreak("test")
    delays = [streak.note(error) for _ in range(1, 40)]
    assert delays[0] <= 0.1
    assert all(earlier <= later for earlier, later in pairwise(delays))
    assert delays[-1] == longest_s
    streak.end()
    assert streak.note(error) == delays[0], "a success ends the streak"


def test_an_outage_is_logged_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = CapturingLogger()
    monkeypatch.setattr(loops, "log", logged)
    streak = FailureStreak("test")
    for _ in range(100):
        streak.note(Unavailable("the store restarts"))
    assert [call.args for call in logged.calls] == [("loop.failed",)] * 7  # the 1st, 2nd, 4th ... 64th


async def test_a_loop_that_failed_once_runs_again_within_half_a_second() -> None:
    starts: list[float] = []
    loop = asyncio.get_running_loop()

    async def work() -> None:
        starts.append(loop.time())
        if len(starts) == 1:
            raise Unavailable("the store is restarted")
        await asyncio.Event().wait()

    async def is_started() -> bool:
        return len(starts) == 2

    running = asyncio.create_task(keep_running("test", work))
    await wait_until_async(is_started, what="it is started again")
    running.cancel()
    assert starts[1] - starts[0] < 0.5


async def test_a_loop_outlives_errors_nobody_foresaw() -> None:
    starts = 0

    async def work() -> None:
        nonlocal starts
        starts += 1
        if starts < 3:
            raise ZeroDivisionError
        await asyncio.Event().wait()

    async def is_started() -> bool:
        return starts == 3

    running = asyncio.create_task(keep_running("test", work))
    await wait_until_async(is_started, what="it is started again")
    running.cancel()
