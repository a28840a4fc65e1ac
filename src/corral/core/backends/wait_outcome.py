"""How an operation stands for somebody who waits for it: whether waiting on makes sense, and what came of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class WaitedNode:
    node_id: str
    status: str
    """As the API tells it: queued, downloading, running_on_worker, success, error, not_applicable, cancelled."""


class WaitOutcome(Enum):
    GOING_ON = "going on"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNFINISHED = "unfinished"
    """Nothing failed, but some node will only be done later: it is away or draining, or its worker needs longer."""


_AT_IT = frozenset({"downloading", "queued"})
_LATER = _AT_IT | {"running_on_worker"}


def judge_wait(state: str, nodes: Sequence[WaitedNode], *, away: Collection[str], draining: Collection[str] = ()) -> WaitOutcome:
    """What to tell somebody who waits. `away`: ids of nodes that cannot be reached now; an order for one of them is
    kept until it is back, which may be never, so nobody waits for it. `draining`: those that finish what they began and
    get nothing new. A node that failed is tried again by itself, later and later; nobody waits for that either."""
    ended = state != "running"
    held = {"downloading": away, "queued": {*away, *draining}}
    if not ended and any(node.status in _AT_IT and node.node_id not in held[node.status] for node in nodes):
        return WaitOutcome.GOING_ON
    statuses = {node.status for node in nodes}
    if state == "failed" or "error" in statuses:
        return WaitOutcome.FAILED
    if state == "cancelled":
        return WaitOutcome.CANCELLED
    if ended:
        return WaitOutcome.DONE
    return WaitOutcome.UNFINISHED if statuses & _LATER else WaitOutcome.GOING_ON
