"""One attempt at one intent: send the command, wait for the reply, and confirm it by the node's report."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import structlog

from corral.bus.client import Bus
from corral.bus.messages import CancelReply, CancelRequest, ChangeReply, NodeReport, RollbackRequest, decode, encode
from corral.bus.subjects import BACKEND_ROLLBACK, CANCEL, node_subject
from corral.controller.backends.commands import WorkerAnswer, build_command, build_fallback, read_answer
from corral.controller.loads.ports import PeerFinder
from corral.controller.nodes.reports import Reports, observation_of
from corral.controller.replicas.smoke_test import (
    RolloutStalled,
    VersionFailed,
    VersionRollout,
    try_unused_version,
)
from corral.core.backends.build import short_digest
from corral.core.backends.intents import (
    AttemptCancelled,
    AttemptConfirmed,
    AttemptOutcome,
    AttemptRejected,
    AttemptUnconfirmed,
    AttemptUndelivered,
    Intent,
    RetryLimits,
    Verb,
    find_missing,
)
from corral.core.backends.rollout import ReplicaChange, plan_replicas
from corral.core.backends.starts import StartEvidence, StartProof
from corral.core.errors import CorralError, NoResponders, OutcomeUnknown, TimedOut, Unavailable
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import (
    ObservedBackend,
    ObservedProcess,
    ProcessStatus,
    families_of,
    find_backend,
    find_moved,
)
from corral.core.nodes.presence import Presence
from corral.store.backends.intents import IntentClaim
from corral.system.yielding import Pace

log = structlog.get_logger()
T = TypeVar("T")

ATTEMPTS_PER_TURN = 16
"""Attempts that continue in one turn of the event loop, so that a thousand simultaneous replies delay no request."""
CANCEL_RETRY_S = 0.5
CANCEL_CHECKS = 60
UNREACHABLE_RETRY_S = 2.0
RESTARTED_RETRY_S = 0.5
UNKNOWN_RETRY_S = 5.0
REPLY_AFTER_REPORT_S = 1.0
"""A worker publishes its report and replies. A reply that is missing so long after the report is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    install_s: float = 900.0
    upgrade_s: float = 900.0
    delete_s: float = 120.0
    rollback_s: float = 60.0
    cancel_s: float = 4.0
    at_once: int = 256
    retry: RetryLimits = field(default_factory=RetryLimits)


@dataclass(eq=False, slots=True)
class RunningAttempt:
    claim: IntentClaim
    applied_before: bool
    """Whether an earlier attempt may have applied this intent: then a report of its generation proves nothing."""
    task: "asyncio.Task[None] | None" = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a person has cancelled it."""
    restarted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a newer process of its worker has reported: what was requested of the older one gets no reply."""
    epoch: int = 0
    """Of the worker process that reported the desired state; 0 before."""
    answered: bool = False
    """Whether the worker has replied. The rest is the frontend's own work and does not count against the limit."""
    over: bool = False
    """Whether there is an outcome, which has yet to be written."""
    digest_before: str = ""
    """What a LocalAI worker had before an upgrade. It confirms one that changed nothing, too."""
    confirming_report: NodeReport | None = None
    reply_timeout: asyncio.Timeout | None = None
    """The time limit of the reply, while it is awaited."""

    def on_report(self, report: NodeReport) -> None:
        """Takes a report that shows this very intent as applied."""
        if self.reply_timeout is not None and self.confirming_report is None and not self.applied_before:
            self.confirming_report = report
            self.reply_timeout.reschedule(asyncio.get_running_loop().time() + REPLY_AFTER_REPORT_S)

    def expire(self, *, after_s: float = 0.0) -> None:
        """Ends the wait for a reply: the worker was restarted, or reports that it is not working on this."""
        if self.reply_timeout is not None and self.confirming_report is None:
            self.reply_timeout.reschedule(asyncio.get_running_loop().time() + after_s)


