"""How long to wait before the next attempt: one formula, with the numbers of each use beside its code."""

from dataclasses import dataclass

_LARGEST_EXPONENT = 32
"""Keeps the power finite, however often something failed. Every cap is reached long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """An exponential back-off: the delay doubles with every attempt, up to a cap."""

    base_s: float
    cap_s: float
    jitter: float = 0.0
    """The share of each delay that is random: 0 for none, 0.5 for half of it, 1 for full jitter. With jitter, clients
    that failed together do not retry together."""

    def delay_s(self, attempt: int, draw: float = 1.0) -> float:
        """The delay after failed attempt number `attempt` (from 1). `draw` in 0..1 decides the random share."""
        step_s = min(self.cap_s, self.base_s * 2.0 ** min(max(attempt, 1) - 1, _LARGEST_EXPONENT))
        return step_s * (1.0 - self.jitter + self.jitter * draw)


PROCESS_RESTARTS = Backoff(base_s=0.5, cap_s=30.0, jitter=0.5)
"""For child processes of `corral up` and of a frontend. Never at once, so that a crash loop stays cheap."""
