"""The lane and what all its connections share."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from email.utils import formatdate
from itertools import count
from types import TracebackType
from typing import Any, Self

import structlog

from corral.bus.request_trace import TracedRequest
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.accounting import RequestAccounting
from corral.frontend.gateway.answers import Refusal
from corral.frontend.gateway.connection import GatewayConnection, is_ours
from corral.frontend.gateway.drivers import Driver
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.keys import KeyRing
from corral.frontend.gateway.limits import LaneLimits
from corral.frontend.gateway.liveness import Liveness
from corral.frontend.gateway.loads import Loads
from corral.frontend.gateway.metrics import Meters
from corral.frontend.gateway.ports import RouteSource, UsageSink
from corral.frontend.gateway.route_table import RouteTable
from corral.frontend.gateway.targets import Endpoint, ServedModel, Waiter, needs_driver
from corral.frontend.gateway.trace import Note, TraceBuffer
from corral.frontend.gateway.upstream.calls import Upstream
from corral.frontend.http.proxies import TrustedProxies
from corral.system import Clock
from corral.system.http_server import AsgiSide

log = structlog.get_logger()

TICK_EVERY_S = 0.5


class Gateway:
    """Entered before it serves; leaving ends what still runs."""

    def __init__(
        self,
        *,
        keys: KeyRing,
        routes: RouteSource,
        upstream: Upstream,
        inflight: InFlight,
        meters: Meters,
        loads: Loads,
        drivers: Mapping[str, Driver],
        clock: Clock,
        draw: Callable[[], float],
        limits: LaneLimits,
        usage: UsageSink | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self.keys = keys
        self.proxies = proxies or TrustedProxies()
        self.meters = meters
        self.loads = loads
        self.drivers = drivers
        self.clock = clock
        self.now_s = clock.monotonic_s
        self.draw = draw
        self.limits = limits
        self.notes = TraceBuffer(inflight.run[:8], clock)
        self.ledger = RequestAccounting(self.notes, usage)
        self.next_number = count(1).__next__
        self._id_line = f"x-request-id: {self.notes.prefix}"
        self.inflight = inflight
        self.table = RouteTable(routes, make_target=self._make_target)
        self.connections: set[GatewayConnection] = set()
        self.buffered_bytes = 0
        self.last_lines = b""
        """Of every answer's head: the date, and the request's id up to its number."""
        self._upstream = upstream
        self._tasks = asyncio.TaskGroup()
        self._ticking: asyncio.Task[None] | None = None
        self._spawned: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.table.on_change = self._on_routes
        inflight.on_room = self._dispatch
        inflight.targets = self.table.targets
        inflight.queues = self._queue_lengths
        self.liveness = Liveness(
            spawn=self.spawn,
            targets=lambda: list(self.table.targets()),
            give_up=self._give_up,
            clock=clock,
            believed_s=limits.probe_after_s,
        )
        self._register_gauges()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._ticking = self._tasks.create_task(self._tick_for_ever(), name="lane.tick")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._ticking is not None
        self._ticking.cancel()
        self.end()
        for task in self._spawned:
            task.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    def connect(self, asgi: AsgiSide) -> GatewayConnection:
        return GatewayConnection(self, asgi)

    def is_next(self, data: bytes) -> bool:
        return is_ours(data) is not False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(_guarded(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def _make_target(self, served: ServedModel, replica: RouteReplica) -> Endpoint:
        node_head = f"x-corral-node: {replica.node_name}\r\nx-localai-node: {replica.node_id}\r\n"
        return Endpoint(
            replica,
            limit=replica.capacity or self.limits.per_replica,
            link=self._upstream.open(replica.address),
            driven=needs_driver(replica),
            meters=self.meters.of(served.name, replica.node_name),
            node_head=node_head.encode("ascii", "replace"),
            served=served,
        )

    def _on_routes(self) -> None:
        self.inflight.spread()
        for served in self.table.models():
            if served.queue:
                self._dispatch(served)

    def _dispatch(self, served: ServedModel) -> None:
        """Each that waits gets at most one look: one that finds no place goes to the end of the line."""
        now_s = self.now_s()
        for _ in range(len(served.queue)):
            if served.targets and not any(target.has_room(now_s) for target in served.targets):
                return
            waiter = served.queue.take()
            if waiter is None:
                return
            waiter.owner.on_turn()

    def _give_up(self, target: Endpoint, text: str, lifeless_s: float) -> None:
        for connection in list(self.connections):
            connection.leave_silent(target, text, lifeless_s)

    async def _tick_for_ever(self) -> None:
        while True:
            self._tick()
            await asyncio.sleep(TICK_EVERY_S)

    def _tick(self) -> None:
        """What requests wait for, twice a second. The server looks at their connections as often."""
        now_s = self.now_s()
        self.ledger.fold()
        date = formatdate(self.clock.now_ms() / 1000, usegmt=True)
        self.last_lines = f"date: {date}\r\n{self._id_line}".encode()
        for served in self.table.models():
            if served.queue:
                late: list[Waiter] = [waiter for waiter in served.queue if waiter.deadline_s <= now_s]
                for waiter in late:
                    if waiter.leave():
                        waiter.owner.on_waited_too_long()
                # Room may also come from elsewhere: another frontend's requests, or a replica no longer avoided.
                self._dispatch(served)

    def explain(self, request_id: str) -> TracedRequest | None:
        """Why a request went where it went; None when it is another frontend's, or forgotten."""
        self.ledger.fold()
        return self.notes.find(request_id, self._open_notes())

    def _open_notes(self) -> Iterator[Note]:
        for connection in self.connections:
            note = connection.open_note()
            if note is not None:
                yield note

    def stop(self) -> None:
        """No connection is kept for another request; those that work go on for a moment."""
        self._stopping = True
        for connection in list(self.connections):
            connection.shutdown()

    def end(self) -> None:
        for connection in list(self.connections):
            connection.end(Refusal(503, "this frontend is stopping; send the request again", code="stopping"))

    def _queue_lengths(self) -> dict[str, int]:
        return {served.name: len(served.queue) for served in self.table.models() if served.queue}

    def _register_gauges(self) -> None:
        registry = self.meters.registry
        registry.gauges(
            "corral_in_flight",
            "Requests that replicas work on for this frontend.",
            "model",
            "node",
            read=lambda: _sum(
                ((target.served.name, target.replica.node_name), target.local) for target in self.table.targets()
            ),
        )
        registry.gauges(
            "corral_queue_length",
            "Requests in line, by model.",
            "model",
            read=lambda: (((served.name,), len(served.queue)) for served in self.table.models()),
        )
        registry.gauges(
            "corral_connections",
            "Client connections of the OpenAI address.",
            read=lambda: (((), len(self.connections)),),
        )


def _sum(pairs: Any) -> list[tuple[tuple[str, ...], float]]:
    sums: dict[tuple[str, ...], float] = {}
    for labels, value in pairs:
        sums[labels] = sums.get(labels, 0) + value
    return list(sums.items())


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    """One request's crash is its own."""
    try:
        await work
    except Exception:
        log.exception("lane.task_crashed")
