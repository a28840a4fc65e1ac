"""An event loop whose time jumps to the next timer, and whose order of equal things a seed decides."""

import asyncio
import itertools
import random
import selectors
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(AssertionError):
    """Nothing is ready and no timer is set: everybody waits for everybody."""


class _Jump(selectors.SelectSelector):
    """Never waits: what would be waited for is over at once."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"at {self.loop.time():.3f} s nothing will ever happen again")
        self.loop.advance(max(0.0, timeout))
        return []


_numbers = itertools.count()


class CountedTask(asyncio.Task[Any]):
    """Sets of tasks, as in a TaskGroup, are walked in the order of creation and not of addresses in memory."""

    def __new__(cls, *_args: Any, **_more: Any) -> "CountedTask":
        task = super().__new__(cls)
        task._number = next(_numbers)
        return task

    _number: int

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    _ready: Any

    def __init__(self, seed: int) -> None:
        selector = _Jump()
        selector.loop = self
        self._time_s = 0.0
        self._order = random.Random(f"{seed}:order")
        super().__init__(selector)
        self.set_task_factory(lambda loop, work, **more: CountedTask(work, loop=loop, **more))

    def time(self) -> float:
        return self._time_s

    def advance(self, by_s: float) -> None:
        self._time_s += by_s

    async def getaddrinfo(self, host: Any, port: Any, **_more: Any) -> Any:
        """Every name leads to some machine elsewhere; nobody outside is asked."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("192.0.2.1", port))]

    def _run_once(self) -> None:
        if len(self._ready) > 1:
            ready = list(self._ready)
            self._order.shuffle(ready)
            self._ready.clear()
            self._ready.extend(ready)
        super()._run_once()  # type: ignore[misc]  # asyncio keeps it to itself


def run_virtually(seed: int, work: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop(seed)
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in sorted(left, key=hash):
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*sorted(left, key=hash), return_exceptions=True))
        loop.close()
