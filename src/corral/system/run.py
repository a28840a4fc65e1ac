"""Runs the main function of a role or a command until it ends or a signal stops it."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from corral.system.cancel_tasks import end_tasks
from corral.system.interrupts import MergingHandler, ignore_interrupts

T = TypeVar("T")


def run_until_signal(main: Callable[[], Awaitable[None]], *, fast: bool = True) -> None:
    """Runs `main`. SIGINT and SIGTERM cancel it, so that its `finally` blocks stop everything in order. Further signals
    have no effect, also while the interpreter shuts down. `fast` uses an event loop that takes more memory."""
    _run_uvloop(main) if fast and sys.platform != "win32" else asyncio.run(_run(main))


def _run_uvloop(main: Callable[[], Awaitable[None]]) -> None:
    import uvloop

    from corral.system.descriptors import raise_descriptor_limit

    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(main))


async def _run(main: Callable[[], Awaitable[None]]) -> None:
    work = asyncio.ensure_future(main())
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            work.cancel()

    loop = asyncio.get_running_loop()

    def hear(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    # Not the loop's own handlers: while the loop removes them, SIGINT raises for a moment.
    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        await work
    except asyncio.CancelledError:
        if not stopping:
            raise
    finally:
        # Tasks that a library left behind must not keep the process from exiting.
        await end_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])
        if stopping:
            ignore_interrupts()
        else:
            signal.signal(signal.SIGINT, before[signal.SIGINT])


def run_interruptible(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """`asyncio.run` for a command. The first interrupt cancels `main` and lets its `finally` blocks finish."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return asyncio.run(main())
    cancel: Callable[[], object] | None = None
    was_interrupted = False

    def interrupt() -> None:
        nonlocal was_interrupted
        if was_interrupted:
            raise KeyboardInterrupt  # it is stuck
        was_interrupted = True
        if cancel is not None:
            cancel()

    async def run() -> T:
        nonlocal cancel
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancel = partial(loop.call_soon_threadsafe, task.cancel)
        if was_interrupted:
            raise asyncio.CancelledError
        try:
            return await main()
        finally:
            cancel = None

    before = signal.signal(signal.SIGINT, MergingHandler(interrupt))
    try:
        result = asyncio.run(run())
    except asyncio.CancelledError:
        if not was_interrupted:
            raise
    else:
        if not was_interrupted:
            return result
    finally:
        if not was_interrupted:
            signal.signal(signal.SIGINT, before)
    raise KeyboardInterrupt
