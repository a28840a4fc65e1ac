"""The store's time, as far as this frontend knows it."""

from collections.abc import Awaitable, Callable

from corral.core.errors import CorralError
from corral.system import Clock

COMPARE_EVERY_S = 60.0


class StoreClock:
    """Compared with ours once a minute. While the store is away the last difference holds: clocks do not jump often."""

    def __init__(self, read_ms: Callable[[], Awaitable[int]], clock: Clock) -> None:
        self._read_ms, self._clock = read_ms, clock
        self._ahead_ms = 0
        self._compare_s = float("-inf")

    async def now_ms(self) -> int:
        now_s = self._clock.monotonic_s()
        if now_s >= self._compare_s:
            self._compare_s = now_s + COMPARE_EVERY_S  # before we wait: one asks, the others use what is known
            try:
                self._ahead_ms = await self._read_ms() - self._clock.now_ms()
            except CorralError:
                return self._clock.now_ms() + self._ahead_ms
        return self._clock.now_ms() + self._ahead_ms
