"""Garbage collection without long pauses.

From time to time Python searches all objects for unreachable cycles. In a frontend with a thousand nodes this pauses
it for a tenth of a second and finds next to nothing, because nearly all of its objects are in use. Here, only new
objects are searched. Objects that survive a collection are frozen, and searched again only when the process has grown.
Objects without a cycle are always freed at once.
"""

import asyncio
import gc
from collections.abc import Callable

import psutil

NEW_OBJECTS, NEW_ROUNDS = 5_000, 5
"""A collection of so many new objects takes a few milliseconds. After so many rounds, all new objects are searched."""
NEVER = 1_000_000_000
EVERY_S = 30.0
GROWN_BYTES = 64 << 20


def _memory_bytes() -> int:
    return psutil.Process().memory_info().rss


async def collect_in_small_steps(*, every_s: float = EVERY_S, memory_bytes: Callable[[], int] = _memory_bytes) -> None:
    gc.set_threshold(NEW_OBJECTS, NEW_ROUNDS, NEVER)
    # The start leaves little garbage, and the first clients should not wait for a search.
    gc.freeze()
    while True:
        at_first = memory_bytes()
        while memory_bytes() - at_first < GROWN_BYTES:
            await asyncio.sleep(every_s)
            _collect()
        gc.unfreeze()
        _collect()


def _collect() -> None:
    gc.collect()
    gc.freeze()
