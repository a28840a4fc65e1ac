"""Whether and when a crashed process is restarted."""

from collections.abc import Sequence
from dataclasses import dataclass

from corral.core.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    budget: int = 5  # restarts allowed within the window
    window_s: float = 600.0
    base_s: float = 1.0
    cap_s: float = 60.0

    @property
    def backoff(self) -> Backoff:
        """Half of it jitter: with full jitter, a crashing GPU process would sometimes restart at once."""
        return Backoff(base_s=self.base_s, cap_s=self.cap_s, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAfter:
    delay_s: float
    attempt: int  # 1 for the first restart within the window


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    reason: str


def plan_restart(
    policy: RestartPolicy, crashes_s: Sequence[float], *, now_s: float, draw: float
) -> RestartAfter | GiveUp:
    """`crashes_s`: the times of all crashes, the latest included. Crashes older than the window do not count."""
    recent = len(recent_crashes(policy, crashes_s, now_s=now_s))
    if recent > policy.budget:
        return GiveUp(reason=f"it ended {recent} times within {policy.window_s:.0f} s (limit {policy.budget})")
    return RestartAfter(delay_s=policy.backoff.delay_s(recent, draw), attempt=max(recent, 1))


def recent_crashes(policy: RestartPolicy, crashes_s: Sequence[float], *, now_s: float) -> tuple[float, ...]:
    """Crashes within the window. A time in the future belongs to another boot of the machine, and does not count."""
    return tuple(crash_s for crash_s in crashes_s if 0 <= now_s - crash_s < policy.window_s)
