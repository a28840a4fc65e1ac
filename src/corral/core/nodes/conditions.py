"""Conditions: why a reachable node gets no new work. Its running replicas continue."""

from dataclasses import dataclass
from enum import StrEnum

CLOCK_TOLERANCE_MS = 60_000


class ConditionKind(StrEnum):
    DISK_PRESSURE = "disk_pressure"
    DATA_DIRECTORY = "data_directory"
    CLOCK_SKEW = "clock_skew"
    PORTS_EXHAUSTED = "ports_exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Reported by the worker, or found by a frontend. It exists only while it holds."""

    kind: str
    """A `ConditionKind`; a newer worker may report others."""
    reason: str
    remedy: str


def judge_clock(sent_at_ms: int, *, now_ms: int) -> Condition | None:
    """Compares the clock of a heartbeat. Credentials and leases depend on synchronised clocks."""
    off_ms = sent_at_ms - now_ms
    if abs(off_ms) <= CLOCK_TOLERANCE_MS:
        return None
    direction = "ahead of" if off_ms > 0 else "behind"
    return Condition(
        kind=ConditionKind.CLOCK_SKEW,
        reason=f"its clock is {abs(off_ms) / 1000:.0f} s {direction} the store's",
        remedy="Set the clock and enable NTP (`timedatectl set-ntp true`).",
    )
