"""Why a request went where it went, as frontends tell one another and administrators."""

from typing import Annotated

import msgspec

from corral.bus.limits import PEERS_MOST, PROCESSES_MOST, Amount, Count, Name, Slot, Text


class WhyRequest(msgspec.Struct, frozen=True):
    id: Name


class NotedReplica(msgspec.Struct, frozen=True):
    replica: Name
    node: Name
    slot: Slot
    open: Count | None = None
    """Requests it had open when it was looked at, on all frontends; None for those nobody looked at."""


class NotedFailure(msgspec.Struct, frozen=True):
    replica: Name
    node: Name
    error: Text


class RequestNote(msgspec.Struct, frozen=True, omit_defaults=True):
    id: Name
    model: Name
    path: Text
    began_at: Count
    """Milliseconds of the wall clock."""
    state: Name
    """`answered`, `refused`, `broken`, `left` (by the client), or `open`."""
    status: Count
    key: Name = ""
    first_byte_s: Amount | None = None
    took_s: Amount = 0.0
    load_waited_s: Amount | None = None
    """It waited for a load."""
    queued_s: Amount | None = None
    queue_position: Count | None = None
    chosen: NotedReplica | None = None
    rule: Name = ""
    """How it was chosen: `only`, `two`, `session` or `prefix`."""
    against: NotedReplica | None = None
    """The other one of two."""
    candidates: Annotated[tuple[NotedReplica, ...], msgspec.Meta(max_length=PROCESSES_MOST)] = ()
    failed: Annotated[tuple[NotedFailure, ...], msgspec.Meta(max_length=PEERS_MOST)] = ()
    """Replicas that failed it before one answered."""
    ending: Text = ""
    """What a request that was not answered was told."""
