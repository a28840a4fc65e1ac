"""Waits for the first of several coroutines."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*contenders: Coroutine[Any, Any, T]) -> T:
    """The result, or the exception, of the first to finish; the others are cancelled and awaited.

    If several finish in the same iteration of the event loop, the first argument wins.
    """
    tasks = [asyncio.ensure_future(contender) for contender in contenders]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return winner.result()
