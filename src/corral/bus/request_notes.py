"""Why a request went where it went, as frontends tell one another and administrators."""

import msgspec


class WhyRequest(msgspec.Struct, frozen=True):
    id: str


class NotedReplica(msgspec.Struct, frozen=True):
    replica: str
    node: str
    slot: int
    open: int | None = None
    """Requests it had open when it was looked at, on all frontends; None for those nobody looked at."""


class NotedFailure(msgspec.Struct, frozen=True):
    replica: str
    node: str
    error: str


class RequestNote(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    model: str
    path: str
    began_at: int
    """Milliseconds of the wall clock."""
    state: str
    """`answered`, `refused`, `broken`, `left` (by the client), or `open`."""
    status: int
    key: str = ""
    first_byte_s: float | None = None
    took_s: float = 0.0
    load_waited_s: float | None = None
    """It waited for a load."""
    queued_s: float | None = None
    queue_position: int | None = None
    chosen: NotedReplica | None = None
    rule: str = ""
    """How it was chosen: `only`, `two`, `session` or `prefix`."""
    against: NotedReplica | None = None
    """The other one of two."""
    candidates: tuple[NotedReplica, ...] = ()
    failed: tuple[NotedFailure, ...] = ()
    """Replicas that failed it before one answered."""
    ending: str = ""
    """What a request that was not answered was told."""
