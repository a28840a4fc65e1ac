"""Carries out intents. Level-triggered: each pass claims what is due; first attempts and retries take the same path.

Every frontend runs this. A claim is a lease on one row, so no two frontends carry out the same intent. The claims of a
frontend that dies expire, and one that was only suspended can no longer write."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from corral.bus.client import Bus
from corral.bus.messages import NodeReport
from corral.controller.backends.attempts import (
    CANCEL_RETRY_S,
    AttemptLimits,
    Attempts,
    RunningAttempt,
    digest_of,
)
from corral.controller.backends.progress import LiveProgress
from corral.controller.loads.ports import PeerFinder
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.controller.nodes.reports import Reports
from corral.controller.replicas.smoke_test import VersionRollout
from corral.core.backends.intents import (
    AttemptConfirmed,
    AttemptOutcome,
    AttemptRejected,
    Intent,
    IntentState,
    Verb,
    find_missing,
    plan_next,
)
from corral.core.errors import CorralError
from corral.store.backends.intents import IntentClaim, IntentStore, Result, Stop
from corral.store.nodes.health import HealthStore
from corral.system import Ids

log = structlog.get_logger()

EVERY_S = 2.0
MIN_SPACING_S = 0.02
LOOK_BACK_AT_MOST_EVERY_S = 0.1
"""At running intents: whether they were cancelled, or a report shows them as applied."""
LEASE_S = 15.0
RENEW_EVERY_S = 4.0
FINISH_EVERY_S = 10.0
WRITE_TOGETHER_S = 0.02
HELD_MOST = 8
"""How many times the limit of concurrent attempts may be claimed, with those whose results are being written."""
WRITE_AGAIN_S = 1.0
UNSTORABLE = "the worker's reply could not be stored; see the frontend's log"


Pending = tuple[Result, "asyncio.Future[bool]"]
Attempt = Callable[[RunningAttempt, Callable[[], None]], Awaitable[AttemptOutcome]]


class IntentReconciler:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        intents: IntentStore,
        bus: Bus,
        reports: Reports,
        progress: LiveProgress,
        health: HealthStore,
        replicas: VersionRollout,
        peers: PeerFinder,
        limits: AttemptLimits,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self.loop = Reconciler("intents", self._reconcile, runtime, every_s=EVERY_S, min_spacing_s=MIN_SPACING_S)
        self._store, self._bus, self._progress, self._health = intents, bus, progress, health
        self._limits, self._ids, self._on_change = limits, ids, on_change
        self._attempts = Attempts(bus=bus, reports=reports, replicas=replicas, peers=peers, limits=limits)
        self._token = ids.uuid()
        self._running: dict[str, RunningAttempt] = {}
        self._waiting: dict[tuple[str, str], RunningAttempt] = {}
        """By node and backend, which have at most one live intent."""
        self._applied: dict[str, dict[str, int]] = {}
        """By node: the last applied generation for each backend, from its newest report."""
        self._stopping: set[str] = set()
        """Ended intents whose workers are being told to stop."""
        self._tasks: asyncio.TaskGroup
        self._results: list[Pending] = []
        self._have_results = asyncio.Event()
        self._finish_s = 0.0
        self._look_back_s = 0.0

    @property
    def holds_any(self) -> bool:
        """Whether an intent is running here."""
        return bool(self._running)

    async def on_report(self, report: NodeReport) -> None:
        """Takes a node's report, which shows what was applied even if the reply was lost."""
        self._applied[report.node] = report.applied
        for backend, generation in report.applied.items():
            running = self._waiting.get((report.node, backend))
            if running is not None and running.claim.intent.generation == generation:
                running.on_report(report)
        for running in self._running.values():
            newer = report.epoch > max(running.claim.epoch, running.epoch)
            if newer and running.claim.intent.node_id == report.node:
                running.restarted.set()
                running.expire()  # sending twice does no harm: a running request is joined

    async def run(self) -> None:
        """Cancelling it ends all attempts here; their claims expire and another frontend takes over."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._write_results(), name="intents:results")
                self._tasks.create_task(self._renew(), name="intents:renew")
                await self.loop.run()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._running.clear()
            self._stopping.clear()

    async def release(self) -> None:
        """On an orderly stop, so that others need not wait until the claims expire."""
        await self._store.release(self._token)

    # Runs

    async def _reconcile(self, _run: ReconcileRun) -> float | None:
        """Running attempts continue when this fails."""
        loop, tasks = asyncio.get_running_loop(), self._tasks
        now_s = loop.time()
        looks_back = now_s >= self._look_back_s
        if looks_back:
            self._look_back_s = now_s + LOOK_BACK_AT_MOST_EVERY_S
            await self._cancel_requested(tasks)
            await self._stop_ended(tasks)
            await self._settle_unconfirmed(tasks)
        await self._begin(tasks)
        if now_s >= self._finish_s:
            self._finish_s = now_s + FINISH_EVERY_S
            await self._store.finish_idle()
        return None if looks_back else max(0.0, self._look_back_s - loop.time())

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        asked = sum(not running.answered for running in self._running.values())
        free = min(self._limits.at_once - asked, HELD_MOST * self._limits.at_once - len(self._running))
        if free <= 0 or not self._bus.connected:
            return
        claims = await self._store.claim(self._token, lease_s=LEASE_S, limit=free)
        for claim in claims:
            self._start(tasks, claim, self._attempts.make)
        if claims:
            await self._on_change()

    def _start(self, tasks: asyncio.TaskGroup, claim: IntentClaim, attempt: Attempt) -> None:
        before = self._running.get(claim.intent.id)
        if before is not None and before.task is not None:
            before.task.cancel()  # this process was suspended until its own claim expired
        running = RunningAttempt(claim, applied_before=self._may_be_applied(claim.intent))
        self._running[claim.intent.id] = running
        running.task = tasks.create_task(self._carry_out(running, attempt), name=f"intent {claim.intent.id}")

    def _may_be_applied(self, intent: Intent) -> bool:
        """Whether an earlier attempt may have been applied. There is none before the first."""
        if intent.fence <= 1:
            return False
        applied = self._applied.get(intent.node_id)
        return applied is None or applied.get(intent.backend) == intent.generation

    async def _cancel_requested(self, tasks: asyncio.TaskGroup) -> None:
        """Stops cancelled attempts on their workers, whose replies end them. Attempts whose claim was lost are only
        dropped: another frontend may run them, and `_stop_ended` tells the workers of ended intents."""
        if not self._running:
            return
        ours = dict(self._running)
        held = await self._store.read_held(self._token)
        for id_, running in ours.items():
            if running.over:
                continue
            if id_ not in held:
                if running.task is not None:
                    running.task.cancel()
            elif held[id_] and not running.cancelled.is_set():
                running.cancelled.set()
                tasks.create_task(self._attempts.cancel_while_running(running))

    async def _stop_ended(self, tasks: asyncio.TaskGroup) -> None:
        """Tells workers to stop intents that ended without their reply, on any frontend, until they have replied."""
        if not self._bus.connected:
            return
        for stop in await self._store.read_stops():
            if stop.intent_id not in self._stopping:
                self._stopping.add(stop.intent_id)
                tasks.create_task(self._send_stop(stop), name=f"stop {stop.intent_id}")

    async def _send_stop(self, stop: Stop) -> None:
        try:
            if not await self._attempts.send_cancel(stop.node_id, stop.operation_id):
                await self._store.note_stopped(stop.intent_id)
        except CorralError as error:
            log.info("intent.stop_not_heard", node=stop.node_id, operation=stop.operation_id, error=str(error))
        await asyncio.sleep(CANCEL_RETRY_S)  # no new attempt before that
        self._stopping.discard(stop.intent_id)

    async def _settle_unconfirmed(self, tasks: asyncio.TaskGroup) -> None:
        """Ends unconfirmed intents that a report shows as applied. A new version on the disk has yet to show that it
        starts."""
        shown = [
            (intent, digest_of(intent, backends))
            for intent, backends in await self._store.read_unconfirmed()
            if not intent.cancel_requested
            and find_missing(intent, backends, answered=self._is_delete_applied(intent)) is None
        ]
        done = [
            Result(intent, plan_next(intent, AttemptConfirmed(digest), draw=0.0, limits=self._limits.retry))
            for intent, digest in shown
            if not intent.verb.changes_version
        ]
        if done and await self._store.record(done):
            await self._on_change()
        changing = [intent for intent, _ in shown if intent.verb.changes_version and intent.id not in self._running]
        if changing and self._bus.connected:
            for claim in await self._store.claim_shown(self._token, changing, lease_s=LEASE_S):
                self._start(tasks, claim, self._attempts.finish)

    def _is_delete_applied(self, intent: Intent) -> bool:
        """Whether a report shows the delete as applied. Installed backends carry their own generation."""
        applied = self._applied.get(intent.node_id, {})
        return intent.verb is Verb.DELETE and applied.get(intent.backend) == intent.generation

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            ids = list(self._running)
            if not ids:
                continue
            try:
                await self._store.renew(self._token, ids, lease_s=LEASE_S)
            except CorralError as error:  # nobody else can take them over while the store is unavailable
                log.warning("intents.not_renewed", count=len(ids), error=str(error))

    # One attempt

    async def _carry_out(self, running: RunningAttempt, attempt: Attempt) -> None:
        intent = running.claim.intent
        self._progress.follow(intent.operation_id, intent.node_id)
        place = (str(intent.node_id), intent.backend)
        self._waiting[place] = running
        try:
            outcome = await attempt(running, self.loop.notify)
        except Exception as error:  # a bug must not keep the intent claimed for ever
            log.exception("intent.crashed", intent=intent.id, backend=intent.backend, node=intent.node_id)
            outcome = AttemptRejected(f"unexpected {type(error).__name__} in Corral; see the frontend's log")
        except BaseException:  # the frontend stops
            self._forget(running)
            raise
        finally:
            running.over = True
            if self._waiting.get(place) is running:
                del self._waiting[place]
                self._progress.leave(intent.operation_id, intent.node_id)
        try:
            await self._finish(running, outcome)
        finally:
            self._forget(running)
            self.loop.notify()

    def _forget(self, running: RunningAttempt) -> None:
        if self._running.get(running.claim.intent.id) is running:
            del self._running[running.claim.intent.id]

    async def _finish(self, running: RunningAttempt, outcome: AttemptOutcome) -> None:
        intent = running.claim.intent
        step = plan_next(intent, outcome, draw=self._ids.draw(), limits=self._limits.retry)
        if step.node_unhealthy:
            with suppress(CorralError):  # the health controller finds out as well
                await self._health.suspect(intent.node_id, reason=step.error)
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._results.append((Result(intent, step), written))
        self._have_results.set()
        kept = await written
        # At debug level: for a thousand nodes that succeed, the operation's own event is enough.
        log_event = log.debug if step.state is IntentState.SUCCEEDED else log.info
        log_event(
            "intent.attempted",
            backend=intent.backend,
            verb=intent.verb.value,
            node=running.claim.node_name,
            operation=intent.operation_id,
            state=step.state.value,
            attempts=step.attempts,
            error=step.error,
            kept=kept,
        )

    async def _write_results(self) -> None:
        """Writes results that arrive at about the same time in one transaction."""
        while True:
            await self._have_results.wait()
            await asyncio.sleep(WRITE_TOGETHER_S)
            self._have_results.clear()
            batch, self._results = self._results[:500], self._results[500:]
            left = await self._write_batch(batch) if batch else []
            self._results = left + self._results
            if self._results:
                self._have_results.set()
            if left:
                await asyncio.sleep(WRITE_AGAIN_S)

    async def _write_batch(self, batch: list[Pending]) -> list[Pending]:
        """Returns what is left to be written. Writing twice does no harm: results without a valid claim are ignored."""
        try:
            kept = await self._store.record([result for result, _ in batch])
        except Exception as error:  # whatever it is: one bad result must not hold up the others
            if not _is_transient(error):
                log.exception("intents.results_not_written", count=len(batch))
                return await self._write_separately(batch)
            log.warning("intents.results_not_written", count=len(batch), error=str(error))
            return batch
        for result, written in batch:
            _settle(written, result.intent.id in kept)
        await self._on_change()
        return []

    async def _write_separately(self, batch: list[Pending]) -> list[Pending]:
        """Returns what is left to be written. A result that the store rejects, such as a reply with a NUL in it, fails
        its own intent only and delays no other."""
        left: list[Pending] = []
        for result, written in batch:
            try:
                kept = await self._store.record([result])
            except Exception as error:
                if _is_transient(error):
                    left.append((result, written))
                    continue
                log.exception("intent.result_unstorable", intent=result.intent.id)
                if result.step.error == UNSTORABLE:
                    _settle(written, False)  # not even this: the claim expires and the attempt is repeated
                    continue
                step = plan_next(
                    result.intent, AttemptRejected(UNSTORABLE), draw=self._ids.draw(), limits=self._limits.retry
                )
                left.append((Result(result.intent, step), written))
                continue
            _settle(written, result.intent.id in kept)
        return left


def _is_transient(error: Exception) -> bool:
    return isinstance(error, CorralError) and error.retryable


def _settle(written: "asyncio.Future[bool]", kept: bool) -> None:
    """Resolves the future, unless its waiter was cancelled meanwhile."""
    if not written.done():
        written.set_result(kept)
