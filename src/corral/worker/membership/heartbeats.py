"""Schedules heartbeats: periodically, and at once when capacity becomes free."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from corral.system.loops import wait_or_timeout

SENT_WITHIN_S = 2.0


class HeartbeatTrigger:
    def __init__(self) -> None:
        self._due = asyncio.Event()
        self._next = asyncio.Event()

    async def wait(self, *, within_s: float) -> None:
        """Waits until the next heartbeat is due."""
        await wait_or_timeout(self._due, within_s=within_s)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Encloses one heartbeat, including the reading of its values."""
        current, self._next = self._next, asyncio.Event()
        try:
            yield
        finally:
            current.set()

    async def send_now(self) -> None:
        """Returns when a heartbeat that started after the call has finished or failed, or after a time-out."""
        following = self._next
        self._due.set()
        try:
            async with asyncio.timeout(SENT_WITHIN_S):
                await following.wait()
        except TimeoutError:
            pass  # the next regular heartbeat reports the same
