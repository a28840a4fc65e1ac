"""Cancels tasks reliably."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_AFTER_S = 0.2
TRIES_MOST = 50


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels repeatedly until all tasks have ended, for ten seconds at most.

    One cancel is not enough: in Python 3.11 `asyncio.wait_for`, which libraries use, loses a cancel that coincides
    with the awaited result, and a task that retries in a loop then continues."""
    left = {task for task in tasks if not task.done()}
    for _ in range(TRIES_MOST):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_AFTER_S)
    import structlog  # here, because the supervisor of `corral up` uses this module and keeps its memory small

    structlog.get_logger().warning("tasks.not_ended", tasks=sorted(task.get_name() for task in left))
