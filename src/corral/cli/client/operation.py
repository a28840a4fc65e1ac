"""What the command line reads of an operation. Fields it does not know are none of its business."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from corral.core.backends.wait_outcome import WaitedNode, WaitOutcome, judge_wait
from corral.core.sizes import format_bytes

AWAY, DRAINED, LEAVING = "away", "drained", "leaving"

Held = Mapping[str, str]
"""Ids of nodes that get no orders now, with how: away, drained by an administrator, leaving by itself."""


def how_held(node: Mapping[str, Any]) -> str | None:
    """Of a node as the API tells it; None where it takes orders."""
    if node["reachable"]:
        return None
    if node["state"] != "draining":
        return AWAY
    return DRAINED if node.get("drain_requested", True) else LEAVING


class NodePart(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    node_name: str
    status: str
    percentage: float = 0.0
    phase: str | None = None
    file_name: str | None = None
    error: str | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    rate_bytes_per_s: float | None = None
    eta_s: float | None = None
    attempts: int = 0
    next_attempt_at: datetime | None = None

    @property
    def amount(self) -> str:
        """`12.0 MiB of 40.0 MiB, 3.1 MiB/s`; empty when nothing is known."""
        if self.bytes_done is None:
            return ""
        of = f" of {format_bytes(self.bytes_total)}" if self.bytes_total else ""
        rate = f", {format_bytes(self.rate_bytes_per_s)}/s" if self.rate_bytes_per_s else ""
        return f"{format_bytes(self.bytes_done)}{of}{rate}"


class OperationPart(msgspec.Struct, frozen=True, kw_only=True):
    id: str = msgspec.field(name="jobID")
    verb: str
    backend: str = msgspec.field(name="name")
    state: str
    error: str | None = None
    nodes: list[NodePart] = []
    retrying: bool = False
    next_attempt_at: datetime | None = None
    changed_at: datetime | None = None

    def is_before(self, other: "OperationPart") -> bool:
        """Of an older state, by the store's clock."""
        return self.changed_at is not None and other.changed_at is not None and self.changed_at < other.changed_at

    def judge_wait(self, held: Held) -> WaitOutcome:
        stands = [WaitedNode(node.node_id, node.status) for node in self.nodes]
        away = {node for node, how in held.items() if how == AWAY}
        return judge_wait(self.state, stands, offline=away, draining=held.keys() - away)


def read_operation(answer: Any) -> OperationPart:
    return msgspec.convert(answer, OperationPart)
