"""Loops that go on: one failing turn ends neither the loop nor its siblings, and between turns they can be poked."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.core.errors import CorralError

log = structlog.get_logger()

FIRST_WAIT_S = 0.1
LONGEST_AWAY_S = 2.0
"""After an error that passes by itself, as of a store that restarts: no longer than most loops wait between turns."""
LONGEST_CRASHED_S = 30.0
"""After an error nobody foresaw, which may well come again."""


async def wait_or_timeout(notified: asyncio.Event, *, within_s: float) -> bool:
    """Until somebody pokes, which is True, or the time is over; the next poke counts anew."""
    try:
        async with asyncio.timeout(within_s):
            await notified.wait()
    except TimeoutError:
        return False
    finally:
        notified.clear()
    return True


def restart_delay_s(failures: int, *, transient: bool) -> float:
    """The first restart follows almost at once; only a loop that keeps failing is given time."""
    longest_s = LONGEST_AWAY_S if transient else LONGEST_CRASHED_S
    return min(longest_s, FIRST_WAIT_S * 2.0 ** min(failures - 1, 16))


async def keep_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` for ever; when it fails, say so, wait (longer each time in a row) and start it again."""
    loop = asyncio.get_running_loop()
    failures, delay_s = 0, 0.0
    while True:
        began_s = loop.time()
        try:
            await work()
        except CorralError as error:
            failed: CorralError | None = error
        except Exception:
            failed = None
            log.exception("loop.crashed", loop=name)
        else:
            failures = 0
            continue
        failures = 1 if loop.time() - began_s > max(delay_s, LONGEST_AWAY_S) else failures + 1
        delay_s = restart_delay_s(failures, transient=failed is not None)
        if failed is not None and failures.bit_count() == 1:  # the 1st, 2nd, 4th in a row: an outage fills no log
            log.warning("loop.failed", loop=name, error=str(failed), in_a_row=failures)
        await asyncio.sleep(delay_s)
