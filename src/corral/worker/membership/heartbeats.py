"""When this worker beats: at its pace, and at once when it has room that it had not before."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from corral.system.loops import wait_or_timeout

TOLD_WITHIN_S = 2.0


class Beats:
    def __init__(self) -> None:
        self._due = asyncio.Event()
        self._next = asyncio.Event()

    async def wait(self, *, within_s: float) -> None:
        """Until the next one is due."""
        await wait_or_timeout(self._due, within_s=within_s)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """One beat, its figures read within."""
        begun, self._next = self._next, asyncio.Event()
        try:
            yield
        finally:
            begun.set()

    async def tell_now(self) -> None:
        """Returns when a beat that began since is over, whatever came of it, or it takes too long."""
        following = self._next
        self._due.set()
        try:
            async with asyncio.timeout(TOLD_WITHIN_S):
                await following.wait()
        except TimeoutError:
            pass  # the next one at its usual time tells the same
