"""A clock that only a test moves."""

from dataclasses import dataclass


@dataclass
class HeldClock:
    now_s: float = 1000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def since_boot_s(self) -> float:
        return self.now_s
