"""Wires what a frontend does about backends: operations, intents, policies and upgrade checks."""

from collections.abc import Awaitable, Callable
from functools import partial

from corral.artifacts import Artifacts
from corral.bus.client import Bus
from corral.controller.backends.attempts import AttemptLimits
from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.intent_controller import IntentReconciler
from corral.controller.backends.peers import BlobPeers
from corral.controller.backends.plan_rollout import RolloutPlanner
from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.backends.progress import SAVE_EVERY_S, LiveProgress
from corral.controller.backends.resolve import Resolver
from corral.controller.backends.rollout_controller import GateJudge, RolloutReconciler
from corral.controller.backends.upgrades import UpgradeCheck
from corral.controller.loop import Reconciler, ReconcileRuntime
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.controller.nodes.reports import Reports
from corral.controller.replicas.smoke_test import VersionRollout
from corral.core.backends.exhausted import exhausted_retry
from corral.core.backends.gates import GateSettings
from corral.core.backends.intents import RetryLimits
from corral.core.backends.rollouts import RolloutOptions, Strategy
from corral.frontend.api.status.routes import FrontendInfo
from corral.frontend.galleries import Galleries
from corral.settings.roles import FrontendSettings
from corral.store.serving.replica_rows import InFlight
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


def rollout_options(settings: FrontendSettings) -> RolloutOptions:
    options = RolloutOptions(
        strategy=Strategy(settings.rollout_strategy) if settings.rollout_strategy != "auto" else None,
        soak_s=settings.rollout_soak_s,
        wave_timeout_s=settings.rollout_wave_timeout_s,
        gates=GateSettings(
            max_error_increase=settings.rollout_max_error_increase,
            min_errors=settings.rollout_min_errors,
            max_first_token_ratio=settings.rollout_max_first_token_ratio,
            first_token_slack_ms=settings.rollout_first_token_slack_s * 1000,
            min_throughput_ratio=settings.rollout_min_throughput_ratio,
            answer_slack_ms=settings.rollout_answer_slack_s * 1000,
            max_memory_ratio=settings.rollout_max_memory_ratio,
            memory_slack_bytes=settings.rollout_memory_slack_bytes,
            min_requests=settings.rollout_min_requests,
            look_back_s=settings.rollout_look_back_s,
            unjudged_passes=settings.rollout_unjudged == "pass",
        ),
    )
    options.check()
    return options


class BackendsWiring:
    def __init__(
        self,
        info: FrontendInfo,
        runtime: ReconcileRuntime,
        stores: Stores,
        bus: Bus,
        artifacts: Artifacts,
        galleries: Galleries,
        reports: Reports,
        replicas: VersionRollout,
        refused: RefusedMessages,
        gates: GateJudge,
        *,
        in_flight: InFlight,
        announce: Callable[[str], Awaitable[None]],
        clock: Clock,
        ids: Ids,
    ) -> None:
        changed = partial(announce, "operations")
        resolver = self.resolver = Resolver(galleries, artifacts, stores.resolved_builds)
        self.builds = FleetBuilds(resolver, stores.version_pins, stores.intents, stores.rollouts)
        self.fleet = Fleet(
            stores=stores,
            resolver=resolver,
            builds=self.builds,
            rollouts=RolloutPlanner(stores, rollout_options(info.settings), in_flight),
            ids=ids,
            on_change=changed,
        )
        self.peers = BlobPeers(
            nodes=stores.nodes, observed=stores.observed, request_report=reports.request_report, clock=clock, ids=ids
        )
        self.progress = LiveProgress(bus=bus, store=stores.operations, refused=refused, clock=clock)
        saving = Reconciler("progress", self.progress.reconcile, runtime, every_s=SAVE_EVERY_S, at_start=False)
        self.intents = IntentReconciler(
            runtime,
            intents=stores.intents,
            bus=bus,
            reports=reports,
            progress=self.progress,
            health=stores.health,
            replicas=replicas,
            peers=self.peers,
            limits=attempt_limits(info.settings),
            ids=ids,
            on_change=changed,
        )
        self.policies = PolicyReconciler(
            runtime,
            stores=stores,
            fleet=self.fleet,
            resolver=resolver,
            builds=self.builds,
            exhausted_retry=exhausted_retry(info.settings.backend_retry_exhausted_s),
            clock=clock,
            ids=ids,
            on_change=changed,
        )

        self.rollouts = RolloutReconciler(runtime, stores=stores, gates=gates, on_change=changed)
        self.upgrades = UpgradeCheck(
            runtime,
            fleet=self.fleet,
            states=self.policies,
            galleries=galleries,
            rollouts=stores.rollouts,
            every_s=info.settings.upgrade_check_interval_s,
            notify_all=partial(announce, UPGRADES),
        )

        reports.on_change(partial(announce, "backends"))
        reports.listen(self.intents.on_report)
        self.loops = {
            "progress": saving.run,
            "intents": self.intents.run,
            "policies": self.policies.run,
            "rollouts": self.rollouts.run,
            "upgrades": self.upgrades.loop.run,
        }

    def notify(self, kind: str) -> None:
        """Rows of this kind changed, here or on another frontend, or all frontends are to check for upgrades."""
        if kind == UPGRADES:
            self.upgrades.loop.notify()
            return
        self.intents.loop.notify()
        if kind == "operations":
            self.rollouts.loop.notify()
        if kind in ("nodes", "backends"):
            self.policies.loop.notify()
