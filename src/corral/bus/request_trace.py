"""Request traces: why a request was routed to its replica, as sent between frontends and to administrators."""

from typing import Annotated

import msgspec

from corral.bus.limits import PEERS_MOST, PROCESSES_MOST, Amount, Count, Name, Slot, Text


class ExplainRequest(msgspec.Struct, frozen=True):
    id: Name


class TracedReplica(msgspec.Struct, frozen=True):
    replica: Name
    node: Name
    slot: Slot
    open: Count | None = None
    """Its open requests on all frontends at that moment; None if they were not counted."""


class TracedFailure(msgspec.Struct, frozen=True):
    replica: Name
    node: Name
    error: Text


class TracedSkip(msgspec.Struct, frozen=True):
    model: Name
    reason: Name
    """`busy`, `away` or `failed`."""


class TracedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """How long it waited for a load."""
    queued_s: Amount | None = None
    queue_position: Count | None = None
    chosen: TracedReplica | None = None
    rule: Name = ""
    """How it was chosen: `only`, `two`, `session` or `prefix`."""
    against: TracedReplica | None = None
    """The other candidate, of two."""
    candidates: Annotated[tuple[TracedReplica, ...], msgspec.Meta(max_length=PROCESSES_MOST)] = ()
    failed: Annotated[tuple[TracedFailure, ...], msgspec.Meta(max_length=PEERS_MOST)] = ()
    """Replicas that failed, before or during their answer."""
    continuations: Count = 0
    """How often another replica continued the answer of one that failed."""
    route: Name = ""
    """The public route that led to the model; empty where the client named the model itself."""
    skipped: Annotated[tuple[TracedSkip, ...], msgspec.Meta(max_length=PEERS_MOST)] = ()
    """Models that the route prefers, and why the request did not go there."""
    ending: Text = ""
    """The error response, if the request was not answered."""
