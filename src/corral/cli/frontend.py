"""`corral frontend`: opens the store and the bus, and runs API, UI and controllers on them."""

import asyncio
import gc
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import structlog

from corral import __version__
from corral.artifacts import Artifacts, ArtifactSettings
from corral.artifacts.environment import settings_from_environment
from corral.artifacts.settings import NetworkPolicy
from corral.bus.client import Bus, BusMessage, connect_bus
from corral.bus.messages import NodesChanged, RoutesChanged, encode
from corral.bus.subjects import ANYTHING_CHANGED, ROUTES_CHANGED, changed_kind, changed_subject
from corral.cli.exposure import check_exposure, local_url, public_url
from corral.cli.first_access import prepare_access
from corral.cli.fleet_parts import FleetParts
from corral.cli.grpc_parts import GrpcParts
from corral.cli.options import read_settings, settings_options
from corral.cli.processes import Place, read_place, run_processes
from corral.cli.scheduling_seed import seed_scheduling
from corral.cli.serving_parts import ServingParts
from corral.cli.staging_parts import FrontendStager, bucket_settings
from corral.controller.audit import AuditKeeper
from corral.controller.health import HealthController
from corral.controller.replication import Replication
from corral.controller.reports import Reports
from corral.controller.switch import TrialStart
from corral.controller.switching import ReplicaSwitcher
from corral.core.errors import CorralError, Unavailable
from corral.core.presence import Limits
from corral.core.process_leases import lease_length_s
from corral.core.routing import LOCALAI_GRPC
from corral.frontend.access import Gate
from corral.frontend.admin.status import Self
from corral.frontend.app import Parts, build_app
from corral.frontend.beats import BeatBatcher
from corral.frontend.bus_authority import BusAuthority, enforce_quietly, read_bus_keys
from corral.frontend.feed import LiveFeed
from corral.frontend.gallery.service import Galleries
from corral.frontend.grants import Grants
from corral.frontend.guesses import Guesses
from corral.frontend.join_tokens import JoinTokens
from corral.frontend.live import backend_kind, model_kind, node_kind, operation_kind, replica_kind
from corral.frontend.model_gallery import ModelGallery
from corral.frontend.refusals import Refusals
from corral.frontend.serving.cold import ColdLoads
from corral.frontend.serving.inflight import InFlight
from corral.frontend.usage import UsageCounter
from corral.settings import FrontendSettings, redact_url, split_host_port
from corral.store.open import open_database
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids, SystemClock, SystemDisk, SystemIds
from corral.system.buckets import WeightsBucket
from corral.system.http_server import serve_http
from corral.system.listen import Listener, bind_socket
from corral.system.localai_loader import LocalAiLoader
from corral.system.loops import keep_running
from corral.system.run import run_until_signal
from corral.system.secret_files import ensure_secret
from corral.system.worker_logs import WorkerLogs
from corral.telemetry.logs import configure_logs

log = structlog.get_logger()

REPORT_EVERY_S = 5.0


@click.command("frontend")
@settings_options(FrontendSettings)
def frontend_command(**flags: Any) -> None:
    """Run a frontend alone, on a store and a message bus of your own."""
    settings = read_settings(FrontendSettings, flags)
    configure_logs(level=settings.log_level, format=settings.log_format, role="frontend")
    clock, ids, disk = SystemClock(), SystemIds(), SystemDisk()
    place = read_place(settings)
    if place is None:
        run_until_signal(lambda: run_processes(settings, clock=clock, ids=ids, disk=disk))
    else:
        run_until_signal(lambda: run_frontend(settings, place, clock=clock, ids=ids, disk=disk))


@asynccontextmanager
async def _open_stores(settings: FrontendSettings, clock: Clock, ids: Ids) -> AsyncIterator[Stores]:
    url = settings.store or f"sqlite://{(settings.data_dir / 'corral.db').absolute()}"
    database = await open_database(url, connections=settings.store_connections, clock=clock, ids=ids)
    try:
        yield Stores(database)
    finally:
        await database.close()


def _artifact_settings(settings: FrontendSettings) -> ArtifactSettings:
    found = settings_from_environment(settings.data_dir / "artifacts", os.environ)
    network = NetworkPolicy(
        trusted_hosts=frozenset(host.lower() for host in settings.trusted_hosts),
        plain_http_hosts=frozenset(host.lower() for host in settings.plain_http_hosts),
    )
    return replace(found, network=network)


