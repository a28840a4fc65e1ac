"""Wires one frontend and runs it until it is stopped."""

import asyncio
import json
from pathlib import Path

import structlog

from corral import __version__
from corral.artifacts import Artifacts
from corral.bus.client import Bus
from corral.controller.backends.gate_reader import GateReader
from corral.controller.backends.progress import publish_progress
from corral.controller.loop import ReconcileRuntime
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.controller.replicas.rollout import ReplicaRollout
from corral.controller.replicas.smoke_test import SmokeTest
from corral.controller.replicas.wiring import Replication
from corral.core.errors import CorralError, Unavailable
from corral.core.replicas.routing import LOCALAI_GRPC, ReplicaId
from corral.core.replicas.scaling import ScalingPace
from corral.frontend.api.access.routes import KEYS
from corral.frontend.api.backends.listing import FleetListing
from corral.frontend.api.event_kinds import (
    backend_kind,
    gallery_kind,
    model_kind,
    node_kind,
    operation_kind,
    replica_kind,
    rollout_kind,
)
from corral.frontend.api.operations.open_operations import OpenOperations
from corral.frontend.api.status.routes import FrontendInfo
from corral.frontend.app import Components, build_app
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.bus_credentials import BusAuthority
from corral.frontend.auth.denial_log import DenialLog
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.auth.rules import Authorizer
from corral.frontend.galleries import Galleries
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.loads import OnDemandLoads
from corral.frontend.gateway.replica_proof import ReplicaProof
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.frontend.gateway.version_counter import VersionCounter
from corral.frontend.http.event_feed import LiveFeed
from corral.frontend.http.proxies import TrustedProxies
from corral.frontend.models.gallery import ModelGallery
from corral.frontend.models.localai_stager import LocalAiStager
from corral.frontend.models.weights_downloads import WeightsDownloads
from corral.frontend.models.weights_stager import FrontendStager, RecordedBucket, open_weights_bucket
from corral.roles.frontend.backends import BackendsWiring
from corral.roles.frontend.change_notifier import ChangeNotifier
from corral.roles.frontend.drivers import DriversWiring
from corral.roles.frontend.exposure import local_url
from corral.roles.frontend.gateway import GatewayWiring
from corral.roles.frontend.multi_process import ProcessSlot
from corral.roles.frontend.nodes import NodesWiring, process_lease_s
from corral.roles.frontend.scheduling_seed import seed_scheduling
from corral.settings.roles import FrontendSettings
from corral.settings.values import redact_url
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids
from corral.system.gc_pauses import collect_in_small_steps
from corral.system.http_call import http_call
from corral.system.http_server import default_limits, serve_http
from corral.system.listen import Listener
from corral.system.localai_loader import LocalAiLoader
from corral.system.loops import keep_running
from corral.system.worker_logs import WorkerLogs
from corral.telemetry.metrics import MetricRegistry

log = structlog.get_logger()

REPORT_EVERY_S = 5.0
FED_BY = {"routes": ("models", "replicas"), "operations": ("operations", "rollouts")}
"""By kind of changed rows: the kinds of events that they change."""


def _pace(settings: FrontendSettings) -> ScalingPace:
    ttl_s = settings.model_idle_ttl_s
    return ScalingPace(
        cool_down_ms=int(settings.scale_cool_down_s * 1000),
        idle_ms=int(settings.scale_down_after_s * 1000),
        idle_ttl_ms=int(ttl_s * 1000) if ttl_s is not None else None,
        drain_ms=int(settings.replica_drain_s * 1000),
        deleted_drain_ms=int(settings.deleted_model_drain_s * 1000),
    )


