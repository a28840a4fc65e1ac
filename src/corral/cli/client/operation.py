"""An operation as the API returns it, with the fields that commands use. Other fields are ignored."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from corral.core.backends.wait_outcome import WaitedNode, WaitOutcome, judge_wait
from corral.core.sizes import format_bytes

OFFLINE, DRAINED, STOPPING = "offline", "drained", "stopping"

Held = Mapping[str, str]
"""By node id: why a node gets no commands now. It is offline, drained by an administrator, or stopping."""


def how_held(node: Mapping[str, Any]) -> str | None:
    """Why this node of the API gets no commands now; None when it does."""
    if node["reachable"]:
        return None
    if node["state"] != "draining":
        return OFFLINE
    return DRAINED if node.get("drain_requested", True) else STOPPING


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
    method: str = ""

    @property
    def amount(self) -> str:
        """The transferred bytes: `12.0 MiB of 40.0 MiB, 3.1 MiB/s`; empty when unknown."""
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
        """Whether this is an older state than `other`, by the store's clock."""
        return self.changed_at is not None and other.changed_at is not None and self.changed_at < other.changed_at

    def judge_wait(self, held: Held) -> WaitOutcome:
        stands = [WaitedNode(node.node_id, node.status) for node in self.nodes]
        offline = {node for node, reason in held.items() if reason == OFFLINE}
        return judge_wait(self.state, stands, offline=offline, draining=held.keys() - offline)


def read_operation(answer: Any) -> OperationPart:
    return msgspec.convert(answer, OperationPart)
