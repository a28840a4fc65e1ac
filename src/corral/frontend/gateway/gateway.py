"""The gateway: what all its connections share."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from email.utils import formatdate
from itertools import count
from types import TracebackType
from typing import Any, Self

import structlog

from corral.bus.request_trace import TracedRequest
from corral.core.errors import CorralError
from corral.core.replicas.attached import FRONTEND_HEADER, frontend_mark
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.accounting import RequestAccounting
from corral.frontend.gateway.connection import GatewayConnection
from corral.frontend.gateway.cors import cors_lines
from corral.frontend.gateway.drivers import Driver
from corral.frontend.gateway.endpoints import Endpoint, ServedModel, needs_driver
from corral.frontend.gateway.error_responses import stopping
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.key_meters import KeyMeters
from corral.frontend.gateway.keys import KeyLookup
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.liveness import Liveness
from corral.frontend.gateway.loads import Loads
from corral.frontend.gateway.metrics import GatewayMetrics
from corral.frontend.gateway.protocols.dispatch import is_for_gateway
from corral.frontend.gateway.queueing import dismiss, dispatch, expire
from corral.frontend.gateway.request_trace import RequestRecord, TraceBuffer
from corral.frontend.gateway.route_table import RouteSource, RouteTable
from corral.frontend.gateway.upstream.calls import Upstream
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.frontend.gateway.version_counter import VersionCounter
from corral.frontend.http.proxies import TrustedProxies
from corral.system import Clock
from corral.system.http_server import AsgiServer

log = structlog.get_logger()

TICK_EVERY_S = 0.5
DRAIN_POLL_S = 0.05
LOAD_AGAIN_S = 15.0
"""While fallbacks answer for a model that is not loaded, a load of it is requested this often."""


class Gateway:
    """Enter it before serving. Leaving ends every open request."""

    def __init__(
        self,
        *,
        keys: KeyLookup,
        routes: RouteSource,
        upstream: Upstream,
        inflight: InFlight,
        metrics: GatewayMetrics,
        loads: Loads,
        drivers: Mapping[str, Driver],
        clock: Clock,
        draw: Callable[[], float],
        limits: GatewayLimits,
        usage: UsageCounter | None = None,
        versions: VersionCounter | None = None,
        meters: KeyMeters | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self.keys = keys
        self.proxies = proxies or TrustedProxies()
        self.metrics = metrics
        self.loads = loads
        self.drivers = drivers
        self.clock = clock
        self.now_s = clock.monotonic_s
        self.draw = draw
        self.limits = limits
        self.traces = TraceBuffer(inflight.run[:8], clock)
        self.meters = meters or KeyMeters(frontend="", run=inflight.run, now_s=self.now_s)
        self.accounting = RequestAccounting(self.traces, self.meters, usage, versions)
        self.next_number = count(1).__next__
        self.cors_lines = cors_lines(limits.cors_origin)
        self._id_line = f"{self.cors_lines.decode()}x-request-id: {self.traces.prefix}"
        self.inflight = inflight
        self.frontend_line = f"{FRONTEND_HEADER}: {frontend_mark(inflight.frontend)}\r\n".encode()
        """For whoever attaches this server, so that a cluster does not attach itself."""
        self.table = RouteTable(routes, make_endpoint=self._make_endpoint)
        self.connections: set[GatewayConnection] = set()
        self.buffered_bytes = 0
        self.last_lines = b""
        """The last lines of every answer's head: the date, and the request id up to its number."""
        self._upstream = upstream
        self._tasks = asyncio.TaskGroup()
        self._ticking: asyncio.Task[None] | None = None
        self._spawned: set[asyncio.Task[None]] = set()
        self.is_stopping = False
        """New requests are refused."""
        self.table.on_change = self._on_routes
        inflight.on_capacity = self._dispatch
        inflight.endpoints = self.table.endpoints
        inflight.queues = self._queue_lengths
        self.liveness = Liveness(
            spawn=self.spawn,
            endpoints=lambda: list(self.table.endpoints()),
            abandon=self._abandon,
            clock=clock,
            limits=limits,
        )
        self._register_gauges()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._ticking = self._tasks.create_task(self._keep_ticking(), name="gateway.tick")
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

    def connect(self, asgi: AsgiServer) -> GatewayConnection:
        return GatewayConnection(self, asgi)

    def is_next(self, data: bytes) -> bool:
        return is_for_gateway(data) is not False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(_guarded(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def load_in_background(self, served: ServedModel) -> None:
        """Requests a load that no request waits for, because a fallback answers meanwhile. Not again for a while."""
        now_s = self.now_s()
        if now_s >= served.load_again_s:
            served.load_again_s = now_s + LOAD_AGAIN_S
            self.spawn(self._request_load(served.name))

    async def _request_load(self, model: str) -> None:
        try:
            await self.loads.ensure(model, within_s=0.0)
        except CorralError as error:
            log.debug("route.load_requested", model=model, outcome=str(error))

    def _make_endpoint(self, served: ServedModel, replica: RouteReplica) -> Endpoint:
        attached = replica.attached
        trust = attached.trust if attached is not None and attached.url.is_tls else None
        node_head = f"x-corral-node: {replica.node_name}\r\nx-localai-node: {replica.node_id}\r\n"
        return Endpoint(
            replica,
            default_limit=self.limits.per_replica,
            link=self._upstream.open(replica.address, trust=trust),
            driven=needs_driver(replica),
            metrics=self.metrics.of(served.name, replica.node_name),
            node_head=node_head.encode("ascii", "replace"),
            served=served,
        )

    def _on_routes(self, removed: Sequence[ServedModel]) -> None:
        self.inflight.spread()
        for served in removed:
            dismiss(served)
        for served in self.table.models():
            if served.queue:
                self._dispatch(served)

    def _dispatch(self, served: ServedModel) -> None:
        dispatch(served, self.now_s())

    def _abandon(self, endpoint: Endpoint, text: str, unresponsive_s: float) -> None:
        for connection in list(self.connections):
            connection.abandon(endpoint, text, unresponsive_s)

    async def _keep_ticking(self) -> None:
        while True:
            try:
                self._tick()
            except Exception:  # a bug in one tick must not end the gateway
                log.exception("gateway.tick_crashed")
            await asyncio.sleep(TICK_EVERY_S)

    def _tick(self) -> None:
        """Checks the queues' deadlines, twice a second. The server checks the connections' deadlines as often."""
        now_s = self.now_s()
        self.accounting.fold()
        date = formatdate(self.clock.now_ms() / 1000, usegmt=True)
        self.last_lines = f"date: {date}\r\n{self._id_line}".encode()
        for served in self.table.models():
            if served.queue:
                expire(served, now_s)
                # Capacity also appears when another frontend's request ends or a replica is no longer avoided.
                dispatch(served, now_s)

    def explain(self, request_id: str) -> TracedRequest | None:
        """Why a request went where it went. None when another frontend had it, or when it is no longer kept."""
        self.accounting.fold()
        return self.traces.find(request_id, self._open_records())

    def _open_records(self) -> Iterator[RequestRecord]:
        for connection in self.connections:
            record = connection.open_record()
            if record is not None:
                yield record

    def stop(self) -> None:
        """Accepts no further request. Open requests may still be answered."""
        self.is_stopping = True
        for connection in list(self.connections):
            connection.shutdown()

    async def drain(self) -> None:
        """Lets open requests end, for a limited time, and refuses new ones meanwhile."""
        self.is_stopping = True
        until_s = self.now_s() + self.limits.stop_wait_s
        if open_requests := self._count_open():
            log.info("gateway.draining", requests=open_requests, within_s=self.limits.stop_wait_s)
        while self._count_open() and self.now_s() < until_s:  # noqa: ASYNC110  requests announce no end to the gateway
            await asyncio.sleep(DRAIN_POLL_S)
        if left := self._count_open():
            log.warning("gateway.drain_timed_out", requests=left, after_s=self.limits.stop_wait_s)

    def _count_open(self) -> int:
        return sum(connection.has_request for connection in self.connections)

    def end(self) -> None:
        for connection in list(self.connections):
            connection.end(stopping())

    def _queue_lengths(self) -> dict[str, int]:
        return {served.name: len(served.queue) for served in self.table.models() if served.queue}

    def _register_gauges(self) -> None:
        registry = self.metrics.registry
        registry.gauges(
            "corral_in_flight",
            "Open requests of this frontend at replicas.",
            "model",
            "node",
            read=lambda: _sum(
                ((endpoint.served.name, endpoint.replica.node_name), endpoint.local)
                for endpoint in self.table.endpoints()
            ),
        )
        registry.gauges(
            "corral_queue_length",
            "Requests in the queue.",
            "model",
            read=lambda: (((served.name,), len(served.queue)) for served in self.table.models()),
        )
        registry.gauges(
            "corral_connections",
            "Client connections to the gateway.",
            read=lambda: (((), len(self.connections)),),
        )


def _sum(pairs: Any) -> list[tuple[tuple[str, ...], float]]:
    sums: dict[tuple[str, ...], float] = {}
    for labels, value in pairs:
        sums[labels] = sums.get(labels, 0) + value
    return list(sums.items())


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    """Logs a crash, so that it does not end the task group."""
    try:
        await work
    except Exception:  # a bug in one task must not end the others
        log.exception("gateway.task_crashed")
