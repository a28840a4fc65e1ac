"""One attempt at one order: sent, answered, and seen to be so."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import structlog

from corral.bus.messages import CancelReply, CancelRequest, ChangeReply, NodeReport, RollbackRequest, decode, encode
from corral.bus.subjects import BACKEND_ROLLBACK, CANCEL, node_subject
from corral.controller.backends.commands import build_command, build_fallback, read_answer
from corral.controller.loads.ports import PeerBook
from corral.controller.nodes.reports import observation_of
from corral.controller.replicas.smoke_test import RolloutStalled, VersionFailed, VersionRollout
from corral.core.backends.intents import (
    AttemptCancelled,
    AttemptConfirmed,
    AttemptRejected,
    AttemptUnconfirmed,
    AttemptUndelivered,
    Intent,
    AttemptOutcome,
    RetryLimits,
    Verb,
    find_missing,
    short_digest,
)
from corral.core.backends.rollout import ReplicaChange, plan_replicas
from corral.core.errors import CorralError, NoResponders, OutcomeUnknown, TimedOut, Unavailable
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend, ObservedProcess, find_backend
from corral.core.nodes.presence import Presence
from corral.store.backends.intents import IntentClaim
from corral.system.yielding import Pace

log = structlog.get_logger()
T = TypeVar("T")

AT_ONCE_ON_THE_LOOP = 16
"""Orders that go on in one turn of the event loop: a thousand workers that answer together hold up no request."""
DELETE_WITHIN_S = 120.0
ROLLBACK_WITHIN_S = 60.0
CANCEL_WITHIN_S = 4.0
CANCEL_AGAIN_S = 0.5
CANCEL_LOOKS = 60
AWAY_AGAIN_S = 2.0
STARTED_AGAIN_S = 0.5
UNKNOWN_AGAIN_S = 5.0
ANSWER_FOLLOWS_WITHIN_S = 1.0
"""A worker reports what it has done and answers; an answer that is not there so long after the report is lost."""


class Requests(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class Reporting(Protocol):
    async def ask(self, node_id: NodeId | str) -> NodeReport: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    install_s: float = 900.0
    upgrade_s: float = 900.0
    at_once: int = 256
    retry: RetryLimits = field(default_factory=RetryLimits)


@dataclass(eq=False, slots=True)
class RunningAttempt:
    claim: IntentClaim
    applied_before: bool
    """The worker may have carried out this very order before, in an earlier attempt: that a report says so again shows
    nothing about this one."""
    task: "asyncio.Task[None] | None" = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a person has cancelled it."""
    answered: bool = False
    """The worker has; what is left is ours to do, and keeps nobody else from being asked."""
    over: bool = False
    """There is an outcome; it only has to be written down."""
    shown_done: NodeReport | None = None
    patience: asyncio.Timeout | None = None
    """With the answer, while it is waited for."""

    @property
    def called_off(self) -> bool:
        return self.cancelled.is_set()

    def hear(self, report: NodeReport) -> None:
        """The worker's report shows that it has carried this very order out."""
        if self.patience is not None and self.shown_done is None and not self.applied_before:
            self.shown_done = report
            self.patience.reschedule(asyncio.get_running_loop().time() + ANSWER_FOLLOWS_WITHIN_S)

    def give_up(self, *, after_s: float = 0.0) -> None:
        """Nobody is left who would answer: the worker was started anew, or says that it does nothing of this."""
        if self.patience is not None and self.shown_done is None:
            self.patience.reschedule(asyncio.get_running_loop().time() + after_s)


