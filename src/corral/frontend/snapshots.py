"""What the store says, read by at most one at a time and at most so often, however many ask."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from corral.system import Clock

Value = TypeVar("Value")


class Snapshot(Generic[Value]):
    def __init__(self, read: Callable[[], Awaitable[Value]], *, clock: Clock, every_s: float) -> None:
        self._read, self._clock, self._every_s = read, clock, every_s
        self._kept: tuple[float, Value] | None = None
        self._reading = asyncio.Lock()

    async def get(self) -> Value:
        async with self._reading:
            began_s = self._clock.monotonic_s()
            if self._kept is None or began_s - self._kept[0] >= self._every_s:
                self._kept = (began_s, await self._read())
            return self._kept[1]

    def forget(self) -> None:
        """Somebody changed what it says."""
        self._kept = None
