"""One frontend's parts put together, and run until it is told to stop."""

import asyncio
import json
from pathlib import Path

import structlog

from corral import __version__
from corral.artifacts import Artifacts
from corral.bus.client import Bus
from corral.controller.backends.progress import publish_progress
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.controller.replicas.rollout import ReplicaRollout
from corral.controller.replicas.smoke_test import SmokeTest
from corral.controller.replicas.wiring import Replication
from corral.core.errors import CorralError, Unavailable
from corral.core.replicas.routing import LOCALAI_GRPC
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
from corral.frontend.gateway.on_demand import OnDemandLoads
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.frontend.http.event_feed import LiveFeed
from corral.frontend.http.proxies import TrustedProxies
from corral.frontend.models.gallery import ModelGallery
from corral.roles.frontend.backends import BackendsWiring
from corral.roles.frontend.change_hints import ChangeNotifier
from corral.roles.frontend.drivers import DriversWiring
from corral.roles.frontend.exposure import local_url
from corral.roles.frontend.gateway import GatewayWiring
from corral.roles.frontend.multi_process import ProcessSlot
from corral.roles.frontend.nodes import NodesWiring
from corral.roles.frontend.scheduling_seed import seed_scheduling
from corral.roles.frontend.weights_stager import FrontendStager, NotedBucket, open_weights_bucket
from corral.settings.roles import FrontendSettings
from corral.settings.values import redact_url
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids
from corral.system.gc_pauses import collect_in_small_steps
from corral.system.http_server import default_limits, serve_http
from corral.system.listen import Listener
from corral.system.localai_loader import LocalAiLoader
from corral.system.loops import keep_running
from corral.system.worker_logs import WorkerLogs
from corral.telemetry.metrics import MetricRegistry

log = structlog.get_logger()

