"""Open requests as leases on the capacity of replicas: each is held by its request and ends with it.

Every frontend process publishes its open requests once a second. The others forget what is not published again within
five seconds, so a killed frontend leaves nothing behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog

from corral.bus.messages import OpenRequests
from corral.core.errors import CorralError
from corral.core.replicas.routing import ReplicaId
from corral.frontend.gateway.endpoints import Endpoint, ServedModel
from corral.store.serving.replicas import ReplicaStore
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

PUBLISH_EVERY_S = 1.0
PUBLISH_AT_MOST_EVERY_S = 0.25
FORGET_AFTER_S = 5.0
TOUCH_EVERY_S = 5.0


@dataclass(slots=True)
class _Published:
    message: OpenRequests
    at_s: float


class InFlight:
    def __init__(self, frontend: str, *, run: str) -> None:
        self.frontend = frontend
        self.run = run
        self._sequence = 0
        self._open: set[Endpoint] = set()
        """Endpoints with requests of this frontend, including those that get no more. They are few."""
        self._last_used_s: dict[ReplicaId, float] = {}
        self._ended: set[Endpoint] = set()
        """Endpoints that finished a request since the last `_settle`."""
        self._touched: set[ReplicaId] = set()
        """Replicas whose latest use is not in the store yet."""
        self._others: dict[str, _Published] = {}
        self._edge = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.on_capacity: Callable[[ServedModel], None] = lambda served: None
        """Called when a request ended while others wait for the same model."""
        self.queues: Callable[[], dict[str, int]] = dict
        self.endpoints: Callable[[], Iterable[Endpoint]] = list

    def begin(self, endpoint: Endpoint) -> None:
        """Starts a lease. The request ends it exactly once, however the request itself ends."""
        endpoint.outstanding += 1
        endpoint.local += 1
        self._open.add(endpoint)
        if endpoint.local == 1 or endpoint.outstanding >= endpoint.limit:
            self._edge.set()

    def end(self, endpoint: Endpoint) -> None:
        # At a full replica, requests of other frontends may wait for this capacity.
        if endpoint.local == 1 or endpoint.outstanding >= endpoint.limit:
            self._edge.set()
        endpoint.outstanding -= 1
        endpoint.local -= 1
        if not endpoint.local:
            self._open.discard(endpoint)
        self._ended.add(endpoint)
        if endpoint.served.queue.length:
            self.on_capacity(endpoint.served)

    def _local(self) -> dict[ReplicaId, int]:
        counts: dict[ReplicaId, int] = {}
        for endpoint in self._open:
            counts[endpoint.replica.id] = counts.get(endpoint.replica.id, 0) + endpoint.local
        return counts

    def _settle(self) -> None:
        """Records which replicas were used. Not for each request: a precision of a second is enough for idle times."""
        ended = {endpoint.replica.id for endpoint in self._ended}
        self._ended.clear()
        self._last_used_s |= dict.fromkeys(ended, self._loop.time())
        self._touched |= ended

    def total(self, replica: ReplicaId) -> int:
        """Open requests at this replica, on all frontends."""
        return self._local().get(replica, 0) + self._remote(replica)

    def queue_depth(self, model: str) -> int:
        """Requests in this model's queue, on all frontends."""
        elsewhere = sum(published.message.queues.get(model, 0) for published in self._others.values())
        return self.queues().get(model, 0) + elsewhere

    def idle_s(self, replica: ReplicaId) -> float | None:
        """Time since the latest known request ended: 0 while one is open, None if there was none."""
        if self.total(replica):
            return 0.0
        self._settle()
        now_s = self._loop.time()
        ages = [now_s - self._last_used_s[replica]] if replica in self._last_used_s else []
        ages += (
            now_s - published.at_s + published.message.idle_ms[replica] / 1000
            for published in self._others.values()
            if replica in published.message.idle_ms
        )
        return min(ages, default=None)

    def _remote(self, replica: ReplicaId) -> int:
        return sum(published.message.replicas.get(replica, 0) for published in self._others.values())

    def receive(self, message: OpenRequests) -> None:
        if message.frontend == self.frontend:
            return
        known = self._others.get(message.frontend)
        if known is not None and known.message.run == message.run and known.message.sequence >= message.sequence:
            return
        self._others[message.frontend] = _Published(message, self._loop.time())
        self.spread()

    def forget_silent(self) -> None:
        limit_s = self._loop.time() - FORGET_AFTER_S
        silent = [frontend for frontend, published in self._others.items() if published.at_s < limit_s]
        for frontend in silent:
            del self._others[frontend]
        if silent:
            self.spread()

    def spread(self) -> None:
        """Applies the open requests of other frontends to the endpoints."""
        for endpoint in self.endpoints():
            endpoint.set_remote(self._remote(endpoint.replica.id))

    def snapshot(self) -> OpenRequests:
        self._sequence += 1
        self._settle()
        now_s = self._loop.time()
        self._last_used_s = {replica: at_s for replica, at_s in self._last_used_s.items() if now_s - at_s < 24 * 3600}
        return OpenRequests(
            frontend=self.frontend,
            run=self.run,
            sequence=self._sequence,
            replicas={str(replica): count for replica, count in self._local().items()},
            idle_ms={str(replica): round((now_s - at_s) * 1000) for replica, at_s in self._last_used_s.items()},
            queues=self.queues(),
        )

    async def keep_publishing(
        self, publish: Callable[[OpenRequests], Awaitable[None]], *, every_s: float = PUBLISH_EVERY_S
    ) -> None:
        """Publishes every so many seconds, and at once when a replica becomes used, idle, full or free."""
        while True:
            await wait_or_timeout(self._edge, within_s=every_s)
            self.forget_silent()
            try:
                await publish(self.snapshot())
            except CorralError as error:
                log.debug("inflight.publish_failed", error=str(error))
            await asyncio.sleep(PUBLISH_AT_MOST_EVERY_S)

    async def keep_touching(self, replicas: ReplicaStore) -> None:
        while True:
            await asyncio.sleep(TOUCH_EVERY_S)
            self._settle()
            local = self._local()
            touched, self._touched = self._touched | set(local), set()
            if not touched:
                continue
            now_s = self._loop.time()
            ages = {
                replica: 0 if replica in local else round((now_s - self._last_used_s[replica]) * 1000)
                for replica in touched
            }
            try:
                await replicas.touch(ages)
            except CorralError as error:
                self._touched |= touched
                log.warning("last_used.write_failed", error=str(error))
