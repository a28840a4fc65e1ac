"""One attempt at one order: sent, answered, and seen to be so."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from corral.bus.messages import CancelReply, CancelRequest, ChangeReply, NodeReport, RollbackRequest, decode, encode
from corral.bus.subjects import BACKEND_ROLLBACK, CANCEL, node_subject
from corral.controller.commands import build_command, build_fallback, read_answer
from corral.controller.load_ports import PeerBook
from corral.controller.reports import observation_of
from corral.controller.switch import ReplicaSwitch
from corral.core.errors import CorralError, NoResponders, OutcomeUnknown, TimedOut, Unavailable
from corral.core.intents import (
    CalledOff,
    Intent,
    Observed,
    Outcome,
    Refused,
    RetryLimits,
    StillRunning,
    Unreached,
    Verb,
    missing_of,
)
from corral.core.nodes import NodeId
from corral.core.observed import ObservedBackend, ObservedProcess, find_backend
from corral.core.rollout import plan_replicas
from corral.store.intents import Claim
from corral.system.pace import Pace

log = structlog.get_logger()

AT_ONCE_ON_THE_LOOP = 16
"""Orders that go on in one turn of the event loop: a thousand workers that answer together hold up no request."""
DELETE_WITHIN_S = 120.0
ROLLBACK_WITHIN_S = 60.0
CANCEL_WITHIN_S = 4.0
CANCEL_AGAIN_S = 0.5
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
class OrderLimits:
    install_s: float = 900.0
    upgrade_s: float = 900.0
    at_once: int = 256
    retry: RetryLimits = field(default_factory=RetryLimits)


@dataclass(eq=False, slots=True)
class Running:
    claim: Claim
    task: "asyncio.Task[None] | None" = None
    called_off: bool = False
    answered: bool = False
    """The worker has; what is left is ours to do, and keeps nobody else from being asked."""
    over: bool = False
    """There is an outcome; it only has to be written down."""
    shown_done: NodeReport | None = None
    patience: asyncio.Timeout | None = None
    """With the answer, while it is waited for."""

    def hear(self, report: NodeReport) -> None:
        """The worker's report shows that it has carried this very order out."""
        if self.patience is not None and self.shown_done is None:
            self.shown_done = report
            self.patience.reschedule(asyncio.get_running_loop().time() + ANSWER_FOLLOWS_WITHIN_S)

    def give_up(self) -> None:
        """The worker was started anew: nobody is left who would answer."""
        if self.patience is not None and self.shown_done is None:
            self.patience.reschedule(asyncio.get_running_loop().time())


class Attempts:
    def __init__(
        self, *, bus: Requests, reports: Reporting, replicas: ReplicaSwitch, peers: PeerBook, limits: OrderLimits
    ) -> None:
        self._bus, self._reports, self._replicas, self._peers, self._limits = bus, reports, replicas, peers, limits
        self._pace = Pace(AT_ONCE_ON_THE_LOOP)

    async def make(self, running: Running, on_answer: Callable[[], None]) -> Outcome:
        await self._pace.turn()
        intent = running.claim.intent
        if intent.cancel_wanted:
            await self.tell_cancel(intent)
            return CalledOff("cancelled")
        within_s = self._within_s(intent)
        try:
            data = await self._await_answer(running, within_s)
            if data is None and running.shown_done is None:
                if running.called_off:
                    return CalledOff("cancelled; the worker was started again meanwhile")
                return Unreached("the worker was started again while it was at it", STARTED_AGAIN_S)
            running.answered = True
            on_answer()
            await self._pace.turn()
            if data is None:
                return await self._confirm(intent, running.shown_done)
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

    async def _await_answer(self, running: Running, within_s: float) -> bytes | None:
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

    async def _confirm(self, intent: Intent, report: NodeReport | None = None) -> Outcome:
        """The worker's word is not enough: its table must show it."""
        try:
            report = report or await self._reports.ask(intent.node_id)
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
        return Observed(digest_of(intent, seen.backends))

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
        build = intent.wish.name or None
        request = RollbackRequest(backend=intent.backend, to=digest, generation=intent.generation, build=build)
        subject = node_subject(intent.node_id, BACKEND_ROLLBACK)
        try:
            answer = decode(await self._bus.request(subject, encode(request), within_s=ROLLBACK_WITHIN_S), ChangeReply)
            await self._reports.ask(intent.node_id)
        except CorralError as error:
            return f"the old one serves on, but could not be made current again ({error})"
        return "the old one serves on" if answer.success else f"the old one serves on, but {answer.error}"

    async def call_off(self, running: Running) -> None:
        """Until the worker has stopped something or answered: a cancel may overtake its order."""
        while not running.answered and not running.over:
            if await self.tell_cancel(running.claim.intent):
                return
            await asyncio.sleep(CANCEL_AGAIN_S)

    async def tell_cancel(self, intent: Intent) -> bool:
        """False where the worker has nothing to cancel, yet or any more."""
        subject, data = node_subject(intent.node_id, CANCEL), encode(CancelRequest(op_id=intent.operation_id))
        try:
            reply = decode(await self._bus.request(subject, data, within_s=CANCEL_WITHIN_S), CancelReply)
        except CorralError as error:  # a worker that is not there does nothing; an old one goes on to its end
            log.info("intent.cancel_not_heard", node=intent.node_id, operation=intent.operation_id, error=str(error))
            return True
        return reply.cancelled > 0

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


def digest_of(intent: Intent, backends: Iterable[ObservedBackend]) -> str:
    found = find_backend(backends, intent.wish.name, intent.backend)
    return found.digest if found is not None else ""