REPORT_EVERY_S = 5.0


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
        me: FrontendInfo,
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
        settings = me.settings
        self._me, self._place, self._stores, self._bus = me, place, stores, bus
        self._artifacts, self._clock, self._ids, self._disk = artifacts, clock, ids, disk
        self._hints = ChangeNotifier(bus, me.id, notify=self._poke)
        registry = MetricRegistry()
        self._refused = RefusedMessages(stores.nodes, clock, registry)
        self._watch = NodesWiring(me, stores, bus, authority, self._refused, hint=self._hints.tell, clock=clock)
        self._galleries = Galleries(
            artifacts,
            backends=settings.backend_galleries,
            models=settings.model_galleries,
            every_s=settings.gallery_refresh_s,
            clock=clock,
        )
        self._usage = UsageCounter(stores.usage, writer=ids.uuid())
        self._inflight = InFlight(me.id, run=ids.uuid())
        self._fleet = self._put_fleet_together()
        self._open_operations = OpenOperations(stores.operations, self._fleet.progress)
        self._listing = FleetListing(self._fleet.desired, self._fleet.upgrades, stores.intents, stores.operations)
        self._feed = self._put_feed_together()
        self._replication = self._put_replication_together(token)
        self._grpc = DriversWiring(
            stores,
            ask_report=self._watch.reports.ask,
            registration_token=token,
            changed=self._routes_changed,
            clock=clock,
            ids=ids,
        )
        guesses = BruteForceGuard(clock)
        public = frozenset({"/metrics"}) if settings.metrics_public else frozenset[str]()
        gate = self._gate = Authorizer(
            stores.access, guesses, clock=clock, auth=settings.auth, public=public, public_url=settings.public_url or ""
        )
        self._serving = GatewayWiring(
            me, place, stores, bus, gate, self._inflight, disk=disk,
            loads=OnDemandLoads(self._replication.desk), drivers={LOCALAI_GRPC: self._grpc.driver}, usage=self._usage,
            registry=registry, clock=clock, ids=ids,
        )  # fmt: skip
        self._parts = self._for_routes(authority, gate, guesses, JoinTokens(stores.access, token, clock=clock))

    def _put_fleet_together(self) -> BackendsWiring:
        switcher = ReplicaRollout(
            self._stores,
            notify=lambda: self._replication.notify(),
            others=SmokeTest(self._bus),
            tell=lambda operation, node, words: publish_progress(self._bus, self._clock, operation, node, words),
            clock=self._clock,
            ids=self._ids,
        )
        return BackendsWiring(
            self._me,
            self._stores,
            self._bus,
            self._artifacts,
            self._galleries,
            self._watch.reports,
            switcher,
            self._refused,
            hint=self._hints.tell,
            clock=self._clock,
            ids=self._ids,
        )

    def _put_feed_together(self) -> LiveFeed:
        stores, fleet = self._stores, self._fleet
        feed = LiveFeed(
            [
                node_kind(stores.nodes, stores.replicas, self._inflight),
                operation_kind(stores.operations, fleet.progress),
                backend_kind(self._listing, stores.nodes.now_ms),
                model_kind(stores.models, stores.nodes.now_ms),
                replica_kind(stores.replicas, self._inflight, stores.nodes.now_ms),
                gallery_kind(self._galleries, stores.nodes.now_ms),
            ]
        )
        self._galleries.listen(lambda: feed.notify("galleries"))
        fleet.progress.listen(lambda: feed.notify("operations"))
        return feed

    def _put_replication_together(self, token: str) -> Replication:
        settings = self._me.settings
        bucket = open_weights_bucket(settings, clock=self._clock, ids=self._ids)
        replication = Replication(
            holder=self._me.id,
            stores=self._stores,
            bus=self._bus,
            builds=self._fleet.builds,
            peers=self._fleet.peers,
            traffic=self._inflight,
            grpc=LocalAiLoader(shared_token=token),
            stager=FrontendStager(
                settings.models_directory,
                lambda node: self._grpc.find_server(node),
                NotedBucket(bucket, self._stores.bucket_weights) if bucket is not None else None,
            ),
            bucket=bucket,
            shared_models=settings.shared_models,
            ask_report=self._watch.reports.ask,
            hint=self._hints.tell_routes,
            pace=_pace(settings),
            orphan_grace_s=settings.orphan_grace_s,
            clock=self._clock,
            ids=self._ids,
        )
        self._watch.reports.listen(replication.controller.hear)
        self._watch.reports.on_routes(self._processes_changed)
        return replication

    def _for_routes(
        self, authority: BusAuthority, gate: Authorizer, guesses: BruteForceGuard, tokens: JoinTokens
    ) -> Components:
        return Components(
            info=self._me,
            stores=self._stores,
            authority=authority,
            authorizer=gate,
            brute_force=guesses,
            denials=DenialLog(self._stores.events, self._clock),
            refused_messages=self._refused,
            clock=self._clock,
            tokens=tokens,
            heartbeats=self._watch.beats,
            process_leases=self._watch.grants,
            feed=self._feed,
            galleries=self._galleries,
            ids=self._ids,
            notify_nodes=self._hints.tell,
            model_gallery=ModelGallery(self._artifacts, self._galleries),
            notify_routes=self._routes_changed,
            notify=self._hints.tell,
            fleet=self._fleet.fleet,
            progress=self._fleet.progress,
            listing=self._listing,
            open_operations=self._open_operations,
            upgrades=self._fleet.upgrades,
            loads=self._replication.desk,
            in_flight=self._inflight,
            explain=self._serving.explain,
            metrics=self._serving.read_metrics,
            traffic=self._serving.pulse,
            logs=WorkerLogs(self._grpc.find_server),
            disk=self._disk,
        )

    def _poke(self, kind: str) -> None:
        self._feed.notify(*(("models", "replicas") if kind == "routes" else (kind,)))
        if kind == KEYS:
            self._gate.forget()
            self._serving.poke_keys()
            return
        if kind == "nodes":
            self._watch.notify()
            self._replication.notify()
        self._fleet.notify(kind)

    async def _report(self) -> None:
        try:
            await self._stores.frontends.report(id=self._me.id, url=self._me.url, version=__version__)
        except CorralError as error:
            self._me.store_problem = str(error)
            raise
        self._me.store_problem = ""
        await asyncio.sleep(REPORT_EVERY_S)

    async def run(self, listener: Listener) -> None:
        settings = self._me.settings
        await self._hints.start()
        await self._watch.start()
        await self._fleet.progress.start()
        await self._replication.start()
        await self._serving.start()
        await seed_scheduling(settings, self._stores, ids=self._ids, disk=self._disk)
        running = settings.data_dir / "run.json"
        if self._place.is_first:
            self._note_address(running)
        store = self._stores.database.location
        log.info("frontend.started", listen=settings.listen, store=store, bus=redact_url(settings.bus))
        loops = {
            "feed": self._feed.run,
            "report": self._report,
            "usage": self._usage.run,
            "galleries": self._galleries.run,
            "progress": self._fleet.progress.run,
            "intents": self._fleet.intents.run,
            "desired state": self._fleet.desired.run,
            "upgrades": self._fleet.upgrades.run,
            "open operations": self._open_operations.run,
            "garbage": collect_in_small_steps,
            **self._watch.loops,
            **self._replication.loops,
            **self._serving.loops,
            **self._grpc.loops,
        }
        try:
            async with self._serving, asyncio.TaskGroup() as tasks:
                for name, work in loops.items():
                    tasks.create_task(keep_running(name, work), name=name)
                # Not one of the tasks: a stop ends it first, while what open requests wait for still runs.
                await serve_http(
                    build_app(self._parts),
                    listener,
                    on_stop=self._stop_answering,
                    websockets=True,
                    lane=self._serving.lane,
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
        self._serving.lane.table.notify()
        await self._replication.changed()

    async def _routes_changed(self) -> None:
        """Who changed something here finds it so with the next request."""
        await self._serving.lane.table.catch_up()
        await self._replication.changed()

    def _stop_answering(self) -> None:
        self._feed.close()
        self._serving.lane.stop()

    def _note_address(self, path: Path) -> None:
        """Where client commands on this machine find us."""
        try:
            self._disk.write(path, json.dumps({"url": local_url(self._me.settings.listen)}).encode())
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}. Check the data directory.") from error

    async def _leave(self) -> None:
        await self._grpc.close()
        await self._usage.finish()
        try:
            await self._watch.release()
            await self._fleet.release()
            await self._stores.frontends.leave(self._me.id)
        except CorralError as error:
            log.warning("frontend.shutdown_incomplete", error=str(error))
        log.info("frontend.stopped")
