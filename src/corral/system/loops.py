"""Loops that run until they are cancelled. A failed turn ends neither the loop nor its siblings."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.core.backoff import Backoff
from corral.core.errors import CorralError

log = structlog.get_logger()

AFTER_ERROR = Backoff(base_s=0.1, cap_s=2.0, jitter=0.5)
"""After an error of ours, such as a store that restarts: it passes, and few loops wait longer between their turns."""
AFTER_CRASH = Backoff(base_s=0.1, cap_s=30.0, jitter=0.5)
"""After an unexpected exception, which is likely to be raised again."""


async def wait_or_timeout(notified: asyncio.Event, *, within_s: float) -> bool:
    """Wait for the event, then clear it. False when the time is over first."""
    try:
        async with asyncio.timeout(within_s):
            await notified.wait()
    except TimeoutError:
        return False
    finally:
        notified.clear()
    return True


class FailureStreak:
    """Failures of one loop in a row. It logs them and grows the delay until the next try."""

    def __init__(self, loop: str) -> None:
        self._loop, self._failures = loop, 0

    def note(self, error: Exception, draw: float = 1.0) -> float:
        """Count and log a failure. Returns the seconds to wait before the next try: almost none after the first."""
        self._failures += 1
        if not isinstance(error, CorralError):
            log.error("loop.crashed", loop=self._loop, exc_info=error)
            return AFTER_CRASH.delay_s(self._failures, draw)
        if self._failures.bit_count() == 1:  # the 1st, 2nd, 4th, 8th in a row: an outage does not fill the log
            log.warning("loop.failed", loop=self._loop, error=str(error), in_a_row=self._failures)
        return AFTER_ERROR.delay_s(self._failures, draw)

    def end(self) -> None:
        """The loop works again: the next failure counts as the first."""
        self._failures = 0


async def keep_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` again and again. After a failure, log it, wait and start it again."""
    loop = asyncio.get_running_loop()
    streak, delay_s = FailureStreak(name), 0.0
    while True:
        began_s = loop.time()
        try:
            await work()
        except Exception as error:  # noqa: BLE001  the streak logs it
            if loop.time() - began_s > max(delay_s, AFTER_ERROR.cap_s):  # it worked for a while in between
                streak.end()
            delay_s = streak.note(error)
        else:
            streak.end()
            continue
        await asyncio.sleep(delay_s)
