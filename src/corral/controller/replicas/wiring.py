"""Wires the reconcilers of replicas in one frontend: loads, stops, replicas, orphans, endpoints and shared storage."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import structlog

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import NodeReport
from corral.bus.subjects import EVERY_PROGRESS, EVERY_STAGING, ROUTES_CHANGED
from corral.controller.loads.coordinator import LoadCoordinator, LoadRunner
from corral.controller.loads.localai import RemoteStaging
from corral.controller.loads.ports import (
    Builds,
    GrpcLoader,
    LoadServices,
    LocalAiStaging,
    NodeBus,
    PeerFinder,
    Proof,
    Stager,
    Traffic,
)
from corral.controller.loop import ReconcileRuntime
from corral.controller.replicas.attached_endpoints import AttachedEndpointController
from corral.controller.replicas.bucket_gc import Bucket, BucketCollector
from corral.controller.replicas.endpoint_refresh import EndpointRefresher
from corral.controller.replicas.orphan_gc import OrphanCollector
from corral.controller.replicas.replica_controller import ReplicaController
from corral.controller.replicas.stopper import ReplicaStopper
from corral.core.replicas.scaling import ScalingPace
from corral.store.engine.retrying import RetryingDatabase
from corral.store.stores import Stores
from corral.system import Clock, Ids
from corral.system.listening import refuses_connections

log = structlog.get_logger()


class BusLink(NodeBus, Protocol):
    """The part of the bus that replication uses."""

    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None: ...


class Replication:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        stores: Stores,
        bus: BusLink,
        builds: Builds,
        peers: PeerFinder,
        traffic: Traffic,
        grpc: GrpcLoader | None,
        stager: Stager | None,
        localai_stager: LocalAiStaging | None = None,
        proof: Proof | None = None,
        bucket: Bucket | None = None,
        shared_models: bool,
        request_report: Callable[[str], Awaitable[NodeReport]],
        notify_others: Callable[[], Awaitable[None]],
        pace: ScalingPace,
        orphan_grace_s: float,
        lease_s: float,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._bus = bus
        self._notify_others = notify_others
        self.stops = ReplicaStopper(
            runtime,
            stores.replicas,
            bus,
            nodes=stores.nodes,
            refuses=refuses_connections,
            clock=clock,
            on_change=self.changed,
        )
        services = LoadServices(
            stores=stores,
            bus=bus,
            builds=builds,
            peers=peers,
            traffic=traffic,
            grpc=grpc,
            stager=stager,
            localai_stager=localai_stager,
            proof=proof,
            shared_models=shared_models,
            stop_replicas=self.stops.stop,
            notify_changed=self.changed,
            lease_s=lease_s,
            clock=clock,
            ids=ids,
        )
        self.runner = LoadRunner(runtime, _with_retries(services))
        self._remote_staging = RemoteStaging(clock, is_ours=self.runner.loads)
        self.coordinator = LoadCoordinator(services, self.runner, self._remote_staging)
        orphans = OrphanCollector(runtime, stores.staged_files, bus, orphan_grace_s=orphan_grace_s, clock=clock)
        self.controller = ReplicaController(
            runtime,
            stores=stores,
            stopper=self.stops,
            traffic=traffic,
            on_load=self.runner.loop.notify,
            on_change=self.changed,
            pace=pace,
            orphans=orphans,
            clock=clock,
            ids=ids,
        )
        self._endpoints = EndpointRefresher(
            runtime,
            stores.replicas,
            request_report=request_report,
            is_leader=lambda: self.controller.loop.is_leader,
            on_change=self.changed,
        )
        self._attached = AttachedEndpointController(
            runtime,
            stores.attached_endpoints,
            nodes=stores.nodes,
            traffic=traffic,
            drain_ms=pace.drain_ms,
            on_change=self.changed,
        )
        self.loops = {
            "loads": self.runner.run,
            "stops": self.stops.loop.run,
            "replicas": self.controller.loop.run,
            "orphans": orphans.loop.run,
            "endpoints": self._endpoints.run,
            "attached endpoints": self._attached.loop.run,
        }
        if bucket is not None:
            self.loops["bucket"] = BucketCollector(runtime, stores.bucket_weights, bucket).loop.run

    async def start(self) -> None:
        await self._bus.serve(EVERY_PROGRESS, self.runner.on_progress, concurrency=1)
        await self._bus.serve(EVERY_STAGING, self._remote_staging.on_staging, concurrency=1)
        await self._bus.serve(ROUTES_CHANGED, self._on_routes, concurrency=8)

    def notify(self) -> None:
        """Nodes, models or routes changed."""
        self.coordinator.notify()
        self.stops.loop.notify()
        self.controller.loop.notify()
        self._endpoints.loop.notify()

    async def _on_routes(self, _message: BusMessage) -> None:
        self.notify()

    async def changed(self) -> None:
        """Models, scheduling or replicas were changed here: act now, and notify the other frontends."""
        self.notify()
        await self._notify_others()


def _with_retries(services: LoadServices) -> LoadServices:
    """For running loads: they continue when the store is unavailable for a while."""
    return replace(services, stores=Stores(RetryingDatabase(services.stores.database), services.ids))
