"""The reconcile runtime: one loop for all controllers.

A controller gives a function that compares desired with observed state and acts on the difference. The runtime decides
when the function runs: at the latest after `every_s`, sooner after `notify()`, never closer together than
`min_spacing_s`, on one frontend at a time if it has a lease, and later and later while it fails. It also binds the
reconciler's name to all log lines and counts runs, failures, durations and lag."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import structlog

from corral.core.errors import CorralError, Fenced
from corral.store.engine.leases import Lease
from corral.system import Clock
from corral.system.loops import FailureStreak, wait_or_timeout
from corral.telemetry.metrics import MetricRegistry

log = structlog.get_logger()

RELEASE_WITHIN_S = 2.0
"""A stop does not wait longer for a store that does not answer. The lease expires then."""


class ReconcileOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STANDBY = "standby"
    """Another frontend holds the lease; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileRun:
    """What a reconcile function learns about the run it is called for."""

    notified: bool
    """Whether a notification caused the run. Otherwise it was time for it."""
    held: Lease | None
    """The lease, for reconcilers that have one."""

    @property
    def lease(self) -> Lease:
        """For writes that must fail once another frontend leads."""
        assert self.held is not None, "this reconciler has no lease"
        return self.held


Reconcile = Callable[[ReconcileRun], Awaitable[float | None]]
"""Returns the seconds until the next run, where that is not `every_s`."""


class LeaseHolding(Protocol):
    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None: ...

    async def release(self, lease: Lease) -> None: ...


class ReconcileMetrics:
    """What all reconcilers of one frontend count."""

    def __init__(self, registry: MetricRegistry) -> None:
        self._reconcilers: list[Reconciler] = []
        self.runs = registry.counter(
            "corral_reconcile_runs_total", "Runs of a reconciler, by outcome.", "reconciler", "outcome"
        )
        self.duration = registry.histogram(
            "corral_reconcile_duration_seconds", "Duration of a reconciler's runs, failed ones included.", "reconciler"
        )
        self.lag = registry.histogram(
            "corral_reconcile_lag_seconds",
            "Time from when a run was due or notified to its start. Grows while runs fail or take long.",
            "reconciler",
        )
        registry.gauges(
            "corral_reconcile_leader",
            "1 if this frontend holds the reconciler's lease.",
            "reconciler",
            read=lambda: [((one.name,), float(one.is_leader)) for one in self._reconcilers if one.has_lease],
        )

    def add(self, reconciler: "Reconciler") -> None:
        self._reconcilers.append(reconciler)


class ReconcileRuntime:
    """What the reconcilers of one frontend share: its name as lease holder, leases, metrics, clock and randomness."""

    def __init__(
        self, *, holder: str, leases: LeaseHolding, registry: MetricRegistry, clock: Clock, draw: Callable[[], float]
    ) -> None:
        self.holder, self.leases, self.clock, self.draw = holder, leases, clock, draw
        self.metrics = ReconcileMetrics(registry)


