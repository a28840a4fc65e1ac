"""Collecting garbage without a long pause.

Python now and then looks at every object for cycles that nothing holds. In a frontend of a thousand machines that is a
pause of a tenth of a second, in the middle of whatever it was doing, and it finds next to nothing: what a frontend
remembers, it remembers on purpose. So only what is new is looked at: whatever outlives a look is set aside, and all of
it is gone through when the process has grown. Objects without a cycle are freed at once in any case.
"""

import asyncio
import gc
from collections.abc import Callable

import psutil

NEW_OBJECTS, NEW_ROUNDS = 5_000, 5
"""A look at this many takes a few milliseconds; after so many of them, one at all of those together."""
NEVER = 1_000_000_000
EVERY_S = 30.0
GROWN_BYTES = 64 << 20


def _memory_bytes() -> int:
    return psutil.Process().memory_info().rss


async def collect_in_small_steps(*, every_s: float = EVERY_S, memory_bytes: Callable[[], int] = _memory_bytes) -> None:
    gc.set_threshold(NEW_OBJECTS, NEW_ROUNDS, NEVER)
    # A start leaves little behind, and those who just came should not wait while it is looked for.
    gc.freeze()
    while True:
        at_first = memory_bytes()
        while memory_bytes() - at_first < GROWN_BYTES:
            await asyncio.sleep(every_s)
            _look()
        gc.unfreeze()
        _look()


def _look() -> None:
    gc.collect()
    gc.freeze()
