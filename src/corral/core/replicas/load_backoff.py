"""Back-off of failed loads: a node where a load failed cools down, and other nodes are tried first."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from corral.core.causes import brief_cause, join_reasons, without_stop
from corral.core.replicas.load_jobs import LOAD_RETRIES

MAX_FAILED_NODES = 3
"""After failures on so many nodes the model itself is the likely cause, and the load waits before the next node."""
LAST_RESORT_AFTER = 2
"""A node with so many failures is tried only when no other node can take the model, not even by eviction."""
FORGOTTEN_AFTER_MS = 60 * 60_000
"""The count of failures starts again when the cool-down ended this long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBackoff:
    """Failed loads of one model revision on one node."""

    failures: int
    error: str
    failed_at_ms: int
    until_ms: int
    digest: str = ""
    """The backend build that did not start; empty when the load failed earlier."""
    cooling_down: bool
    """`until_ms` is in the future: the node is not tried before."""

    @property
    def reason(self) -> str:
        times = "" if self.failures == 1 else f" {self.failures} times"
        next_attempt = f"next attempt after {format_utc_time(self.until_ms)}"
        return f"load failed on this node{times}; {next_attempt}: {brief_cause(self.error)}"


def format_utc_time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S} UTC"


def cooldown_s(attempts: int, failures_here: int, *, draw: float) -> float:
    """Grows with the attempts of this load on any node, and with the failures on this node."""
    return LOAD_RETRIES.delay_s(max(attempts, failures_here), draw)


def cause_of(backoffs: Iterable[LoadBackoff]) -> str:
    """The distinct errors of nodes that cool down, the latest first."""
    cooling = sorted((one for one in backoffs if one.cooling_down), key=lambda one: -one.failed_at_ms)
    return join_reasons(without_stop(brief_cause(one.error)) for one in cooling)
