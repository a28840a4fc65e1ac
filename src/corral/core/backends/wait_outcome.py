"""The outcome of an operation for a client that waits: whether to wait on, and how it ended."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class WaitedNode:
    node_id: str
    status: str
    """As in the API: queued, downloading, running_on_worker, success, error, not_applicable, cancelled."""


class WaitOutcome(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNFINISHED = "unfinished"
    """Nothing failed, but some node finishes later: it is offline or draining, or its worker needs longer."""


_IN_PROGRESS = frozenset({"downloading", "queued"})
_LATER = _IN_PROGRESS | {"running_on_worker"}


def judge_wait(
    state: str, nodes: Sequence[WaitedNode], *, offline: Collection[str], draining: Collection[str] = ()
) -> WaitOutcome:
    """The outcome of an operation for a client that waits.

    Not waited for: nodes in `offline`, whose intents are kept until they are back; queued nodes in `draining`, which
    get no new work; and nodes that failed, which are retried automatically with growing delays."""
    ended = state != "running"
    waiting = {"downloading": offline, "queued": {*offline, *draining}}
    if not ended and any(node.status in _IN_PROGRESS and node.node_id not in waiting[node.status] for node in nodes):
        return WaitOutcome.RUNNING
    statuses = {node.status for node in nodes}
    if state == "failed" or "error" in statuses:
        return WaitOutcome.FAILED
    if state == "cancelled":
        return WaitOutcome.CANCELLED
    if ended:
        return WaitOutcome.DONE
    return WaitOutcome.UNFINISHED if statuses & _LATER else WaitOutcome.RUNNING