class Attempts:
    def __init__(
        self, *, bus: Bus, reports: Reports, replicas: VersionRollout, peers: PeerFinder, limits: AttemptLimits
    ) -> None:
        self._bus, self._reports, self._replicas, self._peers, self._limits = bus, reports, replicas, peers, limits
        self._pace = Pace(ATTEMPTS_PER_TURN)

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
        """Completes an attempt whose reply was lost, after a report has shown the intent as applied."""
        running.answered = True
        on_answer()
        await self._pace.turn()
        try:
            outcome = await self._confirm(running, answered=False)
        except CorralError as error:
            outcome = outcome_of(error)
        return await self._unless_cancelled(running, outcome)

    async def _unless_cancelled(self, running: RunningAttempt, outcome: AttemptOutcome) -> AttemptOutcome:
        if not running.cancelled.is_set() or isinstance(outcome, AttemptConfirmed | AttemptCancelled):
            return outcome
        ended = await self._cancel(running.claim)
        if isinstance(ended, AttemptCancelled) and isinstance(outcome, AttemptRejected):
            return replace(ended, reason=f"{ended.reason}; it had failed: {outcome.reason}")
        return ended

    async def _ask(self, running: RunningAttempt, on_answer: Callable[[], None]) -> AttemptOutcome:
        intent = running.claim.intent
        within_s = self._within_s(intent)
        if running.claim.is_localai and intent.verb.changes_version:
            running.digest_before = await self._read_digest(intent)
        try:
            data = await self._await_answer(running, within_s)
        except NoResponders:
            return AttemptUndelivered("the node is not connected to the message bus", UNREACHABLE_RETRY_S, True)
        except TimedOut:
            return AttemptUnconfirmed(
                f"the worker has not replied within {within_s:g} s; it may still be working", within_s
            )
        if data is None and running.confirming_report is None:
            return AttemptUndelivered("the worker was restarted before it replied", RESTARTED_RETRY_S)
        running.answered = True
        on_answer()
        await self._pace.turn()
        if data is None:
            return await self._confirm(running, running.confirming_report)
        answer = read_answer(intent, data)
        if running.claim.is_localai:
            await self._note_stopped(intent, answer)
        if answer.success:
            return await self._confirm(running)
        if running.cancelled.is_set():
            return AttemptCancelled(answer.error or "cancelled")
        if answer.code == "cancelled":
            return AttemptRejected(f"the worker cancelled it without a request ({answer.error})")
        return AttemptRejected(answer.error or "the worker gave no reason", outdated=answer.code == "outdated_command")

    async def _read_digest(self, intent: Intent) -> str:
        """What the node has now; empty if it does not tell."""
        try:
            seen = observation_of(await self._reports.request_report(intent.node_id))
        except CorralError as error:
            log.info("intent.not_reported", node=intent.node_id, operation=intent.operation_id, error=str(error))
            return ""
        return digest_of(intent, seen.backends)

    async def _note_stopped(self, intent: Intent, answer: WorkerAnswer) -> None:
        """A LocalAI worker ends the processes of a backend before it changes it, also if the change fails then. Since
        2026-07-20 it names them; otherwise its report shows it."""
        if answer.stopped:
            await self._replicas.note_stopped(intent.node_id, answer.stopped)
        if answer.success:
            return  # its report is requested next
        try:
            await self._reports.request_report(intent.node_id)
        except CorralError as error:  # it is asked again, as every LocalAI node is
            log.info("intent.not_reported", node=intent.node_id, operation=intent.operation_id, error=str(error))

    async def _await_answer(self, running: RunningAttempt, within_s: float) -> bytes | None:
        """None if the reply is lost: a report shows the intent as applied, or the worker was restarted."""
        try:
            async with asyncio.timeout(None) as running.reply_timeout:
                return await self._send(running.claim, within_s=within_s)
        except TimeoutError:
            return None
        finally:
            running.reply_timeout = None

    async def _send(self, claim: IntentClaim, *, within_s: float) -> bytes:
        intent = claim.intent
        downloads = intent.verb in (Verb.INSTALL, Verb.UPGRADE) and not claim.is_localai
        peers = await self._peers.find(intent.spec.build.digest, besides=intent.node_id) if downloads else []
        verb, body = build_command(intent, peers, localai=claim.is_localai)
        try:
            return await self._bus.request(node_subject(intent.node_id, verb), body, within_s=within_s)
        except NoResponders:
            fallback = build_fallback(intent) if claim.is_localai else None
            if fallback is None:
                raise
            verb, body = fallback
            return await self._bus.request(node_subject(intent.node_id, verb), body, within_s=within_s)

    async def _confirm(
        self, running: RunningAttempt, report: NodeReport | None = None, *, answered: bool = True
    ) -> AttemptOutcome:
        """The worker's reply is not enough: its report must show the desired state."""
        intent = running.claim.intent
        try:
            report = report or await self._reports.request_report(intent.node_id)
        except CorralError as error:
            if not error.retryable:
                raise
            return AttemptUnconfirmed(f"the worker is done, but its report is missing: {error}", UNKNOWN_RETRY_S)
        running.epoch = report.epoch
        running.restarted.clear()
        await self._pace.turn()
        seen = observation_of(report)
        missing = find_missing(
            intent,
            seen.backends,
            answered=answered,
            looks_up_itself=running.claim.is_localai,
            digest_before=running.digest_before,
        )
        if missing is not None and not answered:
            return AttemptUnconfirmed(missing, UNKNOWN_RETRY_S)
        if missing is not None:
            return AttemptRejected(f"the worker replied that it is done, but {missing}")
        if not intent.verb.changes_version:
            return AttemptConfirmed(digest_of(intent, seen.backends))
        result = await self._roll_out(running, seen.backends, seen.processes)
        if isinstance(result, StartProof):
            return AttemptConfirmed(digest_of(intent, seen.backends), result)
        return result

    async def _roll_out(
        self, running: RunningAttempt, backends: Sequence[ObservedBackend], processes: Sequence[ObservedProcess]
    ) -> AttemptOutcome | StartProof:
        """Replaces what runs, or starts the version once if nothing does: no version is accepted untried."""
        intent = running.claim.intent
        found = find_backend(backends, intent.spec.build.name, intent.backend)
        if found is None or not found.digest:
            return StartProof(evidence=StartEvidence.NONE, detail="its worker reports no version")
        models = await self._replicas.find_models(families_of(backends, found.name))
        changes = plan_replicas(processes, backend=found.name, digest=found.digest, models=models)
        proving = self._prove(running, found, changes, models, is_running=_is_running(processes, found))
        try:
            proof = await _unless_set(running.cancelled, proving)
            if proof is None:
                return AttemptUnconfirmed("cancelled during the rollout of the new version", CANCEL_RETRY_S)
            return proof[0]
        except VersionFailed as error:
            outcome = await self._reject_version(running, found, changes, models, error)
            return replace(outcome, digest=found.digest) if isinstance(outcome, AttemptRejected) else outcome
        except RolloutStalled as error:
            # Not rolled back: nothing is known about the version itself.
            return AttemptRejected(f"the new version is installed but does not serve: {error}")
        except CorralError as error:
            if not error.retryable:
                raise
            # It is unknown whether the new version starts: nothing is rolled back, and the rollout is resumed.
            return AttemptUnconfirmed(f"the rollout of the new version is unfinished: {error}", self._within_s(intent))

    async def _prove(
        self,
        running: RunningAttempt,
        found: ObservedBackend,
        changes: Sequence[ReplicaChange],
        models: frozenset[str],
        *,
        is_running: bool,
    ) -> StartProof:
        intent = running.claim.intent
        await self._replicas.roll_out(
            intent.node_id,
            changes,
            backend=found.name,
            digest=found.digest,
            operation_id=intent.operation_id,
            models=models,
        )
        if changes:
            # A successor may have been placed on another node, or its model may have ended meanwhile.
            seen = observation_of(await self._reports.request_report(intent.node_id))
            is_running = _is_running(seen.processes, found)
        if is_running:
            return StartProof(evidence=StartEvidence.REPLICAS)
        if intent.verb is Verb.ROLLBACK:
            return StartProof(evidence=StartEvidence.BEFORE)
        if running.claim.is_localai:
            return StartProof(evidence=StartEvidence.NONE, detail="a LocalAI worker starts no version without a model")
        testing = try_unused_version(
            self._bus, intent.node_id, backend=found.name, digest=found.digest, operation_id=intent.operation_id
        )
        proof = await _unless_set(running.restarted, testing)
        if proof is None:
            raise Unavailable("the worker was restarted during the smoke test")
        return proof[0]

    async def _reject_version(
        self,
        running: RunningAttempt,
        found: ObservedBackend,
        changes: Sequence[ReplicaChange],
        models: frozenset[str],
        error: VersionFailed,
    ) -> AttemptOutcome:
        intent, build = running.claim.intent, found.name
        try:
            stopped = None if changes else await self._replicas.find_stopped(intent.node_id, build, models)
            before = changes[0].process.digest if changes else stopped
            back = await self._roll_back(intent, build, before)
            restoring = self._replicas.restore(intent.node_id, backend=back.build, digest=back.digest)
            restored = await _unless_set(running.cancelled, restoring)
        except CorralError as problem:
            if not problem.retryable:
                raise
            return AttemptUnconfirmed(
                f"the new version does not start ({error}), and the rollback could not be sent to the worker:"
                f" {problem}",
                UNKNOWN_RETRY_S,
            )
        if restored is None:
            return AttemptRejected(f"the new version does not start: {error}", version_failed=True)
        if changes or restored[0].was_stopped:
            words = restored[0].words
        elif back.digest == found.digest and not back.rejection:
            words = "which is the version that the node had before"
        else:
            words = "the old version is current again"
        summary = f"{words}, but {back.rejection}" if back.rejection else words
        return AttemptRejected(
            f"the new version does not start, {summary}: {error}",
            final=restored[0].was_stopped,
            version_failed=True,
        )

    async def _roll_back(self, intent: Intent, build: str, digest: str | None) -> "_RolledBack":
        """Makes the serving version the current one again, so that whatever starts next starts from it.
        Without a digest its worker returns to the version that was current before the intent."""
        request = RollbackRequest(
            backend=intent.backend,
            to=digest or None,
            generation=intent.generation,
            build=intent.spec.build.name or None,
            undo=True,
        )
        subject = node_subject(intent.node_id, BACKEND_ROLLBACK)
        answer = decode(
            await self._bus.request(subject, encode(request), within_s=self._limits.rollback_s), ChangeReply
        )
        current, name = answer.corral.digest if answer.corral is not None else "", build
        try:
            report = await self._reports.request_report(intent.node_id)
            backends = observation_of(report).backends
            name = find_moved(backends, intent.backend, build) or build
            found = find_backend(backends, name)
            current = found.digest if found is not None and found.digest else current
        except CorralError as error:  # the worker has replied; its next report has the rest
            log.info("intent.not_reported", node=intent.node_id, operation=intent.operation_id, error=str(error))
        rejection = "" if answer.success else answer.error or "the worker gave no reason"
        return _RolledBack(name, current or digest or "", rejection)

    # Cancellation

    async def _cancel(self, claim: IntentClaim) -> AttemptOutcome:
        """Tells the worker to stop until nothing of the intent is running. What had finished before counts as done."""
        intent = claim.intent
        if claim.is_localai:
            return AttemptCancelled(
                "cancelled; a LocalAI worker cannot stop or roll back a change, and may still finish it"
            )
        try:
            if not await self._stop_on_worker(intent):
                return AttemptUnconfirmed("cancelled; the worker has not stopped yet", CANCEL_RETRY_S)
            report = await self._reports.request_report(intent.node_id)
            return await self._judge_cancelled(intent, report)
        except NoResponders:
            if claim.presence is Presence.LIVE:  # as last known; its presence is checked again
                return AttemptUnconfirmed(
                    "cancelled; the worker is offline, so the cancel will be sent again", CANCEL_RETRY_S
                )
            return AttemptCancelled(
                "cancelled while the node was offline; the cancel is sent to its worker when the node is back online",
                worker_unreached=True,
            )
        except CorralError as error:
            if not error.retryable:
                return AttemptRejected(f"the cancel could not be sent to the worker: {error}")
            return AttemptUnconfirmed(
                f"cancelled; the worker could not be reached, so the cancel will be sent again: {error}",
                UNREACHABLE_RETRY_S,
            )

    async def _judge_cancelled(self, intent: Intent, report: NodeReport) -> AttemptOutcome:
        """The outcome once the worker no longer runs any of it. A version that only some replicas have is reverted,
        because nobody would see whether it starts."""
        seen = observation_of(report)
        applied = report.applied.get(intent.backend) == intent.generation
        found = find_backend(seen.backends, intent.spec.build.name, intent.backend)
        if find_missing(intent, seen.backends, answered=intent.verb is Verb.DELETE and applied) is not None:
            return await self._restore_stopped(intent, found)
        if found is None or not found.digest or not intent.verb.changes_version:
            return AttemptConfirmed(digest_of(intent, seen.backends))
        models = await self._replicas.find_models(families_of(seen.backends, found.name))
        left = plan_replicas(seen.processes, backend=found.name, digest=found.digest, models=models)
        stopped = None if left else await self._replicas.find_stopped(intent.node_id, found.name, models)
        before = left[0].process.digest if left else stopped
        if before is None:
            return AttemptConfirmed(found.digest)
        return await self._revert(intent, found, before)

    async def _restore_stopped(self, intent: Intent, found: ObservedBackend | None) -> AttemptOutcome:
        """The intent's version is not current; replicas may still be stopped because of it."""
        if found is None or not intent.verb.changes_version:
            return AttemptCancelled("cancelled")
        if await self._replicas.find_stopped(intent.node_id, found.name) is None:
            return AttemptCancelled("cancelled")
        restored = await self._replicas.restore(intent.node_id, backend=found.name, digest=found.digest, wait=False)
        return AttemptCancelled(f"cancelled: {restored.words}" if restored.was_stopped else "cancelled")

    async def _revert(self, intent: Intent, found: ObservedBackend, before: str) -> AttemptOutcome:
        back = await self._roll_back(intent, found.name, before)
        if back.rejection:
            return AttemptCancelled(
                f"cancelled; {short_digest(found.digest)} is installed and rolled out, because the worker could"
                f" not roll back to {short_digest(before) or 'the previous version'}: {back.rejection}"
            )
        restored = await self._replicas.restore(intent.node_id, backend=back.build, digest=back.digest, wait=False)
        summary = f"cancelled; the node was rolled back to {short_digest(back.digest)}"
        rest = f": {restored.words}" if restored.was_stopped else ", which keeps serving"
        return AttemptCancelled(f"{summary}{rest}")

    async def _stop_on_worker(self, intent: Intent) -> bool:
        for _ in range(CANCEL_CHECKS):
            if not await self.send_cancel(intent.node_id, intent.operation_id):
                return True
            await asyncio.sleep(CANCEL_RETRY_S)
        return False

    async def cancel_while_running(self, running: RunningAttempt) -> None:
        """Sends the cancel until the attempt has ended: it may overtake its command, or get lost."""
        intent, acknowledged = running.claim.intent, False
        while not running.answered and not running.over and not running.claim.is_localai:
            try:
                stopping = await self.send_cancel(intent.node_id, intent.operation_id)
                if acknowledged and not stopping:
                    running.expire(after_s=REPLY_AFTER_REPORT_S)
                acknowledged = acknowledged or stopping
            except NoResponders:
                running.expire()
            except CorralError as error:
                log.info(
                    "intent.cancel_not_heard", node=intent.node_id, operation=intent.operation_id, error=str(error)
                )
            await asyncio.sleep(CANCEL_RETRY_S)

    async def send_cancel(self, node_id: NodeId, operation_id: str) -> bool:
        """False if the worker runs nothing of the operation. Downloads are kept for a retry or a newer intent."""
        subject, data = node_subject(node_id, CANCEL), encode(CancelRequest(op_id=operation_id, keep=True))
        reply = decode(await self._bus.request(subject, data, within_s=self._limits.cancel_s), CancelReply)
        if reply.error:
            raise Unavailable(f"the worker could not cancel it: {reply.error}")
        return reply.cancelled > 0 or reply.in_progress > 0

    def _within_s(self, intent: Intent) -> float:
        match intent.verb:
            case Verb.INSTALL:
                return self._limits.install_s
            case Verb.UPGRADE | Verb.PIN | Verb.FOLLOW:
                return self._limits.upgrade_s
            case Verb.DELETE:
                return self._limits.delete_s
            case Verb.ROLLBACK:
                return self._limits.rollback_s


