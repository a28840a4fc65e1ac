"""A value of the store that all readers share: one read at a time, with a minimum interval, however many readers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from corral.system import Clock

Value = TypeVar("Value")


class Snapshot(Generic[Value]):
    def __init__(self, read: Callable[[], Awaitable[Value]], *, clock: Clock, every_s: float) -> None:
        self._read, self._clock, self._every_s = read, clock, every_s
        self._reading: asyncio.Task[Value] | None = None
        """The read in progress, or the latest; all readers share its result or its error."""
        self._read_at_s = 0.0

    async def get(self) -> Value:
        task = self._reading
        if task is None or (task.done() and self._clock.monotonic_s() - self._read_at_s >= self._every_s):
            task = self._reading = asyncio.create_task(self._start_read())
        if not task.done():
            await asyncio.wait((task,))  # a cancelled reader does not cancel the read for the others
        failure = task.exception()
        if failure is not None:
            raise failure.with_traceback(None)
        return task.result()

    def forget(self) -> None:
        """Discards the value because it has changed."""
        self._reading = None

    async def _start_read(self) -> Value:
        """The age of a value counts from the start of its read, that of an error from the end."""
        self._read_at_s = self._clock.monotonic_s()
        try:
            return await self._read()
        except Exception:  # failed reads are spaced like successful ones
            self._read_at_s = self._clock.monotonic_s()
            raise
