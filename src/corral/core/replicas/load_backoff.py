"""Where a load has failed lately: such a machine rests, and the others come first."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from corral.core.causes import brief_cause
from corral.core.replicas.load_jobs import LOAD_RETRIES

IN_A_ROW = 3
"""So many machines in a row may be unlucky; after that it is likely to be the model, and the next one waits."""
STUBBORN_AFTER = 2
"""Who failed so often is tried only when others cannot even make room."""
FORGOTTEN_AFTER_MS = 60 * 60_000
"""A machine whose rest was over that long ago begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBackoff:
    """Of one machine with one revision of a model."""

    failures: int
    error: str
    failed_at_ms: int
    until_ms: int
    digest: str = ""
    """Of the version of its backend that did not start; empty where it did not come to that."""
    rests: bool
    """Its time has not come: it is left alone until then."""

    @property
    def reason(self) -> str:
        times = "" if self.failures == 1 else f" {self.failures} times"
        again = f"tried here again from {clock_words(self.until_ms)} on"
        return f"it failed here{times} and is {again}: {brief_cause(self.error)}"


def clock_words(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S} UTC"


def cooldown_s(attempts: int, failures_here: int, *, draw: float) -> float:
    """Longer with every failure of this load, wherever it was, and of this machine, whichever load it was."""
    return LOAD_RETRIES.delay_s(max(attempts, failures_here), draw)


def cause_of(setbacks: Iterable[LoadBackoff]) -> str:
    """What the machines that rest said, the latest first, each in a line."""
    resting = sorted((one for one in setbacks if one.rests), key=lambda one: -one.failed_at_ms)
    return "; ".join(dict.fromkeys(brief_cause(one.error).rstrip(".") for one in resting))