class Reconciler:
    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        runtime: ReconcileRuntime,
        *,
        every_s: float,
        min_spacing_s: float = 0.0,
        gather_s: float = 0.0,
        at_start: bool = True,
        lease_ttl_s: float | None = None,
        on_standby: Callable[[], None] = lambda: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`every_s`: the time between two runs, unless the reconcile function asks for another.
        `min_spacing_s`: the shortest time between two runs, so that a burst of notifications costs few runs.
        `gather_s`: how long to wait for more notifications after the first one.
        `at_start`: run as soon as the loop starts; otherwise wait first.
        `lease_ttl_s`: run on one frontend at a time, under a lease of the reconciler's name that lasts this long.
        `on_standby`: called when this frontend no longer leads.
        `on_failure`: called when a run failed, or the lease could not be requested."""
        self.name = name
        self._reconcile, self._runtime, self._clock = reconcile, runtime, runtime.clock
        self._every_s, self._min_spacing_s, self._gather_s = every_s, min_spacing_s, gather_s
        self._lease_ttl_s, self._on_standby, self._on_failure = lease_ttl_s, on_standby, on_failure
        self._lease: Lease | None = None
        self._lease_requested = False
        self._wake = asyncio.Event()
        self._notified_s: float | None = None
        """When the first notification came that no successful run has served."""
        self._due_s = 0.0
        self._wait_first = not at_start
        self._streak = FailureStreak(name)
        self._duration, self._lag = runtime.metrics.duration.child(name), runtime.metrics.lag.child(name)
        runtime.metrics.add(self)

    @property
    def has_lease(self) -> bool:
        return self._lease_ttl_s is not None

    @property
    def is_leader(self) -> bool:
        """Whether this frontend held the lease when it last asked."""
        return self._lease is not None

    def notify(self) -> None:
        """Something changed: run soon. A notification during a run causes another run."""
        if self._notified_s is None:
            self._notified_s = self._clock.monotonic_s()
        self._wake.set()

    async def run(self) -> None:
        """Runs until it is cancelled, then releases the lease, so that another frontend takes over at once."""
        with structlog.contextvars.bound_contextvars(reconciler=self.name):
            try:
                self._due_s = self._clock.monotonic_s() + (self._every_s if self._wait_first else 0.0)
                while True:
                    await self._wait()
                    retry_s = await self._run_once()
                    await asyncio.sleep(max(retry_s, self._min_spacing_s))
            finally:
                await self._release()

    async def _wait(self) -> None:
        left_s = self._due_s - self._clock.monotonic_s()
        if left_s > 0 and await wait_or_timeout(self._wake, within_s=left_s) and self._gather_s:
            await asyncio.sleep(self._gather_s)  # one run for all notifications of a burst
        self._wake.clear()

    async def _run_once(self) -> float:
        """Returns the seconds to wait before a retry; none after a success."""
        began_s, notified_s = self._clock.monotonic_s(), self._notified_s
        due_s = self._due_s if notified_s is None else min(self._due_s, notified_s)
        self._notified_s = None
        try:
            if self.has_lease and not await self._lead():
                outcome, again_s = ReconcileOutcome.STANDBY, None
            else:
                self._lag.observe(max(0.0, began_s - due_s))
                run = ReconcileRun(notified=notified_s is not None, held=self._lease)
                outcome, again_s = ReconcileOutcome.SUCCEEDED, await self._reconcile(run)
        except Exception as error:  # noqa: BLE001  the streak logs it
            if isinstance(error, Fenced):
                self._stand_by()
            self._on_failure()
            self._count(ReconcileOutcome.FAILED, began_s)
            # Still due, and still notified: a retry serves what this run did not.
            self._due_s, self._notified_s = due_s, notified_s if notified_s is not None else self._notified_s
            return self._streak.note(error, self._runtime.draw())
        self._streak.end()
        self._count(outcome, began_s)
        self._due_s = self._clock.monotonic_s() + (self._every_s if again_s is None else again_s)
        return 0.0

    def _count(self, outcome: ReconcileOutcome, began_s: float) -> None:
        self._runtime.metrics.runs.child(self.name, outcome.value).value += 1
        if outcome is not ReconcileOutcome.STANDBY:
            self._duration.observe(self._clock.monotonic_s() - began_s)

    async def _lead(self) -> bool:
        """Take or keep the lease. The first time it is taken anew: what an earlier process of this name still writes
        under it fails."""
        assert self._lease_ttl_s is not None
        lease = await self._runtime.leases.hold(
            self.name, self._runtime.holder, ttl_s=self._lease_ttl_s, fresh=not self._lease_requested
        )
        self._lease_requested = True
        if lease is None:
            self._stand_by()
        elif self._lease is None:
            log.info("reconcile.leading", fence=lease.fence)
        self._lease = lease
        return lease is not None

    def _stand_by(self) -> None:
        if self._lease is not None:
            log.info("reconcile.lease_lost", fence=self._lease.fence)
            self._lease = None
            self._on_standby()

    async def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            async with asyncio.timeout(RELEASE_WITHIN_S):
                await self._runtime.leases.release(lease)
        except (CorralError, TimeoutError) as error:
            reason = str(error) or f"the store did not answer within {RELEASE_WITHIN_S:g} s"
            log.warning("reconcile.lease_not_released", error=reason, expires_within_s=self._lease_ttl_s)
