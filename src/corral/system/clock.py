"""Wall time and monotonic time. Durations inside a task use `asyncio.sleep` and `asyncio.timeout` directly."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970. For timestamps people read, never for deciding who is late."""
        ...

    def monotonic_s(self) -> float: ...

    def since_boot_s(self) -> float:
        """Monotonic, the same for every process of this boot, and counting while the machine sleeps."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself: the warm path asks several times for every request.
    monotonic_s = staticmethod(time.monotonic)

    def since_boot_s(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))  # the first: Linux only


def pause(seconds: float) -> None:
    """For a command line that waits; nothing with an event loop may do this."""
    time.sleep(seconds)
