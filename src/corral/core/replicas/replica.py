"""A replica: one backend process that serves one model on one node."""

from dataclasses import dataclass, field
from enum import StrEnum


class ReplicaState(StrEnum):
    STARTING = "starting"
    """Its place is reserved; no process runs yet."""
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Finishes its open requests and gets no new ones."""
    STOPPING = "stopping"
    """Its process is being stopped; its place is free when the node confirms that."""
    FAILED = "failed"


COMING = (ReplicaState.STARTING, ReplicaState.LOADING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    id: str
    node_id: str
    model: str
    slot: int
    revision: str
    state: ReplicaState
    reason: str = ""
    address: str = ""
    protocol: str = ""
    endpoints: str = ""
    """Client APIs that its process speaks itself: paths, with spaces between them."""
    continuation: str = ""
    """How its process continues an answer that another one began; empty if it cannot."""
    token: str = field(default="", repr=False)
    process_key: str = ""
    backend: str = ""
    backend_digest: str = ""
    epoch: int = 0
    generation: int = 0
    pid: int | None = None
    """Of the process at `address` with `token`; None where the worker does not report it."""
    capacity: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int = 0
    load_options: str = "{}"
    last_used: int = 0
    missed: int = 0
    """Consecutive newer reports of its node without its process."""
    stop_attempts: int = 0
    stop_error: str = ""
    stop_due_at: int = 0
    created_at: int = 0
    changed_at: int = 0
    ready_at: int | None = None
