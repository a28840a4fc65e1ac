"""Runs a role's main until it ends or a signal asks it to."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import structlog

from corral.system.ending import end_tasks
from corral.system.interrupts import ignore_interrupts

log = structlog.get_logger()


def run_until_signal(main: Callable[[], Awaitable[None]]) -> None:
    """SIGINT and SIGTERM cancel `main`, whose `finally` blocks are the orderly stop. A second one changes nothing, also
    while the interpreter itself ends."""
    asyncio.run(_run(main)) if sys.platform == "win32" else _run_uvloop(main)


def _run_uvloop(main: Callable[[], Awaitable[None]]) -> None:
    import uvloop

    from corral.system.descriptors import raise_descriptor_limit

    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(main))


async def _run(main: Callable[[], Awaitable[None]]) -> None:
    work = asyncio.ensure_future(main())
    asked = False

    def ask(name: str) -> None:
        nonlocal asked
        if not asked:
            asked = True
            log.debug("role.stopping", signal=name)
            work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask, number.name)
    try:
        await work
    except asyncio.CancelledError:
        if not asked:
            raise
    finally:
        # What a library left behind must not keep the process from ending.
        await end_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        if asked:
            loop.remove_signal_handler(signal.SIGINT)
            ignore_interrupts()
