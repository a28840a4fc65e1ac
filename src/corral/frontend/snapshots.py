"""What the store says, read by at most one at a time and at most so often, however many ask."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from corral.system import Clock

Value = TypeVar("Value")


class Snapshot(Generic[Value]):
    def __init__(self, read: Callable[[], Awaitable[Value]], *, clock: Clock, every_s: float) -> None:
        self._read, self._clock, self._every_s = read, clock, every_s
        self._reading: asyncio.Task[Value] | None = None
        """Under way, or the latest: all who ask share it, and its failure too."""
        self._kept_since_s = 0.0

    async def get(self) -> Value:
        task = self._reading
        if task is None or (task.done() and self._clock.monotonic_s() - self._kept_since_s >= self._every_s):
            task = self._reading = asyncio.create_task(self._look())
        if not task.done():
            await asyncio.wait((task,))  # whoever stops waiting takes the read from nobody
        failure = task.exception()
        if failure is not None:
            raise failure.with_traceback(None)
        return task.result()

    def forget(self) -> None:
        """Somebody changed what it says."""
        self._reading = None

    async def _look(self) -> Value:
        """What it says is as old as the question; that there is no answer, is known at the end."""
        self._kept_since_s = self._clock.monotonic_s()
        try:
            return await self._read()
        except Exception:
            self._kept_since_s = self._clock.monotonic_s()
            raise
