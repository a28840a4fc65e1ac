"""Runs one worker: joins, serves commands, sends heartbeats, leaves."""

import asyncio
import shlex
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import structlog

from corral import __version__
from corral.bus.client import Bus, BusOptions
from corral.bus.subjects import node_inbox
from corral.core.errors import CorralError, Fenced, InvalidSetting, NotFound, Unauthenticated, Unavailable
from corral.core.replicas.llama_cpp import EngineMachine
from corral.settings.roles import WorkerSettings
from corral.settings.values import is_loopback_host, redact_url
from corral.system.http_server import default_limits, serve_http
from corral.system.listen import Listener, PortTaken, address_towards, bind_socket, host_name
from corral.system.loops import keep_running
from corral.worker.backends.site_coordinator import SiteCoordinator
from corral.worker.commands import serve_commands
from corral.worker.commands.context import CommandContext
from corral.worker.files.temporary_files import sweep_temporaries
from corral.worker.membership.description import read_machine
from corral.worker.membership.frontend_client import FrontendClient
from corral.worker.membership.heartbeats import HeartbeatTrigger
from corral.worker.membership.identity import read_identity, settle_identity
from corral.worker.membership.membership import RENEW_RETRY_S, Addresses, Member, Membership
from corral.worker.membership.reports import NodeReporting
from corral.worker.ports import WorkerPorts
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.orphans import describe_orphans
from corral.worker.replicas.launch import StartSettings
from corral.worker.replicas.replicas import LocalReplicas
from corral.worker.replicas.smoke_test import SmokeTests
from corral.worker.runtime import WorkerRuntime, open_worker_runtime
from corral.worker.web.app import build_worker_app
from corral.worker.web.auth import Keys

log = structlog.get_logger()

FIRST_PORT = 50050
PORT_STEP = 100
PORT_TRIES = 50
HEARTBEAT_EVERY_S = 10.0
BUS_DISCONNECTED_S = 3.0
HTTP_CONNECTIONS = 4096
"""Frontends and other workers need few, and downloads and backends of this machine need descriptors too."""


class WorkerStopped(Exception):
    """Raised to end the worker's tasks: an administrator stopped the worker."""


class Rejoin(Exception):
    """The node has to register again."""


def _listen(settings: WorkerSettings, host: str) -> tuple[Listener, int]:
    if settings.port is not None:
        return bind_socket(host, settings.port, setting="--port or --host"), settings.port
    for port in range(FIRST_PORT, FIRST_PORT + PORT_STEP * PORT_TRIES, PORT_STEP):
        try:
            return bind_socket(host, port, setting=None), port
        except PortTaken:
            continue
        except Unavailable as error:
            raise Unavailable(f"{error}. Change --host.") from error
    raise Unavailable(f"no free port from {FIRST_PORT} upwards; choose one with --port")


def _bind_host(settings: WorkerSettings, frontend_host: str) -> str:
    return settings.host or ("127.0.0.1" if is_loopback_host(frontend_host) else "0.0.0.0")


async def run_worker(settings: WorkerSettings, ports: WorkerPorts) -> None:
    disk = ports.disk
    async with AsyncExitStack() as opened:
        opened.enter_context(disk.hold(settings.data_dir, "worker"))
        identity = settle_identity(
            settings.data_dir,
            read_identity(settings.data_dir, ids=ports.ids, disk=disk),
            join=settings.join,
            name=settings.name,
            token=settings.token.get_secret_value() if settings.token else None,
            host_name=host_name(),
            disk=disk,
        )
        assert identity.join is not None
        assert identity.name is not None
        frontend_at = urlsplit(identity.join)
        frontend_host = frontend_at.hostname or ""
        host = _bind_host(settings, frontend_host)
        listener, port = _listen(settings, host)
        opened.callback(listener.close)
        advertise = settings.advertise or address_towards(frontend_host, frontend_at.port or 80)
        machine = await read_machine(settings, ports)
        log.info("worker.starting", join=identity.join, listen=f"{host}:{port}", version=__version__)
        nvml = machine.roots.nvml if any(gpu.vendor == "nvidia" for gpu in machine.hardware.gpus) else None
        log_isolation(machine.isolation)
        async with open_worker_runtime(
            settings, ports, capability=machine.capability.token, nvml=nvml, isolation=machine.isolation
        ) as runtime:
            membership = Membership(
                settings,
                FrontendClient(identity.join, ports.call_frontend),
                machine,
                Addresses(backends=f"{advertise}:{port + 1}", http=f"{advertise}:{port}"),
                name=identity.name,
                node_key=identity.node_key,
                token=identity.token,
                clock=ports.clock,
                ids=ports.ids,
                leases=runtime.leases,
                conditions=runtime.conditions,
            )
            engine_machine = EngineMachine(
                cores=machine.hardware.cpu.cores, has_gpu=bool(machine.hardware.vram_total_bytes)
            )
            worker = Worker(
                settings,
                ports,
                membership,
                runtime,
                listen_on=host,
                advertise=advertise,
                engine_machine=engine_machine,
            )
            site = SiteCoordinator(membership.claim_downloads, clock=ports.clock, ids=ports.ids)
            runtime.artifacts.share_downloads(site)
            async with site.renewing():
                await worker.run(listener)


