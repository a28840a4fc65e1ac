"""Wall time and monotonic time. Durations inside a task use `asyncio.sleep` and `asyncio.timeout` directly."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970. For timestamps, never for time-outs."""
        ...

    def monotonic_s(self) -> float: ...

    def since_boot_s(self) -> float:
        """Monotonic, the same for every process of this boot, and including the time the machine was suspended."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself, for speed: the gateway reads it several times per request.
    monotonic_s = staticmethod(time.monotonic)

    def since_boot_s(self) -> float:
        return time.clock_gettime(
            getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        )  # CLOCK_BOOTTIME exists only on Linux


def pause(seconds: float) -> None:
    """For commands without an event loop."""
    time.sleep(seconds)
