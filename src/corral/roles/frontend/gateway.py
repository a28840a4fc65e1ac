"""Wires the gateway of a frontend: routes, keys, open requests, traffic history and metrics."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from corral.bus.client import Bus, BusMessage
from corral.bus.messages import KeyUse, OpenRequests, TrafficReport, decode, encode
from corral.bus.request_trace import ExplainRequest, TracedRequest
from corral.bus.subjects import EXPLAIN_REQUEST, INFLIGHT, KEY_USE, ROUTES_CHANGED, TRAFFIC
from corral.core.errors import OutcomeUnknown, Unavailable
from corral.core.nodes.history import memory_use
from corral.frontend.api.status.routes import FrontendInfo
from corral.frontend.auth.rules import Authorizer
from corral.frontend.gateway.drivers import Driver
from corral.frontend.gateway.gateway import Gateway
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.key_meters import KeyMeters
from corral.frontend.gateway.keys import StoredKeys
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import Loads
from corral.frontend.gateway.metrics import GatewayMetrics
from corral.frontend.gateway.traffic import FleetTraffic
from corral.frontend.gateway.upstream.upstream import HttpUpstream
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.frontend.gateway.version_counter import VersionCounter
from corral.frontend.http.proxies import TrustedProxies
from corral.roles.frontend.key_peers import KeyPeers
from corral.roles.frontend.multi_process import ProcessSlot
from corral.settings.roles import FrontendSettings
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids
from corral.telemetry.metrics import Metric, MetricRegistry, render
from corral.telemetry.shared_metrics import add_metrics, decode_metrics, encode_metrics, without_gauges

METRICS_EVERY_S = 2.0
MEMORY_EVERY_S = 30.0
"""Often enough that every minute of a node's history has a value."""
TRACE_WITHIN_S = 2.0


def _limits(settings: FrontendSettings) -> GatewayLimits:
    return GatewayLimits(
        body_bytes=settings.request_limit_bytes,
        per_replica=settings.requests_per_replica,
        queue=settings.queue_limit,
        queue_wait_s=settings.queue_wait_s,
        load_wait_s=settings.model_load_wait_s,
        load_notice_s=settings.load_notice_interval_s,
        stop_wait_s=settings.stop_wait_s,
        silence_s=settings.response_timeout_s,
        probe_after_s=settings.probe_after_s,
        cors_origin=settings.cors_origin,
        show_node=settings.expose_node_header,
    )


