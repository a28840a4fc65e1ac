"""What makes wishes true on a frontend, put together."""

from collections.abc import Awaitable, Callable

from corral.artifacts import Artifacts
from corral.bus.client import Bus
from corral.controller.backends.attempts import AttemptLimits
from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.intent_controller import IntentReconciler
from corral.controller.backends.peers import BlobPeers
from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.backends.progress import LiveProgress
from corral.controller.backends.resolve import Resolver
from corral.controller.backends.upgrades import UpgradeCheck
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.controller.nodes.reports import Reports
from corral.controller.replicas.smoke_test import VersionRollout
from corral.core.backends.exhausted import exhausted_retry
from corral.core.backends.intents import RetryLimits
from corral.frontend.api.status.routes import FrontendInfo
from corral.frontend.galleries import Galleries
from corral.settings.roles import FrontendSettings
from corral.store.stores import Stores
from corral.system import Clock, Ids

UPGRADES = "upgrades"


def attempt_limits(settings: FrontendSettings) -> AttemptLimits:
    return AttemptLimits(
        install_s=settings.backend_install_timeout_s,
        upgrade_s=settings.backend_upgrade_timeout_s,
        at_once=settings.max_concurrent_node_operations,
        retry=RetryLimits(
            attempts=settings.backend_max_attempts,
            base_s=settings.backend_retry_base_s,
            cap_s=settings.backend_retry_max_s,
        ),
    )


class BackendsWiring:
    def __init__(
        self,
        me: FrontendInfo,
        stores: Stores,
        bus: Bus,
        artifacts: Artifacts,
        galleries: Galleries,
        reports: Reports,
        replicas: VersionRollout,
        refused: RefusedMessages,
        *,
        hint: Callable[[str], Awaitable[None]],
        clock: Clock,
        ids: Ids,
    ) -> None:

        async def changed() -> None:
            await hint("operations")

        resolver = self.resolver = Resolver(galleries, artifacts, stores.resolved_builds)
        self.builds = FleetBuilds(resolver, stores.version_holds)
        self.fleet = Fleet(
            stores=stores,
            resolver=resolver,
            ids=ids,
            on_change=changed,
        )
        self.peers = BlobPeers(
            nodes=stores.nodes, observed=stores.observed, ask_report=reports.ask, clock=clock, ids=ids
        )
        self.progress = LiveProgress(bus=bus, store=stores.operations, refused=refused, clock=clock)
        self.intents = IntentReconciler(
            intents=stores.intents,
            bus=bus,
            reports=reports,
            progress=self.progress,
            health=stores.health,
            replicas=replicas,
            peers=self.peers,
            limits=attempt_limits(me.settings),
            ids=ids,
            on_change=changed,
        )
        self.desired = PolicyReconciler(
            holder=me.id,
            stores=stores,
            fleet=self.fleet,
            resolver=resolver,
            exhausted_retry=exhausted_retry(me.settings.backend_retry_exhausted_s),
            clock=clock,
            ids=ids,
            on_change=changed,
        )

        async def look_for_upgrades() -> None:
            await hint(UPGRADES)

        self.upgrades = UpgradeCheck(
            fleet=self.fleet,
            states=self.desired,
            galleries=galleries,
            every_s=me.settings.upgrade_check_interval_s,
            notify_all=look_for_upgrades,
        )

        async def observed() -> None:
            await hint("backends")

        reports.on_change(observed)
        reports.listen(self.intents.hear)

    def notify(self, kind: str) -> None:
        """Rows of this kind changed, here or on another frontend; or all are asked to look for upgrades."""
        if kind == UPGRADES:
            self.upgrades.notify()
            return
        self.intents.notify()
        if kind in ("nodes", "backends"):
            self.desired.notify()

    async def release(self) -> None:
        await self.intents.release()
        await self.desired.release()
