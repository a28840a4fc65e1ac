"""Loops that go on: one failing turn ends neither the loop nor its siblings, and between turns they can be poked."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.core.errors import CorralError

log = structlog.get_logger()

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


async def until_poked(poked: asyncio.Event, *, within_s: float) -> bool:
    """Until somebody pokes, which is True, or the time is over; the next poke counts anew."""
    try:
        async with asyncio.timeout(within_s):
            await poked.wait()
    except TimeoutError:
        return False
    finally:
        poked.clear()
    return True


async def keep_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` for ever; when it fails, say so, wait (longer each time in a row) and start it again."""
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        began_s = loop.time()
        try:
            await work()
        except CorralError as error:
            log.warning("loop.failed", loop=name, error=str(error))
        except Exception:
            log.exception("loop.crashed", loop=name)
        else:
            failures = 0
            continue
        failures = 0 if loop.time() - began_s > LONGEST_WAIT_S else failures + 1
        await asyncio.sleep(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures, 8)))