class GatewayWiring:
    """Enter it before serving. Leaving it ends what still runs."""

    def __init__(
        self,
        info: FrontendInfo,
        place: ProcessSlot,
        stores: Stores,
        bus: Bus,
        authorizer: Authorizer,
        inflight: InFlight,
        *,
        disk: Disk,
        loads: Loads,
        drivers: Mapping[str, Driver],
        usage: UsageCounter,
        versions: VersionCounter,
        registry: MetricRegistry,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._bus = bus
        self._disk = disk
        self._place = place
        self._metrics_dir = info.settings.data_dir / "metrics"
        self._counted_before = self._read_counts(place)
        self._stores = stores
        self._inflight = inflight
        self._key_peers = KeyPeers(bus, stores.frontends, info.id)
        self._keys = StoredKeys(stores.access, authorizer, auth=info.settings.auth, peers=self._key_peers)
        self._upstream = HttpUpstream()
        self.meters = KeyMeters(frontend=info.id, run=inflight.run, now_s=clock.monotonic_s)
        self.registry = registry
        self.gateway = Gateway(
            keys=self._keys,
            routes=stores.replicas,
            upstream=self._upstream,
            inflight=inflight,
            metrics=GatewayMetrics(self.registry),
            loads=loads,
            drivers=drivers,
            clock=clock,
            draw=ids.draw,
            limits=_limits(info.settings),
            usage=usage,
            versions=versions,
            meters=self.meters,
            proxies=TrustedProxies(info.settings.trusted_proxies),
        )
        self.traffic = FleetTraffic(self.gateway.metrics, self.gateway.accounting.fold, frontend=info.id, clock=clock)
        self.loops = {
            "routes": self.gateway.table.follow,
            "keys": self._keys.follow,
            "in flight": self._publish_open_requests,
            "key use": self._publish_key_use,
            "budgets": self._read_budgets,
            "last used": self._write_last_used,
            "traffic": self._publish_traffic,
            "memory": self._read_memory,
        }
        if place.count > 1:
            self.loops["metrics"] = self._write_metrics
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._upstream)
        await self._opened.enter_async_context(self.gateway)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    async def start(self) -> None:
        await self._bus.serve(ROUTES_CHANGED, self._on_routes, concurrency=8)
        await self._bus.serve(INFLIGHT, self._on_open_requests, concurrency=8)
        await self._bus.serve(KEY_USE, self._on_key_use, concurrency=8)
        await self._bus.serve(TRAFFIC, self._on_traffic, concurrency=8)
        await self._bus.serve(EXPLAIN_REQUEST, self._on_why, concurrency=8)
        await self._key_peers.serve(self._keys.answer_peer, drop=self._keys.drop)
        await self.gateway.table.catch_up()
        await self.meters.read_sums(self._stores.usage)

    def notify_keys(self) -> None:
        """An API key changed, here or on another frontend."""
        self._keys.notify()

    def _read_counts(self, place: ProcessSlot) -> list[Metric]:
        return decode_metrics(self._disk.read(self._metrics_dir / place.name("frontend"))) if place.count > 1 else []

    def _collect(self) -> list[Metric]:
        self.gateway.accounting.fold()
        return add_metrics([without_gauges(self._counted_before), self.registry.collect()])

    def read_metrics(self) -> str:
        """Metrics of all processes of this frontend."""
        return render(add_metrics([self._collect(), *(self._read_counts(place) for place in self._place.siblings())]))

    async def _write_metrics(self) -> None:
        while True:
            try:
                content = encode_metrics(self._collect())
                await asyncio.to_thread(self._disk.write, self._metrics_dir / self._place.name("frontend"), content)
            except OSError as error:
                raise Unavailable(f"cannot write metrics to {self._metrics_dir}: {error.strerror}") from error
            await asyncio.sleep(METRICS_EVERY_S)

    async def _on_routes(self, _message: BusMessage) -> None:
        self.gateway.table.notify()

    async def _on_open_requests(self, message: BusMessage) -> None:
        self._inflight.receive(decode(message.data, OpenRequests))

    async def _on_key_use(self, message: BusMessage) -> None:
        self.meters.receive(decode(message.data, KeyUse))

    async def _on_traffic(self, message: BusMessage) -> None:
        self.traffic.receive(decode(message.data, TrafficReport))

    async def _on_why(self, message: BusMessage) -> bytes | None:
        trace = self.gateway.explain(decode(message.data, ExplainRequest).id)
        return encode(trace) if trace is not None else None

    async def explain(self, request_id: str) -> TracedRequest | None:
        """The trace of a request, whichever frontend served it."""
        trace = self.gateway.explain(request_id)
        if trace is not None:
            return trace
        asked = encode(ExplainRequest(request_id))
        try:
            return decode(await self._bus.request(EXPLAIN_REQUEST, asked, within_s=TRACE_WITHIN_S), TracedRequest)
        except (OutcomeUnknown, Unavailable):  # a frontend that has no trace of it does not answer
            return None

    async def _publish_traffic(self) -> None:
        async def publish(report: TrafficReport) -> None:
            await self._bus.publish(TRAFFIC, encode(report))

        await self.traffic.keep_publishing(publish)

    async def _read_memory(self) -> None:
        while True:
            self.traffic.record_memory({node.name: memory_use(node) for node in await self._stores.nodes.read_all()})
            await asyncio.sleep(MEMORY_EVERY_S)

    async def _publish_open_requests(self) -> None:
        async def publish(message: OpenRequests) -> None:
            await self._bus.publish(INFLIGHT, encode(message))

        await self._inflight.keep_publishing(publish)

    async def _publish_key_use(self) -> None:
        async def publish(message: KeyUse) -> None:
            await self._bus.publish(KEY_USE, encode(message))

        await self.meters.keep_publishing(publish)

    async def _read_budgets(self) -> None:
        await self.meters.keep_reading_sums(self._stores.usage, self._keys.has_budgets)

    async def _write_last_used(self) -> None:
        await self._inflight.keep_touching(self._stores.replicas)
