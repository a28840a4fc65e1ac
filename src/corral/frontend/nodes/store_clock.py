"""The store's time, estimated from this frontend's clock."""

from collections.abc import Awaitable, Callable

from corral.core.errors import CorralError
from corral.system import Clock

COMPARE_EVERY_S = 60.0


class StoreClock:
    """Compares the store's clock with ours once a minute. While it is unreachable, the last difference counts."""

    def __init__(self, read_ms: Callable[[], Awaitable[int]], clock: Clock) -> None:
        self._read_ms, self._clock = read_ms, clock
        self._ahead_ms = 0
        self._compare_due_s = float("-inf")

    async def now_ms(self) -> int:
        now_s = self._clock.monotonic_s()
        if now_s >= self._compare_due_s:
            self._compare_due_s = (
                now_s + COMPARE_EVERY_S
            )  # before the wait: one request reads the store, the others use the last difference
            try:
                self._ahead_ms = await self._read_ms() - self._clock.now_ms()
            except CorralError:
                return self._clock.now_ms() + self._ahead_ms
        return self._clock.now_ms() + self._ahead_ms
