"""Everything about replicas that runs in a frontend, put together: loads, stops, and the controller that wants them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import structlog

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import NodeReport
from corral.bus.subjects import EVERY_PROGRESS, EVERY_STAGING, ROUTES_CHANGED
from corral.controller.loads.coordinator import LoadCoordinator, LoadRunner
from corral.controller.loads.localai import RemoteStaging
from corral.controller.loads.ports import Builds, GrpcLoader, LoadServices, NodeBus, PeerBook, Stager, Traffic
from corral.controller.replicas.bucket_gc import Bucket, BucketCollector
from corral.controller.replicas.endpoint_refresh import EndpointRefresher
from corral.controller.replicas.orphan_gc import OrphanCollector
from corral.controller.replicas.replica_controller import ReplicaController
from corral.controller.replicas.stopper import ReplicaStopper
from corral.core.replicas.scaling import ScalingPace
from corral.store.engine.retrying import RetryingDatabase
from corral.store.stores import Stores
from corral.system import Clock, Ids

log = structlog.get_logger()


class BusLink(NodeBus, Protocol):
    """What replication needs of the bus."""

    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None: ...


class Replication:
    def __init__(
        self,
        *,
        holder: str,
        stores: Stores,
        bus: BusLink,
        builds: Builds,
        peers: PeerBook,
        traffic: Traffic,
        grpc: GrpcLoader | None,
        stager: Stager | None,
        bucket: Bucket | None = None,
        shared_models: bool,
        ask_report: Callable[[str], Awaitable[NodeReport]],
        hint: Callable[[], Awaitable[None]],
        pace: ScalingPace,
        orphan_grace_s: float,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._bus = bus
        self._hint_routes = hint
        self.stops = ReplicaStopper(stores.replicas, bus, changed=self.changed)
        services = LoadServices(
            stores=stores,
            bus=bus,
            builds=builds,
            peers=peers,
            traffic=traffic,
            grpc=grpc,
            stager=stager,
            shared_models=shared_models,
            stop_replicas=self.stops.stop,
            hint=self.changed,
            clock=clock,
            ids=ids,
        )
        self.runner = LoadRunner(holder, _patient(services))
        self._elsewhere = RemoteStaging(clock, is_ours=self.runner.loads)
        self.desk = LoadCoordinator(services, self.runner, self._elsewhere)
        leftovers = OrphanCollector(stores.staged_files, bus, orphan_grace_s=orphan_grace_s, clock=clock)
        self.controller = ReplicaController(
            holder=holder,
            stores=stores,
            stops=self.stops,
            traffic=traffic,
            loads_changed=self.runner.notify,
            hint=self.changed,
            pace=pace,
            leftovers=leftovers,
            clock=clock,
            ids=ids,
        )
        self._learning = EndpointRefresher(
            stores.replicas, ask_report=ask_report, is_ours=lambda: self.controller.looks, hint=self.changed
        )
        self.loops = {
            "loads": self.runner.run,
            "stops": self.stops.run,
            "replicas": self.controller.run,
            "leftovers": leftovers.run,
            "restarted processes": self._learning.run,
        }
        if bucket is not None:
            self.loops["bucket"] = BucketCollector(stores.bucket_weights, bucket).run

    async def start(self) -> None:
        await self._bus.serve(EVERY_PROGRESS, self.runner.hear, concurrency=1)
        await self._bus.serve(EVERY_STAGING, self._elsewhere.hear, concurrency=1)
        await self._bus.serve(ROUTES_CHANGED, self._on_routes, concurrency=8)

    def notify(self) -> None:
        """Nodes, models or routes changed."""
        self.desk.notify()
        self.stops.notify()
        self.controller.notify()
        self._learning.notify()

    async def _on_routes(self, _message: BusMessage) -> None:
        self.notify()

    async def changed(self) -> None:
        """Models, scheduling or replicas were changed here: act now, and tell the others."""
        self.notify()
        await self._hint_routes()


def _patient(services: LoadServices) -> LoadServices:
    """For running loads: they continue when the store is unavailable for a while."""
    return replace(services, stores=Stores(RetryingDatabase(services.stores.database), services.ids))
