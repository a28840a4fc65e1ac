"""Keeps many tasks that become ready at once from blocking the event loop."""

import asyncio
from collections import deque


class Pace:
    """Lets a limited number of tasks continue in each pass of the event loop. Other work runs in between."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._counting:
            self._counting = True
            loop.call_soon(self._next, loop)
        if self._left and not self._waiting:
            self._left -= 1
            return
        waiting = loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = self._most
        while self._left and self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():  # the waiting task may have been cancelled
                waiting.set_result(None)
                self._left -= 1
        self._counting = self._left < self._most
        if self._counting:
            loop.call_soon(self._next, loop)
