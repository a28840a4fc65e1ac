"""The phases of a proxied request. Each one holds what exists only while it lasts.

A warm request has three phases: `Routing`, `Sent`, `Ended`. A streamed answer adds `Relaying`. The others are waits,
which lead back to `Routing`. `TRANSITIONS` lists every change that `ProxiedRequest` makes.
"""

import asyncio
from collections.abc import Mapping

from corral.frontend.gateway.endpoints import Endpoint, PickFields
from corral.frontend.gateway.queueing import Waiter
from corral.frontend.gateway.reply import Reply
from corral.frontend.gateway.upstream.calls import UpstreamCall


class Routing:
    """The next phase is being decided. The request is new, has finished a wait, or was failed by a replica."""

    __slots__ = ()


class _Waiting:
    """A task waits for something and then moves the request on."""

    __slots__ = ("task",)

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task


class Authenticating(_Waiting):
    """The key is not in memory; the store is asked."""

    __slots__ = ()


class Resolving(_Waiting):
    """The model is not in the route table; the table is read again."""

    __slots__ = ()


class AwaitingLoad(_Waiting):
    """No replica serves the model; a load is in progress."""

    __slots__ = ()


class Probing(_Waiting):
    """The only replica broke off; a probe shows whether its process is dead."""

    __slots__ = ()


class Queued:
    """Every usable replica is at its limit."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter


class AtReplica:
    """A replica has the request, and the request holds a lease on the replica's capacity."""

    __slots__ = ("call", "endpoint", "outstanding_before", "pick", "reply")

    call: UpstreamCall | None
    endpoint: Endpoint
    outstanding_before: int
    """Requests that the replica already had, on all frontends."""
    pick: PickFields | None
    """How the replica was picked; None when there was only one."""
    reply: Reply | None


class Sent(AtReplica):
    """Nothing of this replica has reached the client yet, so another one can still take over. A reply is held.

    `ProxiedRequest` sets the fields: calling a method for it would cost more than all of them, for every request."""

    __slots__ = ()


class Relaying(AtReplica):
    """Part of the answer has reached the client. It can be completed, continued by another replica, or broken off."""

    __slots__ = ()

    reply: Reply

    def __init__(self, sent: Sent, reply: Reply) -> None:
        self.endpoint = sent.endpoint
        self.outstanding_before = sent.outstanding_before
        self.pick = sent.pick
        self.call = sent.call
        self.reply = reply


class Ended:
    """The client has its answer, or is gone."""

    __slots__ = ()


Phase = Routing | Authenticating | Resolving | AwaitingLoad | Probing | Queued | Sent | Relaying | Ended
ROUTING, ENDED = Routing(), Ended()

_WAITS: frozenset[type[Phase]] = frozenset({Authenticating, Resolving, AwaitingLoad, Probing, Queued})
TRANSITIONS: Mapping[type[Phase], frozenset[type[Phase]]] = {
    Routing: _WAITS | {Sent, Ended},
    **dict.fromkeys(_WAITS, frozenset[type[Phase]]({Routing, Ended})),
    Sent: frozenset({Relaying, Routing, Ended}),
    Relaying: frozenset({Routing, Ended}),
    Ended: frozenset(),
}