class Attempts:
    def __init__(
        self, *, bus: Requests, reports: Reporting, replicas: VersionRollout, peers: PeerBook, limits: AttemptLimits
    ) -> None:
        self._bus, self._reports, self._replicas, self._peers, self._limits = bus, reports, replicas, peers, limits
        self._pace = Pace(AT_ONCE_ON_THE_LOOP)

    async def make(self, running: RunningAttempt, on_answer: Callable[[], None]) -> AttemptOutcome:
        await self._pace.turn()
        if running.claim.intent.cancel_requested:
            return await self._cancel(running.claim)
        try:
            outcome = await self._ask(running, on_answer)
        except CorralError as error:
            outcome = outcome_of(error)
        return await self._unless_cancelled(running, outcome)

    async def finish(self, running: RunningAttempt, on_answer: Callable[[], None]) -> AttemptOutcome:
        """Of an order that was asked for before, and that a report shows the worker has carried out since: what is left
        to be done is the same as after an answer."""
        running.answered = True
        on_answer()
        await self._pace.turn()
        try:
            outcome = await self._confirm(running, answered=False)
        except CorralError as error:
            outcome = outcome_of(error)
        return await self._unless_cancelled(running, outcome)

    async def _unless_cancelled(self, running: RunningAttempt, outcome: AttemptOutcome) -> AttemptOutcome:
        if not running.called_off or isinstance(outcome, AttemptConfirmed | AttemptCancelled):
            return outcome
        ended = await self._cancel(running.claim)
        if isinstance(ended, AttemptCancelled) and isinstance(outcome, AttemptRejected):
            return replace(ended, reason=f"{ended.reason}; it had failed: {outcome.reason}")
        return ended

    async def _ask(self, running: RunningAttempt, on_answer: Callable[[], None]) -> AttemptOutcome:
        intent = running.claim.intent
        within_s = self._within_s(intent)
        try:
            data = await self._await_answer(running, within_s)
        except NoResponders:
            return AttemptUndelivered("the node does not answer on the message bus", AWAY_AGAIN_S, True)
        except TimedOut:
            return AttemptUnconfirmed(
                f"the worker has not answered within {within_s:g} s; it may still be working", within_s
            )
        if data is None and running.shown_done is None:
            return AttemptUndelivered("the worker was restarted before it answered", STARTED_AGAIN_S)
        running.answered = True
        on_answer()
        await self._pace.turn()
        if data is None:
            return await self._confirm(running, running.shown_done)
        answer = read_answer(intent, data)
        if answer.success:
            return await self._confirm(running)
        if running.called_off:
            return AttemptCancelled(answer.error or "cancelled")
        if answer.code == "cancelled":
            return AttemptRejected(f"the worker stopped it, though nobody has cancelled it here ({answer.error})")
        return AttemptRejected(answer.error or "the worker gave no reason", outdated=answer.code == "outdated_command")

    async def _await_answer(self, running: RunningAttempt, within_s: float) -> bytes | None:
        """None where it is lost: a report shows the order done, or that the worker was started again."""
        try:
            async with asyncio.timeout(None) as running.patience:
                return await self._send(running.claim.intent, within_s=within_s)
        except TimeoutError:
            return None
        finally:
            running.patience = None

    async def _send(self, intent: Intent, *, within_s: float) -> bytes:
        gets = intent.verb in (Verb.INSTALL, Verb.UPGRADE)
        peers = await self._peers.find(intent.spec.digest, besides=intent.node_id) if gets else []
        verb, body = build_command(intent, peers)
        try:
            return await self._bus.request(node_subject(intent.node_id, verb), body, within_s=within_s)
        except NoResponders:
            fallback = build_fallback(intent)
            if fallback is None:
                raise
            verb, body = fallback
            return await self._bus.request(node_subject(intent.node_id, verb), body, within_s=within_s)

    async def _confirm(
        self, running: RunningAttempt, report: NodeReport | None = None, *, answered: bool = True
    ) -> AttemptOutcome:
        """The worker's word is not enough: its table must show it."""
        intent = running.claim.intent
        try:
            report = report or await self._reports.ask(intent.node_id)
        except CorralError as error:
            if not error.retryable:
                raise
            return AttemptUnconfirmed(f"done by the worker's word, but its report is missing: {error}", UNKNOWN_AGAIN_S)
        await self._pace.turn()
        seen = observation_of(report)
        missing = find_missing(intent, seen.backends, answered=answered)
        if missing is not None and not answered:
            return AttemptUnconfirmed(missing, UNKNOWN_AGAIN_S)
        if missing is not None:
            return AttemptRejected(f"the worker says it is done, but {missing}")
        if intent.verb.changes_version:
            failure = await self._switch(running, seen.backends, seen.processes)
            if failure is not None:
                return failure
        return AttemptConfirmed(digest_of(intent, seen.backends))

    async def _switch(
        self, running: RunningAttempt, backends: Sequence[ObservedBackend], processes: Sequence[ObservedProcess]
    ) -> AttemptOutcome | None:
        intent = running.claim.intent
        found = find_backend(backends, intent.spec.name, intent.backend)
        if found is None or not found.digest:
            return None
        changes = plan_replicas(processes, backend=found.name, digest=found.digest)
        switching = self._replicas.switch(
            intent.node_id, changes, backend=found.name, digest=found.digest, operation_id=intent.operation_id
        )
        try:
            if not await _unless_set(running.cancelled, switching):
                return AttemptUnconfirmed("cancelled while replicas went over to the new version", CANCEL_AGAIN_S)
        except VersionFailed as error:
            return await self._refuse_version(running, found.name, changes, error)
        except RolloutStalled as error:
            # Nothing is rolled back: of the version itself nothing is known.
            return AttemptRejected(f"the new version is installed, but does not serve: {error}")
        except CorralError as error:
            if not error.retryable:
                raise
            # Nobody can say whether the new version starts: nothing is rolled back, and the switch is taken up again.
            return AttemptUnconfirmed(f"the switch to the new version is not finished: {error}", self._within_s(intent))
        return None

    async def _refuse_version(
        self, running: RunningAttempt, build: str, changes: Sequence[ReplicaChange], error: VersionFailed
    ) -> AttemptOutcome:
        intent = running.claim.intent
        try:
            before = changes[0].process.digest if changes else await self._replicas.find_stopped(intent.node_id, build)
            back = await self._go_back(intent, build, before)
            restoring = self._replicas.restore(intent.node_id, backend=build, digest=back.digest)
            restored = await _unless_set(running.cancelled, restoring)
        except CorralError as problem:
            if not problem.retryable:
                raise
            return AttemptUnconfirmed(
                f"the new version does not start ({error}), and the worker could not be told to go back: {problem}",
                UNKNOWN_AGAIN_S,
            )
        if restored is None:
            return AttemptRejected(f"the new version does not start: {error}")
        words = f"{restored[0].words}, but {back.refusal}" if back.refusal else restored[0].words
        return AttemptRejected(f"the new version does not start, {words}: {error}", final=restored[0].was_stopped)

    async def _go_back(self, intent: Intent, build: str, digest: str | None) -> "_WentBack":
        """So that whatever starts next starts from the version that serves."""
        request = RollbackRequest(
            backend=intent.backend,
            to=digest or None,
            generation=intent.generation,
            build=intent.spec.name or None,
            undo=True,
        )
        subject = node_subject(intent.node_id, BACKEND_ROLLBACK)
        answer = decode(await self._bus.request(subject, encode(request), within_s=ROLLBACK_WITHIN_S), ChangeReply)
        current = answer.corral.digest if answer.corral is not None else ""
        try:
            report = await self._reports.ask(intent.node_id)
            found = find_backend(observation_of(report).backends, build)
            current = found.digest if found is not None and found.digest else current
        except CorralError as error:  # the worker has answered; its next report tells the rest
            log.info("intent.not_reported", node=intent.node_id, operation=intent.operation_id, error=str(error))
        return _WentBack(current or digest or "", "" if answer.success else answer.error or "it gave no reason")

    # Cancelling

    async def _cancel(self, claim: IntentClaim) -> AttemptOutcome:
        """Of an order that a person has cancelled: until the worker says that it has nothing of it running. What it had
        finished before it heard is done."""
        intent = claim.intent
        if claim.is_localai:
            return AttemptCancelled(
                "cancelled; a LocalAI worker cannot be told to stop or to go back, and may still finish it"
            )
        try:
            if not await self._stop_on_worker(intent):
                return AttemptUnconfirmed("cancelled; the worker has not ended it yet", CANCEL_AGAIN_S)
            report = await self._reports.ask(intent.node_id)
            return await self._judge_cancelled(intent, report)
        except NoResponders:
            if claim.presence is Presence.LIVE:  # as far as was known; it is looked at anew
                return AttemptUnconfirmed("cancelled; the worker does not answer and is told again", CANCEL_AGAIN_S)
            return AttemptCancelled(
                "cancelled while the node was away; its worker is told when it is back", untold=True
            )
        except CorralError as error:
            if not error.retryable:
                return AttemptRejected(f"the worker could not be told to cancel: {error}")
            return AttemptUnconfirmed(
                f"cancelled; the worker is told again, as it could not be reached: {error}", AWAY_AGAIN_S
            )

    async def _judge_cancelled(self, intent: Intent, report: NodeReport) -> AttemptOutcome:
        """With nothing of it running on the worker any more. A version to which not all have gone over is taken back:
        nobody would see whether it starts."""
        seen = observation_of(report)
        applied = report.applied.get(intent.backend) == intent.generation
        found = find_backend(seen.backends, intent.spec.name, intent.backend)
        if find_missing(intent, seen.backends, answered=intent.verb is Verb.DELETE and applied) is not None:
            return await self._restore_stopped(intent, found)
        if found is None or not found.digest or not intent.verb.changes_version:
            return AttemptConfirmed(digest_of(intent, seen.backends))
        left = plan_replicas(seen.processes, backend=found.name, digest=found.digest)
        before = left[0].process.digest if left else await self._replicas.find_stopped(intent.node_id, found.name)
        if before is None:
            return AttemptConfirmed(found.digest)
        return await self._take_back(intent, found, before)

    async def _restore_stopped(self, intent: Intent, found: ObservedBackend | None) -> AttemptOutcome:
        """Its version is not current, or not any more; something may still be stopped for it."""
        if found is None or not intent.verb.changes_version:
            return AttemptCancelled("cancelled")
        if await self._replicas.find_stopped(intent.node_id, found.name) is None:
            return AttemptCancelled("cancelled")
        restored = await self._replicas.restore(intent.node_id, backend=found.name, digest=found.digest, wait=False)
        return AttemptCancelled(f"cancelled: {restored.words}" if restored.was_stopped else "cancelled")

    async def _take_back(self, intent: Intent, found: ObservedBackend, before: str) -> AttemptOutcome:
        back = await self._go_back(intent, found.name, before)
        if back.refusal:
            return AttemptCancelled(
                f"cancelled; {short_digest(found.digest)} is installed and replicas go over to it, as the worker could"
                f" not go back to {short_digest(before) or 'the version before'}: {back.refusal}"
            )
        restored = await self._replicas.restore(intent.node_id, backend=found.name, digest=back.digest, wait=False)
        words = f"cancelled; the node is back on {short_digest(back.digest)}"
        return AttemptCancelled(f"{words}: {restored.words}" if restored.was_stopped else f"{words}, which serves on")

    async def _stop_on_worker(self, intent: Intent) -> bool:
        for _ in range(CANCEL_LOOKS):
            if not await self.tell_cancel(intent.node_id, intent.operation_id):
                return True
            await asyncio.sleep(CANCEL_AGAIN_S)
        return False

    async def call_off(self, running: RunningAttempt) -> None:
        """While its answer is waited for. A cancel may overtake its order, or get lost: it is told until the order has
        ended."""
        intent, heard = running.claim.intent, False
        while not running.answered and not running.over and not running.claim.is_localai:
            try:
                stopping = await self.tell_cancel(intent.node_id, intent.operation_id)
                if heard and not stopping:
                    running.give_up(after_s=ANSWER_FOLLOWS_WITHIN_S)
                heard = heard or stopping
            except NoResponders:
                running.give_up()
            except CorralError as error:
                log.info(
                    "intent.cancel_not_heard", node=intent.node_id, operation=intent.operation_id, error=str(error)
                )
            await asyncio.sleep(CANCEL_AGAIN_S)

    async def tell_cancel(self, node_id: NodeId, operation_id: str) -> bool:
        """False where the worker has nothing of it running, yet or any more. What was fetched is kept for a retry, or
        for whatever replaces the order."""
        subject, data = node_subject(node_id, CANCEL), encode(CancelRequest(op_id=operation_id, keep=True))
        reply = decode(await self._bus.request(subject, data, within_s=CANCEL_WITHIN_S), CancelReply)
        if reply.error:
            raise Unavailable(f"the worker could not carry out the cancel: {reply.error}")
        return reply.cancelled > 0 or reply.going_on > 0

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


@dataclass(frozen=True, slots=True)
class _WentBack:
    digest: str
    """Of the version that is current."""
    refusal: str = ""
    """Why it is not the one before."""


async def _unless_set(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> tuple[T] | None:
    """What the work came to; None where the event was first, and then nothing of the work is left running."""
    task, called = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, called}, return_when=asyncio.FIRST_COMPLETED)
        return (task.result(),) if task.done() else None
    finally:
        task.cancel()
        called.cancel()
        await asyncio.gather(task, called, return_exceptions=True)


def outcome_of(error: CorralError) -> AttemptOutcome:
    """Of an attempt that ended with it: only what passes by itself is no failure."""
    if isinstance(error, OutcomeUnknown):
        return AttemptUnconfirmed(f"{error}; asked again soon", UNKNOWN_AGAIN_S)
    if error.retryable:
        return AttemptUndelivered(str(error), AWAY_AGAIN_S)
    return AttemptRejected(str(error))


def digest_of(intent: Intent, backends: Iterable[ObservedBackend]) -> str:
    found = find_backend(backends, intent.spec.name, intent.backend)
    return found.digest if found is not None else ""