async def run_frontend(settings: FrontendSettings, place: Place, *, clock: Clock, ids: Ids, disk: Disk) -> None:
    check_exposure(settings.listen, auth=settings.auth)
    bus_keys = read_bus_keys(settings)
    if bus_keys is None:
        log.warning(
            "bus.anonymous",
            warning="THE MESSAGE BUS HAS NO CREDENTIALS: everyone who reaches it can command every machine",
        )
    host, port = split_host_port(settings.listen)
    async with AsyncExitStack() as opened:
        opened.enter_context(disk.hold(settings.data_dir, place.name("frontend")))
        shared = place.count > 1
        if not shared:
            listener = bind_socket(host, port, setting="--listen")
            opened.callback(listener.close)
        stores = await opened.enter_async_context(_open_stores(settings, clock, ids))
        token = await prepare_access(settings, stores, ids=ids, disk=disk)
        frontend_id = ensure_secret(disk, settings.data_dir / f"{place.name('frontend')}.id", ids.uuid)
        authority = BusAuthority(settings, bus_keys, clock=clock, ids=ids)
        bus = await opened.enter_async_context(connect_bus(authority.bus_options(frontend_id)))
        artifacts = await opened.enter_async_context(Artifacts(_artifact_settings(settings), clock=clock, ids=ids))
        me = Self(frontend_id, settings, bus)
        role = FrontendRole(
            me, place, stores, bus, authority, token, artifacts=artifacts, clock=clock, ids=ids, disk=disk
        )
        if shared:
            # Not before everything is there: the kernel would let clients wait for us while a sibling has time.
            listener = bind_socket(host, port, setting="--listen", shared=True)
            opened.callback(listener.close)
        await role.run(listener)


