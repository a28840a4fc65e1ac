"""Open requests, as leases: each is held by the exchange it belongs to and ends with it.

Every frontend process tells the others once a second what it works on. What is not told again within five seconds is
forgotten, so a killed frontend leaves nothing behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog

from corral.bus.messages import OpenRequests
from corral.core.errors import CorralError
from corral.core.replicas.routing import ReplicaId
from corral.frontend.gateway.ports import LastUsed
from corral.frontend.gateway.targets import Endpoint, ServedModel
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

TELL_EVERY_S = 1.0
TELL_AT_MOST_EVERY_S = 0.25
FORGET_AFTER_S = 5.0
TOUCH_EVERY_S = 5.0


@dataclass(slots=True)
class _Told:
    message: OpenRequests
    at_s: float


class InFlight:
    def __init__(self, frontend: str, *, run: str) -> None:
        self._frontend = frontend
        self.run = run
        self._sequence = 0
        self._open: set[Endpoint] = set()
        """Those that have requests of ours, also where they get no more: few, however many replicas there are."""
        self._last_used_s: dict[ReplicaId, float] = {}
        self._ended: set[Endpoint] = set()
        """Those that finished a request since the last look."""
        self._touched: set[ReplicaId] = set()
        """Replicas whose latest use the store has not been told."""
        self._others: dict[str, _Told] = {}
        self._edge = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.on_room: Callable[[ServedModel], None] = lambda served: None
        """Told when a request ended while others wait for the same model."""
        self.queues: Callable[[], dict[str, int]] = dict
        self.targets: Callable[[], Iterable[Endpoint]] = list

    def begin(self, target: Endpoint) -> None:
        """A lease: who begins ends, exactly once, however the request ends."""
        target.outstanding += 1
        target.local += 1
        self._open.add(target)
        if target.local == 1 or target.outstanding >= target.limit:
            self._edge.set()

    def end(self, target: Endpoint) -> None:
        # Where it was full, requests may wait for this place on other frontends.
        if target.local == 1 or target.outstanding >= target.limit:
            self._edge.set()
        target.outstanding -= 1
        target.local -= 1
        if not target.local:
            self._open.discard(target)
        self._ended.add(target)
        if target.served.queue.length:
            self.on_room(target.served)

    def _local(self) -> dict[ReplicaId, int]:
        counts: dict[ReplicaId, int] = {}
        for target in self._open:
            counts[target.replica.id] = counts.get(target.replica.id, 0) + target.local
        return counts

    def _settle(self) -> None:
        """To the second is enough for how long a replica has been idle: so not once for every request."""
        ended = {target.replica.id for target in self._ended}
        self._ended.clear()
        self._last_used_s |= dict.fromkeys(ended, self._loop.time())
        self._touched |= ended

    def total(self, replica: ReplicaId) -> int:
        """Open requests at this replica, on all frontends."""
        return self._local().get(replica, 0) + self._remote(replica)

    def local_total(self) -> int:
        return sum(self._local().values())

    def queue_depth(self, model: str) -> int:
        """Requests in line for this model, on all frontends."""
        elsewhere = sum(told.message.queues.get(model, 0) for told in self._others.values())
        return self.queues().get(model, 0) + elsewhere

    def idle_s(self, replica: ReplicaId) -> float | None:
        """Since the latest request anyone knows of ended: 0 while one is open, None if there was none."""
        if self.total(replica):
            return 0.0
        self._settle()
        now_s = self._loop.time()
        ages = [now_s - self._last_used_s[replica]] if replica in self._last_used_s else []
        ages += (
            now_s - told.at_s + told.message.idle_ms[replica] / 1000
            for told in self._others.values()
            if replica in told.message.idle_ms
        )
        return min(ages, default=None)

    def _remote(self, replica: ReplicaId) -> int:
        return sum(told.message.replicas.get(replica, 0) for told in self._others.values())

    def hear(self, message: OpenRequests) -> None:
        if message.frontend == self._frontend:
            return
        known = self._others.get(message.frontend)
        if known is not None and known.message.run == message.run and known.message.sequence >= message.sequence:
            return
        self._others[message.frontend] = _Told(message, self._loop.time())
        self.spread()

    def forget_silent(self) -> None:
        limit_s = self._loop.time() - FORGET_AFTER_S
        silent = [frontend for frontend, told in self._others.items() if told.at_s < limit_s]
        for frontend in silent:
            del self._others[frontend]
        if silent:
            self.spread()

    def spread(self) -> None:
        """What others work on counts at the next pick."""
        for target in self.targets():
            target.set_remote(self._remote(target.replica.id))

    def tell(self) -> OpenRequests:
        self._sequence += 1
        self._settle()
        now_s = self._loop.time()
        self._last_used_s = {replica: at_s for replica, at_s in self._last_used_s.items() if now_s - at_s < 24 * 3600}
        return OpenRequests(
            frontend=self._frontend,
            run=self.run,
            sequence=self._sequence,
            replicas={str(replica): count for replica, count in self._local().items()},
            idle_ms={str(replica): round((now_s - at_s) * 1000) for replica, at_s in self._last_used_s.items()},
            queues=self.queues(),
        )

    async def keep_telling(self, publish: Callable[[OpenRequests], Awaitable[None]]) -> None:
        while True:
            await wait_or_timeout(self._edge, within_s=TELL_EVERY_S)
            self.forget_silent()
            try:
                await publish(self.tell())
            except CorralError as error:
                log.debug("inflight.not_told", error=str(error))
            await asyncio.sleep(TELL_AT_MOST_EVERY_S)

    async def keep_touching(self, last_used: LastUsed) -> None:
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
                await last_used.touch(ages)
            except CorralError as error:
                self._touched |= touched
                log.warning("last_used.not_written", error=str(error))
