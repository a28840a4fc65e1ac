"""Whether and when a crashed process is restarted."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    budget: int = 5  # restarts allowed within the window
    window_s: float = 600.0
    base_s: float = 1.0
    cap_s: float = 60.0


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
    """`crashes_s` are the times of all crashes, the one just seen included. A crash older than the window is forgiven.

    The delay keeps at least half of its length: full jitter would sometimes restart a crashing GPU process at once.
    """
    recent = len(recent_crashes(policy, crashes_s, now_s=now_s))
    if recent > policy.budget:
        return GiveUp(reason=f"it ended {recent} times within {policy.window_s:.0f} s (limit {policy.budget})")
    longest_s = min(policy.cap_s, policy.base_s * 2.0 ** min(max(recent - 1, 0), 16))
    return RestartAfter(delay_s=longest_s * (0.5 + draw / 2), attempt=max(recent, 1))


def recent_crashes(policy: RestartPolicy, crashes_s: Sequence[float], *, now_s: float) -> tuple[float, ...]:
    """Crashes within the window. A time in the future belongs to another boot of the machine, and does not count."""
    return tuple(crash_s for crash_s in crashes_s if 0 <= now_s - crash_s < policy.window_s)