def log_isolation(isolation: Isolation) -> None:
    write_log = log.info if isolation.level == "full" else log.warning
    write_log("worker.backend_isolation", level=isolation.level, reason=isolation.describe())


NODE_UNKNOWN = "the cluster no longer knows this node (it was removed, or the database was lost)"


class Worker:
    def __init__(
        self,
        settings: WorkerSettings,
        ports: WorkerPorts,
        membership: Membership,
        runtime: WorkerRuntime,
        *,
        listen_on: str,
        advertise: str,
        engine_machine: EngineMachine,
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._runtime = runtime
        self._disk = ports.disk
        self._clock = ports.clock
        self._connect_bus = ports.connect_bus
        self._listen_on, self._advertise = listen_on, advertise
        self._engine_machine = engine_machine
        self._bus: Bus | None = None
        self._stop = asyncio.Event()
        self._beats = HeartbeatTrigger()
        self._keys = Keys()

    def not_ready(self) -> str:
        if self._bus is None:
            return f"waiting for {self._membership.waiting_for}"
        return "" if self._bus.connected else "not connected to the message bus"

    async def run(self, listener: Listener) -> None:
        runtime = self._runtime
        app = build_worker_app(
            not_ready=self.not_ready,
            keys=lambda: self._keys,
            areas=runtime.files,
            logs=runtime.supervisor.logs,
            find_blob=runtime.artifacts.find_blob,
            find_partial=runtime.artifacts.find_partial,
            watch_blob=runtime.artifacts.watch_blob,
            clock=self._clock,
        )
        keep = self._settings.keep_backends
        try:
            async with asyncio.TaskGroup() as tasks:
                limits = default_limits(connections=HTTP_CONNECTIONS)
                tasks.create_task(serve_http(app, listener, websockets=True, limits=limits), name="http")
                tasks.create_task(self._work(), name="work")
                leases = runtime.leases
                tasks.create_task(
                    keep_running("leases", lambda: leases.enforce(self._membership.heartbeat_if_joined)), name="leases"
                )
                tasks.create_task(
                    keep_running(
                        "files",
                        lambda: sweep_temporaries(runtime.files.staging, runtime.cache, clock=self._clock),
                    ),
                    name="files",
                )
        except* WorkerStopped:
            keep = False
            log.info("worker.stopped", reason="stopped by an administrator")
        except* Fenced:
            keep = False  # another process has taken over this node, and its replicas run elsewhere
            raise
        finally:
            if keep:
                self._log_backends_left()
            else:
                await runtime.supervisor.stop_all(reason="the worker stops")

    def _log_backends_left(self) -> None:
        left = [view.key for view in self._runtime.supervisor.list() if view.pid is not None]
        if left:
            log.warning(
                "worker.backends_left",
                left=f"{describe_orphans(left)} keep running until the next worker of this data directory takes over",
                stop_them_with=f"corral worker stop-backends --data-dir {shlex.quote(str(self._settings.data_dir))}",
            )

    async def _work(self) -> None:
        fenced = False
        try:
            while True:
                await self._serve_as(await self._membership.join())
                log.warning("worker.rejoining")
        except* Fenced:
            fenced = True
            raise
        finally:
            if not fenced:
                stay = self._settings.keep_backends and not self._stop.is_set()
                await self._membership.leave(backends_stay=stay)
            log.info("worker.left")

    async def _serve_as(self, member: Member) -> None:
        """Work under one registration until the node must register again. Any other end is an exception."""
        try:
            async with self._connect_bus(self._bus_options(member)) as bus:
                localai = not member.speaks_corral
                who = self._reporting(member)
                self._keys = self._keys_for(localai)
                context = self._command_context(bus, who, localai)
                await serve_commands(bus, context, stop=self._stop.set, frontend_is_localai=localai)
                self._bus = bus
                log.info("worker.joined", node=member.node_id, epoch=member.epoch, status=member.status)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._send_heartbeats(), name="heartbeat")
                    if not localai:  # LocalAI's frontends do not read reports and do not allow publishing them
                        tasks.create_task(
                            keep_running("reports", lambda: self._publish_reports(bus, who)), name="reports"
                        )
                    tasks.create_task(self._keep_credential(bus), name="credential")
                    tasks.create_task(self._stop_on_request(), name="stop")
        except* Rejoin as left:
            log.warning("worker.membership_lost", reason=str(left.exceptions[0]))
        finally:
            self._bus = None

    def _reporting(self, member: Member) -> NodeReporting:
        return NodeReporting(
            node=member.node_id,
            instance=self._membership.instance,
            epoch=member.epoch,
            advertise=self._advertise,
            http_token=self._runtime.http_token,
            blob_token=self._runtime.blob_token,
        )

    def _shared_token(self) -> str:
        """LocalAI's registration token, from the settings or an earlier start; empty if its cluster has none."""
        return self._membership.member.bearer

    def _keys_for(self, localai: bool) -> Keys:
        """Every node knows the registration token, so it is accepted only in a LocalAI cluster."""
        if localai:
            return Keys(files=frozenset(filter(None, (self._shared_token(),))))
        return Keys(files=frozenset((self._runtime.http_token,)), blobs=frozenset((self._runtime.blob_token,)))

    def _command_context(self, bus: Bus, who: NodeReporting, localai: bool) -> CommandContext:
        runtime = self._runtime
        starting = StartSettings(
            host=self._listen_on,
            files=self._runtime.model_paths,
            user=self._settings.backend_user,
            machine=self._engine_machine,
            shared_token=self._shared_token() if localai else None,
        )
        return CommandContext(
            bus=bus,
            who=who,
            epoch=None if localai else who.epoch,
            backends=runtime.backends,
            smoke_tests=SmokeTests(runtime.backends, runtime.supervisor, starting, self._disk),
            replicas=LocalReplicas(runtime.backends, runtime.supervisor, starting, self._disk, runtime.meter),
            supervisor=runtime.supervisor,
            reporter=runtime.reporter,
            models=runtime.models,
            storage=runtime.storage,
            begin_lease=lambda key, length_s: runtime.leases.begin(key, length_s=length_s),
            report_capacity=self._beats.send_now,
        )

    def _bus_options(self, member: Member) -> BusOptions:
        servers = self._settings.bus or member.bus_url
        if servers is None:
            raise InvalidSetting("bus: the frontend did not report the address of the message bus; set it with --bus")
        if member.credentials is None and not (member.bus_anonymous and self._settings.insecure_anonymous_bus):
            raise InvalidSetting(
                "the frontend issued no bus credentials. If its bus is open on purpose, start this worker with"
                " --insecure-anonymous-bus; otherwise give the frontend its account seed."
            )
        if member.credentials is None:
            log.warning("bus.anonymous", warning="THE MESSAGE BUS HAS NO CREDENTIALS", bus=redact_url(servers))
        inbox = node_inbox(member.node_id)
        return BusOptions(
            servers=tuple(servers.split(",")),
            name=f"corral-worker-{member.node_id}",
            inbox=inbox,
            inbox_for=lambda _subject: inbox,
            credentials=self._membership.credentials,
            ca_file=self._settings.bus_ca_file,
        )

    def _heartbeat_every_s(self) -> float:
        every_s = self._settings.heartbeat_interval_s or self._membership.member.heartbeat_interval_s
        return every_s or HEARTBEAT_EVERY_S

    async def _publish_reports(self, bus: Bus, who: NodeReporting) -> None:
        await self._runtime.reporter.publish_always(bus, who, every_s=self._heartbeat_every_s())

    async def _send_heartbeats(self) -> None:
        """Ends when the cluster no longer knows this node (Rejoin), or a newer process has taken it over (Fenced)."""
        problem = ""
        while True:
            try:
                with self._beats.sending():
                    await self._membership.heartbeat()
                if problem:
                    log.info("worker.heartbeat_restored")
                problem = ""
            except Fenced:
                raise
            except NotFound:
                raise Rejoin(NODE_UNKNOWN) from None
            except CorralError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("worker.heartbeat_failed", error=problem)
            await self._beats.wait(within_s=self._heartbeat_every_s())

    async def _keep_credential(self, bus: Bus) -> None:
        while True:
            await self._wait_for_renewal(bus)
            before = self._membership.member
            try:
                await self._membership.renew()
                after = self._membership.member
                if after.node_id != before.node_id:
                    raise Rejoin(NODE_UNKNOWN)
                if after.bus_url != before.bus_url:
                    raise Rejoin("the address of the message bus has changed")
                await bus.renew()
            except Unauthenticated:
                raise
            except CorralError as error:
                log.warning("worker.credential_not_renewed", error=str(error))
            await asyncio.sleep(RENEW_RETRY_S)

    async def _wait_for_renewal(self, bus: Bus) -> None:
        """Until the credential is due, or the bus has rejected it for a while (expired in a partition, or revoked)."""
        renew_after_s = self._membership.member.renew_after_s
        loop = asyncio.get_running_loop()
        due_s = loop.time() + renew_after_s if renew_after_s else float("inf")
        connected_s = loop.time()
        while loop.time() < due_s and loop.time() - connected_s < BUS_DISCONNECTED_S:
            await asyncio.sleep(min(1.0, max(0.0, due_s - loop.time())))
            if bus.connected:
                connected_s = loop.time()

    async def _stop_on_request(self) -> None:
        await self._stop.wait()
        raise WorkerStopped