@dataclass(frozen=True, slots=True)
class _RolledBack:
    build: str
    """Which is current again: another one if the intent had changed the build of a family."""
    digest: str
    """Of the current version."""
    rejection: str = ""
    """Why it is not the previous one."""


def _is_running(processes: Iterable[ObservedProcess], found: ObservedBackend) -> bool:
    """Whether a process of the node's current version is ready there."""
    return any(
        one.backend == found.name and one.digest == found.digest and one.state is ProcessStatus.READY
        for one in processes
    )


async def _unless_set(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> tuple[T] | None:
    """The result of the work; None if the event came first, in which case the work has been cancelled."""
    task, called = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, called}, return_when=asyncio.FIRST_COMPLETED)
        return (task.result(),) if task.done() else None
    finally:
        task.cancel()
        called.cancel()
        await asyncio.gather(task, called, return_exceptions=True)


def outcome_of(error: CorralError) -> AttemptOutcome:
    """The outcome of an attempt that ended with this error: a retryable one is no failure."""
    if isinstance(error, OutcomeUnknown):
        return AttemptUnconfirmed(f"{error}; it will be retried soon", UNKNOWN_RETRY_S)
    if error.retryable:
        return AttemptUndelivered(str(error), UNREACHABLE_RETRY_S)
    return AttemptRejected(str(error))


def digest_of(intent: Intent, backends: Iterable[ObservedBackend]) -> str:
    found = find_backend(backends, intent.spec.build.name, intent.backend)
    return found.digest if found is not None else ""