class FrontendRole:
    """The parts of one frontend, put together."""

    def __init__(
        self,
        me: Self,
        place: Place,
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
        self._me = me
        self._place = place
        self._stores = stores
        self._bus = bus
        self._authority = authority
        self._disk = disk
        self._ids = ids
        self._beats = BeatBatcher(stores.registration)
        lease_s = lease_length_s(
            cut_off_after_s=settings.cut_off_after_s,
            offline_after_s=settings.offline_after_s,
            heartbeat_interval_s=settings.heartbeat_interval_s,
        )
        self._grants = Grants(stores.replicas, lease_s=lease_s, clock=clock)
        self._galleries = Galleries(
            artifacts,
            backends=settings.backend_galleries,
            models=settings.model_galleries,
            every_s=settings.gallery_refresh_s,
            clock=clock,
        )
        self._usage = UsageCounter(stores.usage, writer=ids.uuid())
        self._reports = Reports(bus=bus, observed=stores.observed, nodes=stores.nodes, clock=clock)
        self._health = HealthController(
            holder=me.id,
            verdicts=stores.health,
            leases=stores.leases,
            bus=bus,
            limits=Limits(suspect_after_s=settings.suspect_after_s, offline_after_s=settings.offline_after_s),
            every_s=settings.health_interval_s,
            clock=clock,
            on_change=self._hint,
            also=lambda: enforce_quietly(authority, stores.bus_credentials),
        )
        self._audit = AuditKeeper(
            holder=me.id,
            events=stores.events,
            leases=stores.leases,
            keep_s=settings.audit_keep_s,
            most=settings.audit_entries,
        )
        guesses = Guesses(clock)
        switcher = ReplicaSwitcher(stores, poke=lambda: self._replication.poke(), others=TrialStart(bus))
        self._fleet = FleetParts(
            me, stores, bus, artifacts, self._galleries, self._reports, switcher, hint=self._hint, clock=clock, ids=ids
        )
        inflight = InFlight(me.id, run=ids.uuid())
        self._feed = LiveFeed(
            [
                node_kind(stores.nodes, stores.replicas, inflight),
                operation_kind(stores.operations, self._fleet.progress),
                backend_kind(self._fleet.desired, self._fleet.upgrades, stores.nodes.now_ms),
                model_kind(stores.models, stores.nodes.now_ms),
                replica_kind(stores.replicas, inflight, stores.nodes.now_ms),
            ]
        )
        self._fleet.progress.listen(lambda: self._feed.poke("operations"))
        public = frozenset({"/metrics"}) if settings.metrics_public else frozenset[str]()
        gate = Gate(stores.access, guesses, clock=clock, auth=settings.auth, public=public)
        self._replication = Replication(
            holder=me.id,
            stores=stores,
            bus=bus,
            builds=self._fleet.resolver,
            peers=self._fleet.peers,
            traffic=inflight,
            grpc=LocalAiLoader(shared_token=token),
            stager=FrontendStager(
                settings.models_directory,
                lambda node: self._grpc.find_server(node),
                bucket=WeightsBucket(storage) if (storage := bucket_settings(settings)) is not None else None,
            ),
            shared_models=settings.shared_models,
            ask_report=self._reports.ask,
            hint=self._hint_routes,
            idle_ttl_s=settings.model_idle_ttl_s,
            clock=clock,
            ids=ids,
        )
        self._reports.listen(self._replication.controller.hear)
        self._grpc = GrpcParts(
            stores,
            ask_report=self._reports.ask,
            registration_token=token,
            changed=self._routes_changed,
            clock=clock,
            ids=ids,
        )
        self._serving = ServingParts(
            me, place, stores, bus, gate, inflight, disk=disk,
            loads=ColdLoads(self._replication.desk), drivers={LOCALAI_GRPC: self._grpc.driver}, usage=self._usage,
            clock=clock, ids=ids,
        )  # fmt: skip
        self._parts = Parts(
            me=me,
            stores=stores,
            authority=authority,
            gate=gate,
            guesses=guesses,
            refusals=Refusals(stores.events, clock),
            tokens=JoinTokens(stores.access, token, clock=clock),
            beats=self._beats,
            grants=self._grants,
            feed=self._feed,
            galleries=self._galleries,
            ids=ids,
            hint=self._hint,
            model_gallery=ModelGallery(artifacts, self._galleries),
            hint_routes=self._routes_changed,
            hint_of=self._hint,
            fleet=self._fleet.fleet,
            progress=self._fleet.progress,
            drift=self._fleet.desired,
            upgrades=self._fleet.upgrades,
            desk=self._replication.desk,
            in_flight=inflight,
            explain=self._serving.explain,
            metrics=self._serving.read_metrics,
            pulse=self._serving.pulse,
            logs=WorkerLogs(self._grpc.find_server),
            disk=disk,
        )

    async def _hint(self, kind: str = "nodes") -> None:
        """Only a hint: who misses it looks by itself a little later."""
        self._poke(kind)
        try:
            await self._bus.publish(changed_subject(kind), encode(NodesChanged(frontend=self._me.id)))
        except CorralError as error:
            log.debug("hint.not_sent", error=str(error))

    async def _hint_routes(self) -> None:
        try:
            await self._bus.publish(ROUTES_CHANGED, encode(RoutesChanged(frontend=self._me.id)))
        except CorralError as error:
            log.debug("hint.not_sent", error=str(error))

    async def _on_hint(self, message: BusMessage) -> None:
        self._poke(changed_kind(message.subject))

    def _poke(self, kind: str) -> None:
        self._feed.poke(*(("models", "replicas") if kind == "routes" else (kind,)))
        if kind == "nodes":
            self._health.poke()
            self._reports.poke()
            self._replication.poke()
        self._fleet.poke(kind)

    async def _report(self) -> None:
        settings = self._me.settings
        url = public_url(settings.public_url, settings.listen)
        try:
            await self._stores.frontends.report(id=self._me.id, url=url, version=__version__)
        except CorralError as error:
            self._me.store_problem = str(error)
            raise
        self._me.store_problem = ""
        await asyncio.sleep(REPORT_EVERY_S)

    async def run(self, listener: Listener) -> None:
        settings = self._me.settings
        self._bus.on_reconnect(lambda: enforce_quietly(self._authority, self._stores.bus_credentials, anew=True))
        await self._bus.serve(ANYTHING_CHANGED, self._on_hint, concurrency=8)
        await self._reports.start()
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
            "beats": self._beats.run,
            "grants": self._grants.follow,
            "feed": self._feed.run,
            "health": self._health.run,
            "report": self._report,
            "audit": self._audit.run,
            "usage": self._usage.run,
            "observations": self._reports.run,
            "silent nodes": self._reports.look,
            "galleries": self._galleries.run,
            "progress": self._fleet.progress.run,
            "intents": self._fleet.intents.run,
            "desired state": self._fleet.desired.run,
            "upgrades": self._fleet.upgrades.run,
            **self._replication.loops,
            **self._serving.loops,
            **self._grpc.loops,
        }
        try:
            async with self._serving, asyncio.TaskGroup() as tasks:
                for name, work in loops.items():
                    tasks.create_task(keep_running(name, work), name=name)
                # What is here now stays for good: collecting garbage need not look at it again and again.
                gc.collect()
                gc.freeze()
                # Not one of the tasks: a stop ends it first, while what open requests wait for still runs.
                await serve_http(
                    build_app(self._parts), listener, on_stop=self._stop_answering, lane=self._serving.lane
                )
        finally:
            if self._place.is_first:
                self._disk.remove(running)
            await self._leave()

    async def _routes_changed(self) -> None:
        """Who changed something here finds it so with the next request."""
        await self._serving.refresh()
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
            await self._health.release()
            await self._fleet.release()
            await self._stores.frontends.leave(self._me.id)
        except CorralError as error:
            log.warning("frontend.left_untidily", error=str(error))
        log.info("frontend.stopped")
