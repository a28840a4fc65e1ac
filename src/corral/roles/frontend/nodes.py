"""Wires what a frontend does about nodes: heartbeats, process leases, reports, health and the audit log."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from corral.artifacts import BackendEntry
from corral.artifacts.galleries.catalogue import localai_obstacle
from corral.bus.client import Bus
from corral.controller.loop import Reconciler, ReconcileRuntime
from corral.controller.nodes.audit_retention import AuditRetention
from corral.controller.nodes.health import HealthController
from corral.controller.nodes.localai_reports import GalleryNames, LocalAiReporter, names_of
from corral.controller.nodes.refused_messages import SAVE_EVERY_S, RefusedMessages
from corral.controller.nodes.reports import Reports
from corral.core.backends.runnable import pick_runnable
from corral.core.nodes.presence import Limits
from corral.core.processes.leases import lease_length_s
from corral.frontend.api.status.routes import FrontendInfo
from corral.frontend.auth.bus_credentials import BusAuthority, enforce_quietly
from corral.frontend.galleries import Galleries
from corral.frontend.nodes.heartbeats import HeartbeatBatcher
from corral.frontend.nodes.process_leases import LeaseGrants
from corral.settings.roles import FrontendSettings
from corral.store.stores import Stores
from corral.system import Clock
from corral.system.listening import refuses_connections


class NodesWiring:
    def __init__(
        self,
        info: FrontendInfo,
        runtime: ReconcileRuntime,
        stores: Stores,
        bus: Bus,
        authority: BusAuthority,
        refused: RefusedMessages,
        *,
        on_change: Callable[[], Awaitable[None]],
        galleries: Galleries,
        clock: Clock,
    ) -> None:
        settings = info.settings
        self._authority, self._credentials, self._bus = authority, stores.bus_credentials, bus
        self.beats = HeartbeatBatcher(stores.registration)
        self.grants = LeaseGrants(stores.replicas, lease_s=process_lease_s(settings), clock=clock)
        localai = LocalAiReporter(
            bus,
            nodes=stores.nodes,
            replicas=stores.replicas,
            names=_GalleryNames(galleries).read,
            refuses=refuses_connections,
            clock=clock,
        )
        self.reports = Reports(
            runtime,
            bus=bus,
            observed=stores.observed,
            nodes=stores.nodes,
            refused=refused,
            clock=clock,
            request_localai_report=localai.request_report,
        )
        self._health = HealthController(
            runtime,
            store=stores.health,
            bus=bus,
            limits=Limits(suspect_after_s=settings.suspect_after_s, offline_after_s=settings.offline_after_s),
            every_s=settings.health_interval_s,
            clock=clock,
            on_change=on_change,
            also=self._enforce,
        )
        audit = AuditRetention(
            runtime, stores.events, keep_s=settings.audit_retention_s, most=settings.audit_max_entries
        )
        refusals = Reconciler("refused_messages", lambda _run: refused.save(), runtime, every_s=SAVE_EVERY_S)
        self.loops: Mapping[str, Callable[[], Awaitable[None]]] = {
            "beats": self.beats.run,
            "grants": self.grants.run,
            "health": self._health.loop.run,
            "audit": audit.loop.run,
            "reports": self.reports.run,
            "silent_nodes": self.reports.silent_nodes.run,
            "refused_messages": refusals.run,
        }

    async def start(self) -> None:
        self._bus.on_reconnect(lambda: self._enforce(anew=True))
        await self.reports.start()

    def notify(self) -> None:
        self._health.loop.notify()
        self.reports.silent_nodes.notify()

    async def _enforce(self, *, anew: bool = False) -> None:
        await enforce_quietly(self._authority, self._credentials, anew=anew)


class _GalleryNames:
    """The names in the galleries, computed again when a gallery has changed."""

    def __init__(self, galleries: Galleries) -> None:
        self._galleries = galleries
        self._known: tuple[Sequence[BackendEntry], GalleryNames] | None = None

    async def read(self) -> GalleryNames:
        entries = (await self._galleries.backends()).entries
        if self._known is None or self._known[0] is not entries:
            runnable: Sequence[BackendEntry] = pick_runnable(entries, localai_obstacle)
            self._known = entries, names_of(runnable)
        return self._known[1]


def process_lease_s(settings: FrontendSettings) -> float:
    return lease_length_s(
        disconnect_grace_s=settings.disconnect_grace_s,
        offline_after_s=settings.offline_after_s,
        heartbeat_interval_s=settings.heartbeat_interval_s,
    )