class FrontendRole:
    def __init__(
        self,
        info: FrontendInfo,
        place: ProcessSlot,
        stores: Stores,
        bus: Bus,
        authority: BusAuthority,
        token: str,
        *,
        artifacts: Artifacts,
        clock: Clock,
        ids: Ids,
        disk: Disk,
    ) -> None:
        settings = info.settings
        self._info, self._place, self._stores, self._bus = info, place, stores, bus
        self._artifacts, self._clock, self._ids, self._disk = artifacts, clock, ids, disk
        self._changes = ChangeNotifier(bus, info.id, notify=self._rows_changed)
        registry = MetricRegistry()
        self._runtime = ReconcileRuntime(
            holder=info.id, leases=stores.leases, registry=registry, clock=clock, draw=ids.draw
        )
        self._refused = RefusedMessages(stores.nodes, clock, registry)
        self._galleries = Galleries(
            artifacts,
            backends=settings.backend_galleries,
            models=settings.model_galleries,
            every_s=settings.gallery_refresh_s,
            clock=clock,
        )
        self._nodes = NodesWiring(
            info,
            self._runtime,
            stores,
            bus,
            authority,
            self._refused,
            on_change=self._changes.announce,
            galleries=self._galleries,
            clock=clock,
        )
        self._usage = UsageCounter(stores.usage, writer=ids.uuid())
        self._versions = VersionCounter(stores.version_figures, writer=ids.uuid())
        self._inflight = InFlight(info.id, run=ids.uuid())
        self._proof = ReplicaProof(http_call, shared_token=token, clock=clock, ids=ids)
        self._backends = self._wire_backends()
        self._open_operations = OpenOperations(stores.operations, self._backends.progress)
        self._listing = FleetListing(
            self._backends.policies, self._backends.upgrades, stores.intents, stores.operations
        )
        self._feed = self._wire_feed()
        self._replication = self._wire_replication(token)
        self._drivers = DriversWiring(
            stores,
            request_report=self._nodes.reports.request_report,
            registration_token=token,
            changed=self._routes_changed,
            clock=clock,
            ids=ids,
        )
        brute_force = BruteForceGuard(clock)
        public = frozenset({"/metrics"}) if settings.metrics_public else frozenset[str]()
        authorizer = self._authorizer = Authorizer(
            stores.access,
            brute_force,
            clock=clock,
            auth=settings.auth,
            public=public,
            public_url=settings.public_url or "",
        )
        self._gateway = GatewayWiring(
            info, place, stores, bus, authorizer, self._inflight, disk=disk,
            loads=OnDemandLoads(self._replication.coordinator), drivers={LOCALAI_GRPC: self._drivers.driver},
            usage=self._usage, versions=self._versions, registry=registry, clock=clock, ids=ids,
        )  # fmt: skip
        self._components = self._for_routes(
            authority, authorizer, brute_force, JoinTokens(stores.access, token, clock=clock)
        )

    def _wire_backends(self) -> BackendsWiring:
        rollout = ReplicaRollout(
            self._stores,
            notify=lambda: self._replication.notify(),
            others=SmokeTest(self._bus),
            report_step=lambda operation, node, words: publish_progress(self._bus, self._clock, operation, node, words),
            clock=self._clock,
            ids=self._ids,
        )
        return BackendsWiring(
            self._info,
            self._runtime,
            self._stores,
            self._bus,
            self._artifacts,
            self._galleries,
            self._nodes.reports,
            rollout,
            self._refused,
            GateReader(self._stores, prompts=self._proof),
            in_flight=lambda replica: self._inflight.total(ReplicaId(replica)),
            announce=self._changes.announce,
            clock=self._clock,
            ids=self._ids,
        )

    def _wire_feed(self) -> LiveFeed:
        stores, backends = self._stores, self._backends
        feed = LiveFeed(
            [
                node_kind(stores.nodes, stores.replicas, self._inflight),
                operation_kind(stores.operations, backends.progress),
                rollout_kind(stores.rollouts, stores.nodes),
                backend_kind(self._listing, stores.nodes.now_ms),
                model_kind(stores.models, stores.nodes.now_ms),
                replica_kind(stores.replicas, self._inflight, stores.nodes.now_ms),
                gallery_kind(self._galleries, stores.nodes.now_ms),
            ]
        )
        self._galleries.listen(lambda: feed.notify("galleries"))
        backends.progress.listen(lambda: feed.notify("operations"))
        return feed

    def _wire_replication(self, token: str) -> Replication:
        settings = self._info.settings
        bucket = open_weights_bucket(settings, clock=self._clock, ids=self._ids)
        replication = Replication(
            self._runtime,
            stores=self._stores,
            bus=self._bus,
            builds=self._backends.builds,
            peers=self._backends.peers,
            traffic=self._inflight,
            grpc=LocalAiLoader(shared_token=token),
            stager=FrontendStager(
                settings.models_directory,
                lambda node: self._drivers.find_server(node),
                RecordedBucket(bucket, self._stores.bucket_weights) if bucket is not None else None,
            ),
            localai_stager=LocalAiStager(
                settings.models_directory,
                lambda node: self._drivers.find_server(node),
                WeightsDownloads(self._artifacts, settings.data_dir / "downloads"),
            ),
            proof=self._proof,
            bucket=bucket,
            shared_models=settings.shared_models,
            request_report=self._nodes.reports.request_report,
            notify_others=self._changes.announce_routes,
            pace=_pace(settings),
            orphan_grace_s=settings.orphan_grace_s,
            lease_s=process_lease_s(settings),
            clock=self._clock,
            ids=self._ids,
        )
        self._nodes.reports.listen(replication.controller.on_report)
        self._nodes.reports.on_routes(self._processes_changed)
        return replication

    def _for_routes(
        self, authority: BusAuthority, authorizer: Authorizer, brute_force: BruteForceGuard, tokens: JoinTokens
    ) -> Components:
        return Components(
            info=self._info,
            stores=self._stores,
            authority=authority,
            authorizer=authorizer,
            brute_force=brute_force,
            denials=DenialLog(self._stores.events, self._clock),
            refused_messages=self._refused,
            clock=self._clock,
            tokens=tokens,
            peers=self._backends.peers,
            heartbeats=self._nodes.beats,
            process_leases=self._nodes.grants,
            feed=self._feed,
            galleries=self._galleries,
            ids=self._ids,
            notify_nodes=self._changes.announce,
            model_gallery=ModelGallery(self._artifacts, self._galleries),
            notify_routes=self._routes_changed,
            notify=self._changes.announce,
            fleet=self._backends.fleet,
            resolver=self._backends.resolver,
            progress=self._backends.progress,
            listing=self._listing,
            open_operations=self._open_operations,
            policies=self._backends.policies,
            upgrades=self._backends.upgrades,
            loads=self._replication.coordinator,
            in_flight=self._inflight,
            key_meters=self._gateway.meters,
            explain=self._gateway.explain,
            metrics=self._gateway.read_metrics,
            traffic=self._gateway.traffic,
            logs=WorkerLogs(self._drivers.find_server),
            disk=self._disk,
        )

    def _rows_changed(self, kind: str) -> None:
        """Rows of this kind changed, here or on another frontend."""
        self._feed.notify(*FED_BY.get(kind, (kind,)))
        if kind == KEYS:
            self._authorizer.forget()
            self._gateway.notify_keys()
            return
        if kind == "nodes":
            self._nodes.notify()
            self._replication.notify()
        self._backends.notify(kind)

    async def _report(self) -> None:
        try:
            await self._stores.frontends.report(id=self._info.id, url=self._info.url, version=__version__)
        except CorralError as error:
            self._info.store_problem = str(error)
            raise
        self._info.store_problem = ""
        await asyncio.sleep(REPORT_EVERY_S)  # `keep_running` repeats it

    async def run(self, listener: Listener) -> None:
        settings = self._info.settings
        await self._changes.start()
        await self._nodes.start()
        await self._backends.progress.start()
        await self._replication.start()
        await self._gateway.start()
        await seed_scheduling(settings, self._stores, ids=self._ids, disk=self._disk)
        running = settings.data_dir / "run.json"
        if self._place.is_first:
            self._write_address(running)
        store = self._stores.database.location
        log.info("frontend.started", listen=settings.listen, store=store, bus=redact_url(settings.bus))
        loops = {
            "feed": self._feed.run,
            "report": self._report,
            "usage": self._usage.run,
            "version figures": self._versions.run,
            "galleries": self._galleries.run,
            "open operations": self._open_operations.run,
            "garbage": collect_in_small_steps,
            **self._nodes.loops,
            **self._backends.loops,
            **self._replication.loops,
            **self._gateway.loops,
            **self._drivers.loops,
        }
        try:
            async with self._gateway, asyncio.TaskGroup() as tasks:
                for name, work in loops.items():
                    tasks.create_task(keep_running(name, work), name=name)
                # Not one of the tasks: a stop ends it first, while the loops that open requests need still run.
                await serve_http(
                    build_app(self._components),
                    listener,
                    drain=self._drain,
                    on_stop=self._stop_answering,
                    websockets=True,
                    raw_handler=self._gateway.gateway,
                    limits=default_limits(
                        connections=settings.connections, connections_per_address=settings.connections_per_address
                    ),
                    is_proxy=TrustedProxies(settings.trusted_proxies).is_trusted,
                )
        finally:
            if self._place.is_first:
                self._disk.remove(running)
            await self._leave()

    async def _processes_changed(self) -> None:
        self._gateway.gateway.table.notify()
        await self._replication.changed()

    async def _routes_changed(self) -> None:
        """Routes were changed here: the next request to this frontend must see it."""
        await self._gateway.gateway.table.catch_up()
        await self._replication.changed()

    async def _drain(self) -> None:
        self._info.is_stopping = True
        await self._gateway.gateway.drain()

    def _stop_answering(self) -> None:
        self._feed.close()
        self._gateway.gateway.stop()

    def _write_address(self, path: Path) -> None:
        """Client commands on this machine read the address of this frontend from here."""
        try:
            self._disk.write(path, json.dumps({"url": local_url(self._info.settings.listen)}).encode())
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}. Check the data directory.") from error

    async def _leave(self) -> None:
        await self._drivers.close()
        await self._usage.finish()
        await self._versions.finish()
        try:
            await self._backends.intents.release()
            await self._stores.frontends.leave(self._info.id)
        except CorralError as error:
            log.warning("frontend.shutdown_incomplete", error=str(error))
        log.info("frontend.stopped")
