"""Requests that wait in a model's queue until one of its replicas has capacity.

Each API key has its own line, and the lines take turns (`FairQueue`). A request that finds no capacity when its turn
comes goes to the end of its line."""

from typing import TYPE_CHECKING

from corral.frontend.gateway.error_responses import queue_full

if TYPE_CHECKING:
    from corral.frontend.gateway.endpoints import ServedModel
    from corral.frontend.gateway.limits import GatewayLimits
    from corral.frontend.gateway.proxied_request import ProxiedRequest
    from corral.frontend.gateway.request_trace import RequestTrace


class Waiter:
    """A place in the queue."""

    __slots__ = ("_key_id", "_served", "deadline_s", "owner", "position", "since_s")

    def __init__(
        self, served: "ServedModel", key_id: str, owner: "ProxiedRequest", *, now_s: float, deadline_s: float
    ) -> None:
        self._served = served
        self._key_id = key_id
        self.owner = owner
        self.since_s = now_s
        self.deadline_s = deadline_s
        self.position = served.queue.put(key_id, self) + 1

    def leave(self) -> bool:
        """False when the request was already taken from the queue."""
        return self._served.queue.remove(self._key_id, self)


def join_queue(
    served: "ServedModel",
    owner: "ProxiedRequest",
    *,
    key_id: str,
    trace: "RequestTrace",
    limits: "GatewayLimits",
    now_s: float,
) -> Waiter:
    """Raises `queue_full`, except for requests that waited for a load: they were counted when that wait began.

    A request that joins again, after a replica failed it, keeps its deadline and its first position."""
    waiting = len(served.queue)
    if waiting >= limits.queue and trace.load_s is None:
        raise queue_full(f"every replica of {served.name!r} is busy", waiting, limits)
    trace.queued_since_s = trace.queued_since_s or now_s
    deadline_s = trace.queued_since_s + limits.queue_wait_s
    waiter = Waiter(served, key_id, owner, now_s=now_s, deadline_s=deadline_s)
    trace.position = trace.position or waiter.position
    return waiter


def dispatch(served: "ServedModel", now_s: float) -> None:
    """Gives queued requests their turn while a replica has capacity, each at most once."""
    for _ in range(len(served.queue)):
        if served.endpoints and not any(endpoint.has_capacity(now_s) for endpoint in served.endpoints):
            return
        waiter = served.queue.take()
        if waiter is None:
            return
        waiter.owner.on_turn()


def expire(served: "ServedModel", now_s: float) -> None:
    """Ends the wait of requests whose deadline has passed."""
    late = [waiter for waiter in served.queue if waiter.deadline_s <= now_s]
    for waiter in late:
        if waiter.leave():
            waiter.owner.on_queue_timeout()
