"""Makes intents true. Level-triggered: each pass reads what is due and claims it; one path for first try and retry.

Every frontend runs this. A claim is a lease on one row, so no two carry out the same one; whoever dies loses its claims
when they run out, and whoever was only asleep cannot write any more."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from corral.bus.messages import CancelRequest, ChangeReply, NodeReport, RollbackRequest, decode, encode
from corral.bus.subjects import BACKEND_ROLLBACK, CANCEL, node_subject
from corral.controller.commands import build_command, build_fallback, read_answer
from corral.controller.load_ports import PeerBook
from corral.controller.progress import LiveProgress
from corral.controller.reports import observation_of
from corral.controller.switch import ReplicaSwitch
from corral.core.errors import CorralError, NoResponders, OutcomeUnknown, TimedOut, Unavailable
from corral.core.intents import (
    CalledOff,
    Intent,
    IntentState,
    Observed,
    Outcome,
    Refused,
    RetryLimits,
    StillRunning,
    Unreached,
    Verb,
    missing_of,
    plan_next,
)
from corral.core.nodes import NodeId
from corral.core.observed import ObservedBackend, ObservedProcess, find_backend
from corral.core.rollout import plan_replicas
from corral.store.intents import Claim, Result
from corral.system import Ids
from corral.system.pace import Pace

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
LOOK_AT_MOST_EVERY_S = 0.02
LOOK_BACK_AT_MOST_EVERY_S = 0.1
"""At what was begun: whether it was called off, or has been seen to be done."""
AT_ONCE_ON_THE_LOOP = 16
"""Orders that go on in one turn of the event loop: a thousand workers that answer together hold up no request."""
LEASE_S = 15.0
RENEW_EVERY_S = 4.0
FINISH_EVERY_S = 10.0
DELETE_WITHIN_S = 120.0
ROLLBACK_WITHIN_S = 60.0
CANCEL_WITHIN_S = 4.0
AWAY_AGAIN_S = 2.0
UNKNOWN_AGAIN_S = 5.0
WRITE_TOGETHER_S = 0.02
HELD_MOST = 8
"""Times as many orders as may be asked for at once are held: those included that are only being written down."""
WRITE_AGAIN_S = 1.0


class Orders(Protocol):
    async def claim(self, token: str, *, lease_s: float, limit: int) -> list[Claim]: ...

    async def renew(self, token: str, ids: Iterable[str], *, lease_s: float) -> set[str]: ...

    async def read_held(self, token: str) -> dict[str, bool]: ...

    async def record(self, results: Sequence[Result]) -> set[str]: ...

    async def read_background(self) -> list[tuple[Intent, list[ObservedBackend]]]: ...

    async def finish_idle(self) -> list[str]: ...

    async def release(self, token: str) -> None: ...


class Requests(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class Reporting(Protocol):
    async def ask(self, node_id: NodeId | str) -> NodeReport: ...


class Suspicion(Protocol):
    async def suspect(self, node_id: NodeId, *, reason: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLimits:
    install_s: float = 900.0
    upgrade_s: float = 900.0
    at_once: int = 256
    retry: RetryLimits = field(default_factory=RetryLimits)


@dataclass(eq=False, slots=True)
class _Running:
    claim: Claim
    task: "asyncio.Task[None] | None" = None
    called_off: bool = False
    answered: bool = False
    """The worker has; what is left is ours to do, and keeps nobody else from being asked."""
    over: bool = False
    """There is an outcome; it only has to be written down."""


class IntentController:
    def __init__(
        self,
        *,
        orders: Orders,
        bus: Requests,
        reports: Reporting,
        progress: LiveProgress,
        suspicion: Suspicion,
        replicas: ReplicaSwitch,
        peers: PeerBook,
        limits: OrderLimits,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._orders, self._bus, self._reports, self._progress = orders, bus, reports, progress
        self._suspicion, self._replicas, self._limits, self._ids = suspicion, replicas, limits, ids
        self._on_change, self._peers = on_change, peers
        self._token = ids.uuid()
        self._running: dict[str, _Running] = {}
        self._poked = asyncio.Event()
        self._results: list[tuple[Result, asyncio.Future[bool]]] = []
        self._have_results = asyncio.Event()
        self._finish_s = 0.0
        self._look_back_s = 0.0
        self._owes_look_back = False
        self._pace = Pace(AT_ONCE_ON_THE_LOOP)

    def poke(self) -> None:
        """Something may be due, or called off."""
        self._poked.set()

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
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest_s()):
                    await self._poked.wait()
            self._poked.clear()

    async def _pass(self, tasks: asyncio.TaskGroup) -> None:
        now_s = asyncio.get_running_loop().time()
        self._owes_look_back = now_s < self._look_back_s
        if not self._owes_look_back:
            self._look_back_s = now_s + LOOK_BACK_AT_MOST_EVERY_S
            await self._call_off(tasks)
            await self._settle_background()
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
            running = _Running(claim)
            self._running[claim.intent.id] = running
            running.task = tasks.create_task(self._carry_out(running), name=f"intent {claim.intent.id}")
        if claims:
            await self._on_change()

    async def _call_off(self, tasks: asyncio.TaskGroup) -> None:
        """What was cancelled is stopped on the worker, whose answer ends it; what was replaced is also left alone."""
        if not self._running:
            return
        ours = dict(self._running)
        held = await self._orders.read_held(self._token)
        for id_, running in ours.items():
            unwanted = held.get(id_, True)
            if not unwanted or running.over:
                continue
            if not running.called_off:
                running.called_off = True
                tasks.create_task(self._tell_cancel(running.claim.intent))
            if id_ not in held and running.task is not None:
                running.task.cancel()

    async def _settle_background(self) -> None:
        """Orders that a report has meanwhile shown to be done, whoever was asked to carry them out."""
        done = [
            Result(
                intent, plan_next(intent, Observed(_digest_of(intent, backends)), draw=0.0, limits=self._limits.retry)
            )
            for intent, backends in await self._orders.read_background()
            if not intent.cancel_wanted and missing_of(intent, backends, answered=False) is None
        ]
        if done and await self._orders.record(done):
            await self._on_change()

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

    async def _carry_out(self, running: _Running) -> None:
        intent = running.claim.intent
        self._progress.follow(intent.operation_id, intent.node_id)
        try:
            await self._pace.turn()
            outcome = await self._attempt(running)
        except CorralError as error:
            outcome = StillRunning(str(error), UNKNOWN_AGAIN_S)
        except Exception as error:
            log.exception("intent.crashed", intent=intent.id, backend=intent.backend, node=intent.node_id)
            outcome = Refused(f"unexpected {type(error).__name__} inside Corral; the frontend's log has the details")
        except BaseException:
            self._running.pop(intent.id, None)
            raise
        finally:
            running.over = True
            self._progress.leave(intent.operation_id, intent.node_id)
        try:
            await self._finish(running, outcome)
        finally:
            self._running.pop(intent.id, None)
            self.poke()

    async def _finish(self, running: _Running, outcome: Outcome) -> None:
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
            if self._results:
                self._have_results.set()
            if not batch:
                continue
            try:
                kept = await self._orders.record([result for result, _ in batch])
            except CorralError as error:
                # Written twice does no harm: whose claim was given up, by us or by time, is passed over.
                log.warning("intents.results_not_written", count=len(batch), error=str(error))
                self._results = batch + self._results
                self._have_results.set()
                await asyncio.sleep(WRITE_AGAIN_S)
                continue
            for result, written in batch:
                if not written.done():
                    written.set_result(result.intent.id in kept)
            await self._on_change()

    async def _attempt(self, running: _Running) -> Outcome:
        intent = running.claim.intent
        if intent.cancel_wanted:
            await self._tell_cancel(intent)
            return CalledOff("cancelled")
        within_s = self._within_s(intent)
        try:
            data = await self._send(intent, within_s=within_s)
            running.answered = True
            self.poke()
            await self._pace.turn()
        except NoResponders:
            return Unreached("the node does not answer on the message bus", AWAY_AGAIN_S, True)
        except TimedOut:
            if running.called_off:
                return CalledOff("cancelled; the worker did not answer in time")
            return StillRunning(
                f"the worker has not answered within {within_s:g} s; it is most likely still at it", within_s
            )
        except OutcomeUnknown as error:
            return StillRunning(f"{error}; asked again soon", UNKNOWN_AGAIN_S)
        except Unavailable as error:
            return Unreached(str(error), AWAY_AGAIN_S)
        answer = read_answer(intent, data)
        if answer.success:
            return await self._confirm(intent)
        if running.called_off or answer.code == "cancelled":
            return CalledOff(answer.error or "cancelled")
        return Refused(answer.error or "the worker gave no reason", outdated=answer.code == "outdated_command")

    async def _send(self, intent: Intent, *, within_s: float) -> bytes:
        gets = intent.verb in (Verb.INSTALL, Verb.UPGRADE)
        peers = await self._peers.find(intent.wish.digest, besides=intent.node_id) if gets else []
        verb, body = build_command(intent, peers)
        try:
            return await self._bus.request(node_subject(intent.node_id, verb), body, within_s=within_s)
        except NoResponders:
            fallback = build_fallback(intent)
            if fallback is None:
                raise
            verb, body = fallback
            return await self._bus.request(node_subject(intent.node_id, verb), body, within_s=within_s)

    async def _confirm(self, intent: Intent) -> Outcome:
        """The worker's word is not enough: its table must show it."""
        try:
            report = await self._reports.ask(intent.node_id)
            await self._pace.turn()
            seen = observation_of(report)
        except CorralError as error:
            return StillRunning(f"done by the worker's word, but its report is missing: {error}", UNKNOWN_AGAIN_S)
        missing = missing_of(intent, seen.backends, answered=True)
        if missing is not None:
            return Refused(f"the worker says it is done, but {missing}")
        if intent.verb in (Verb.UPGRADE, Verb.ROLLBACK):
            failure = await self._switch(intent, seen.backends, seen.processes)
            if failure is not None:
                return failure
        return Observed(_digest_of(intent, seen.backends))

    async def _switch(
        self, intent: Intent, backends: Sequence[ObservedBackend], processes: Sequence[ObservedProcess]
    ) -> Outcome | None:
        found = find_backend(backends, intent.wish.name, intent.backend)
        if found is None or not found.digest:
            return None
        changes = plan_replicas(processes, backend=found.name, digest=found.digest)
        if not changes:
            return None
        try:
            await self._replicas.switch(intent.node_id, changes, operation_id=intent.operation_id)
        except OutcomeUnknown as error:
            return StillRunning(str(error), UNKNOWN_AGAIN_S)
        except CorralError as error:
            went_back = await self._go_back(intent, changes[0].process.digest)
            return Refused(f"the new version does not start, {went_back}: {error}")
        return None

    async def _go_back(self, intent: Intent, digest: str) -> str:
        """So that whatever starts next starts from the version that serves."""
        request = RollbackRequest(backend=intent.backend, to=digest, generation=intent.generation)
        subject = node_subject(intent.node_id, BACKEND_ROLLBACK)
        try:
            answer = decode(await self._bus.request(subject, encode(request), within_s=ROLLBACK_WITHIN_S), ChangeReply)
            await self._reports.ask(intent.node_id)
        except CorralError as error:
            return f"the old one serves on, but could not be made current again ({error})"
        return "the old one serves on" if answer.success else f"the old one serves on, but {answer.error}"

    async def _tell_cancel(self, intent: Intent) -> None:
        subject = node_subject(intent.node_id, CANCEL)
        try:
            await self._bus.request(subject, encode(CancelRequest(op_id=intent.operation_id)), within_s=CANCEL_WITHIN_S)
        except CorralError as error:  # a worker that is not there does nothing; an old one goes on to its end
            log.info("intent.cancel_not_heard", node=intent.node_id, operation=intent.operation_id, error=str(error))

    def _within_s(self, intent: Intent) -> float:
        match intent.verb:
            case Verb.INSTALL:
                return self._limits.install_s
            case Verb.UPGRADE:
                return self._limits.upgrade_s
            case Verb.DELETE:
                return DELETE_WITHIN_S
            case Verb.ROLLBACK:
                return ROLLBACK_WITHIN_S


def _digest_of(intent: Intent, backends: Iterable[ObservedBackend]) -> str:
    found = find_backend(backends, intent.wish.name, intent.backend)
    return found.digest if found is not None else ""
