"""A replica: one backend process that serves one model on one node."""

from dataclasses import dataclass, field
from enum import StrEnum


class ReplicaState(StrEnum):
    STARTING = "starting"
    """It has its place; nothing runs yet."""
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Finishes what it answers and takes nothing new."""
    STOPPING = "stopping"
    """Its process is being ended; the place is free when the node says so."""
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
    token: str = field(default="", repr=False)
    process_key: str = ""
    backend: str = ""
    backend_digest: str = ""
    epoch: int = 0
    generation: int = 0
    pid: int | None = None
    """Of the process that `address` and `token` lead to; None where nobody tells."""
    capacity: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int = 0
    load_options: str = "{}"
    last_used: int = 0
    missed: int = 0
    """Newer reports of its node in a row that did not have its process."""
    stop_attempts: int = 0
    stop_error: str = ""
    stop_due_at: int = 0
    created_at: int = 0
    changed_at: int = 0
    ready_at: int | None = None
