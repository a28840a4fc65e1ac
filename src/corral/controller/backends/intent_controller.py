"""Makes intents true. Level-triggered: each pass reads what is due and claims it; one path for first try and retry.

Every frontend runs this. A claim is a lease on one row, so no two carry out the same one; whoever dies loses its claims
when they run out, and whoever was only asleep cannot write any more."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from corral.bus.messages import NodeReport
from corral.controller.backends.attempts import (
    CANCEL_AGAIN_S,
    AttemptLimits,
    Attempts,
    Reporting,
    Requests,
    RunningAttempt,
    digest_of,
)
from corral.controller.backends.progress import LiveProgress
from corral.controller.loads.ports import PeerBook
from corral.controller.replicas.smoke_test import VersionRollout
from corral.core.backends.intents import (
    AttemptConfirmed,
    AttemptRejected,
    Intent,
    IntentState,
    AttemptOutcome,
    Verb,
    find_missing,
    plan_next,
)
from corral.core.errors import CorralError
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.store.backends.intents import IntentClaim, Result, Stop
from corral.system import Ids
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
LOOK_AT_MOST_EVERY_S = 0.02
LOOK_BACK_AT_MOST_EVERY_S = 0.1
"""At what was begun: whether it was called off, or has been seen to be done."""
LEASE_S = 15.0
RENEW_EVERY_S = 4.0
FINISH_EVERY_S = 10.0
WRITE_TOGETHER_S = 0.02
HELD_MOST = 8
"""Times as many orders as may be asked for at once are held: those included that are only being written down."""
WRITE_AGAIN_S = 1.0
UNFIT = "the worker's answer could not be stored; the frontend's log has the details"


class IntentQueue(Protocol):
    async def claim(self, token: str, *, lease_s: float, limit: int) -> list[IntentClaim]: ...

    async def claim_shown(self, token: str, intents: Sequence[Intent], *, lease_s: float) -> list[IntentClaim]: ...

    async def read_stops(self) -> list[Stop]: ...

    async def note_stopped(self, intent_id: str) -> None: ...

    async def renew(self, token: str, ids: Iterable[str], *, lease_s: float) -> set[str]: ...

    async def read_held(self, token: str) -> dict[str, bool]: ...

    async def record(self, results: Sequence[Result]) -> set[str]: ...

    async def read_background(self) -> list[tuple[Intent, list[ObservedBackend]]]: ...

    async def finish_idle(self) -> list[str]: ...

    async def release(self, token: str) -> None: ...


Pending = tuple[Result, "asyncio.Future[bool]"]
Attempt = Callable[[RunningAttempt, Callable[[], None]], Awaitable[AttemptOutcome]]


class Suspicion(Protocol):
    async def suspect(self, node_id: NodeId, *, reason: str) -> bool: ...


class IntentReconciler:
    def __init__(
        self,
        *,
        orders: IntentQueue,
        bus: Requests,
        reports: Reporting,
        progress: LiveProgress,
        suspicion: Suspicion,
        replicas: VersionRollout,
        peers: PeerBook,
        limits: AttemptLimits,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._orders, self._bus, self._progress, self._suspicion = orders, bus, progress, suspicion
        self._limits, self._ids, self._on_change = limits, ids, on_change
        self._attempts = Attempts(bus=bus, reports=reports, replicas=replicas, peers=peers, limits=limits)
        self._token = ids.uuid()
        self._running: dict[str, RunningAttempt] = {}
        self._waiting: dict[tuple[str, str], RunningAttempt] = {}
        """By node and backend, of which no two orders are open."""
        self._applied: dict[str, dict[str, int]] = {}
        """By node: the last order carried out for each backend, as its newest report tells."""
        self._stopping: set[str] = set()
        """Ended orders whose workers are being told so."""
        self._poked = asyncio.Event()
        self._results: list[Pending] = []
        self._have_results = asyncio.Event()
        self._finish_s = 0.0
        self._look_back_s = 0.0
        self._owes_look_back = False

    def notify(self) -> None:
        """Something may be due, or called off."""
        self._poked.set()

    @property
    def holds_any(self) -> bool:
        """Some order is being carried out from here."""
        return bool(self._running)

    async def hear(self, report: NodeReport) -> None:
        """What a node has done is known from its report, also where the answer was lost."""
        self._applied[report.node] = report.applied
        for backend, generation in report.applied.items():
            running = self._waiting.get((report.node, backend))
            if running is not None and running.claim.intent.generation == generation:
                running.hear(report)
        for (node, _), running in self._waiting.items():
            if node == report.node and report.epoch > running.claim.epoch:
                running.give_up()  # asking twice does no harm: a request that is being carried out is joined

    async def run(self) -> None:
        """Leaving ends what runs here; the claims run out and another frontend goes on."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write_results(), name="intents:results")
                tasks.create_task(self._renew(), name="intents:renew")
                await self._passes(tasks)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._running.clear()
            self._stopping.clear()

    async def release(self) -> None:
        """On an orderly stop: others need not wait until our claims have run out."""
        await self._orders.release(self._token)

    # Passes

    async def _passes(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                await self._pass(tasks)
            except CorralError as error:  # the store is away: what runs goes on, what is due waits
                log.warning("intents.pass_failed", error=str(error))
            await asyncio.sleep(LOOK_AT_MOST_EVERY_S)
            await wait_or_timeout(self._poked, within_s=self._rest_s())

    async def _pass(self, tasks: asyncio.TaskGroup) -> None:
        now_s = asyncio.get_running_loop().time()
        self._owes_look_back = now_s < self._look_back_s
        if not self._owes_look_back:
            self._look_back_s = now_s + LOOK_BACK_AT_MOST_EVERY_S
            await self._call_off(tasks)
            await self._stop_ended(tasks)
            await self._settle_background(tasks)
        await self._begin(tasks)
        if now_s >= self._finish_s:
            self._finish_s = now_s + FINISH_EVERY_S
            await self._orders.finish_idle()

    def _rest_s(self) -> float:
        now_s = asyncio.get_running_loop().time()
        return max(0.0, self._look_back_s - now_s) if self._owes_look_back else LOOK_EVERY_S

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        asked = sum(not running.answered for running in self._running.values())
        free = min(self._limits.at_once - asked, HELD_MOST * self._limits.at_once - len(self._running))
        if free <= 0 or not self._bus.connected:
            return
        claims = await self._orders.claim(self._token, lease_s=LEASE_S, limit=free)
        for claim in claims:
            self._start(tasks, claim, self._attempts.make)
        if claims:
            await self._on_change()

    def _start(self, tasks: asyncio.TaskGroup, claim: IntentClaim, attempt: Attempt) -> None:
        before = self._running.get(claim.intent.id)
        if before is not None and before.task is not None:
            before.task.cancel()  # we were away for so long that our own claim ran out
        running = RunningAttempt(claim, applied_before=self._may_be_applied(claim.intent))
        self._running[claim.intent.id] = running
        running.task = tasks.create_task(self._carry_out(running, attempt), name=f"intent {claim.intent.id}")

    def _may_be_applied(self, intent: Intent) -> bool:
        """By an earlier attempt. Of the first one nobody can have heard before."""
        if intent.fence <= 1:
            return False
        applied = self._applied.get(intent.node_id)
        return applied is None or applied.get(intent.backend) == intent.generation

    async def _call_off(self, tasks: asyncio.TaskGroup) -> None:
        """What a person has cancelled is stopped on the worker, whose answer ends it. What is not ours any more is only
        left alone: another frontend may have taken it over, and what has ended is told by `_stop_ended`."""
        if not self._running:
            return
        ours = dict(self._running)
        held = await self._orders.read_held(self._token)
        for id_, running in ours.items():
            if running.over:
                continue
            if id_ not in held:
                if running.task is not None:
                    running.task.cancel()
            elif held[id_] and not running.called_off:
                running.cancelled.set()
                tasks.create_task(self._attempts.call_off(running))

    async def _stop_ended(self, tasks: asyncio.TaskGroup) -> None:
        """Workers are told of orders that ended without their word, by whichever frontend, until they have answered."""
        if not self._bus.connected:
            return
        for stop in await self._orders.read_stops():
            if stop.intent_id not in self._stopping:
                self._stopping.add(stop.intent_id)
                tasks.create_task(self._tell_stop(stop), name=f"stop {stop.intent_id}")

    async def _tell_stop(self, stop: Stop) -> None:
        try:
            if not await self._attempts.tell_cancel(stop.node_id, stop.operation_id):
                await self._orders.note_stopped(stop.intent_id)
        except CorralError as error:
            log.info("intent.stop_not_heard", node=stop.node_id, operation=stop.operation_id, error=str(error))
        await asyncio.sleep(CANCEL_AGAIN_S)
        self._stopping.discard(stop.intent_id)

    async def _settle_background(self, tasks: asyncio.TaskGroup) -> None:
        """Orders that a report has meanwhile shown to be done, whoever was asked to carry them out. A version that is
        on the disk has yet to show that it starts."""
        shown = [
            (intent, digest_of(intent, backends))
            for intent, backends in await self._orders.read_background()
            if not intent.cancel_requested
            and find_missing(intent, backends, answered=self._is_shown_gone(intent)) is None
        ]
        done = [
            Result(intent, plan_next(intent, AttemptConfirmed(digest), draw=0.0, limits=self._limits.retry))
            for intent, digest in shown
            if not intent.verb.changes_version
        ]
        if done and await self._orders.record(done):
            await self._on_change()
        changing = [intent for intent, _ in shown if intent.verb.changes_version and intent.id not in self._running]
        if changing and self._bus.connected:
            for claim in await self._orders.claim_shown(self._token, changing, lease_s=LEASE_S):
                self._start(tasks, claim, self._attempts.finish)

    def _is_shown_gone(self, intent: Intent) -> bool:
        """Of what is there, its own generation tells as much."""
        applied = self._applied.get(intent.node_id, {})
        return intent.verb is Verb.DELETE and applied.get(intent.backend) == intent.generation

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            ids = list(self._running)
            if not ids:
                continue
            try:
                await self._orders.renew(self._token, ids, lease_s=LEASE_S)
            except CorralError as error:  # nobody else can take them over while the store is away
                log.warning("intents.not_renewed", count=len(ids), error=str(error))

    # One order

    async def _carry_out(self, running: RunningAttempt, attempt: Attempt) -> None:
        intent = running.claim.intent
        self._progress.follow(intent.operation_id, intent.node_id)
        place = (str(intent.node_id), intent.backend)
        self._waiting[place] = running
        try:
            outcome = await attempt(running, self.notify)
        except Exception as error:
            log.exception("intent.crashed", intent=intent.id, backend=intent.backend, node=intent.node_id)
            outcome = AttemptRejected(
                f"unexpected {type(error).__name__} inside Corral; the frontend's log has the details"
            )
        except BaseException:
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
            self.notify()

    def _forget(self, running: RunningAttempt) -> None:
        if self._running.get(running.claim.intent.id) is running:
            del self._running[running.claim.intent.id]

    async def _finish(self, running: RunningAttempt, outcome: AttemptOutcome) -> None:
        intent = running.claim.intent
        step = plan_next(intent, outcome, draw=self._ids.draw(), limits=self._limits.retry)
        if step.node_unhealthy:
            with suppress(CorralError):  # the health pass finds out as well
                await self._suspicion.suspect(intent.node_id, reason=step.error)
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._results.append((Result(intent, step), written))
        self._have_results.set()
        kept = await written
        # Of a thousand nodes that did as they were told, the operation tells enough.
        tell = log.debug if step.state is IntentState.SUCCEEDED else log.info
        tell(
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
        """All that ended at about the same time, in one transaction."""
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
        """What is left to be written. Written twice does no harm: whose claim was given up, by us or by time, is passed
        over."""
        try:
            kept = await self._orders.record([result for result, _ in batch])
        except Exception as error:
            if not _is_passing(error):
                log.exception("intents.results_not_written", count=len(batch))
                return await self._without_unfit(batch)
            log.warning("intents.results_not_written", count=len(batch), error=str(error))
            return batch
        for result, written in batch:
            _settle(written, result.intent.id in kept)
        await self._on_change()
        return []

    async def _without_unfit(self, batch: list[Pending]) -> list[Pending]:
        """What the store does not take, such as a worker's answer with a NUL in it, must hold up nobody else's result:
        it is a failure of that order alone. What is left to be written."""
        left: list[Pending] = []
        for result, written in batch:
            try:
                kept = await self._orders.record([result])
            except Exception as error:
                if _is_passing(error):
                    left.append((result, written))
                    continue
                log.exception("intent.result_unfit", intent=result.intent.id)
                if result.step.error == UNFIT:
                    _settle(written, False)  # nor this: the claim runs out, and the order is given anew
                    continue
                step = plan_next(
                    result.intent, AttemptRejected(UNFIT), draw=self._ids.draw(), limits=self._limits.retry
                )
                left.append((Result(result.intent, step), written))
                continue
            _settle(written, result.intent.id in kept)
        return left


def _is_passing(error: Exception) -> bool:
    return isinstance(error, CorralError) and error.retryable


def _settle(written: "asyncio.Future[bool]", kept: bool) -> None:
    """Whoever waits for it may have been cancelled meanwhile."""
    if not written.done():
        written.set_result(kept)
