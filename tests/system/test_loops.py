"""Loops are started again: at once after a blink, ever later while nothing helps."""

import asyncio
from itertools import pairwise

import pytest

from corral.core.errors import Unavailable
from corral.system.loops import LONGEST_AWAY_S, LONGEST_CRASHED_S, keep_running, restart_delay_s
from harness.waiting import wait_until_async


@pytest.mark.parametrize(
    ("transient", "longest_s"), [pytest.param(True, LONGEST_AWAY_S), pytest.param(False, LONGEST_CRASHED_S)]
)
def test_the_first_restart_comes_at_once_and_later_ones_within_a_bound(transient: bool, longest_s: float) -> None:
    delays = [restart_delay_s(failures, transient=transient) for failures in range(1, 40)]
    assert delays[0] <= 0.1
    assert all(earlier <= later for earlier, later in pairwise(delays))
    assert delays[-1] == longest_s


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
