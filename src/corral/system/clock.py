"""Wall time and monotonic time. Durations inside a task use `asyncio.sleep` and `asyncio.timeout` directly."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970. For timestamps people read, never for deciding who is late."""
        ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself: the warm path asks several times for every request.
    monotonic_s = staticmethod(time.monotonic)
