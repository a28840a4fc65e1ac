"""Receives the reports of nodes, records them in the store and passes them to everybody who acts on them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import ListedBackend, NodeReport, ReportedProcess, decode
from corral.bus.subjects import EVERY_REPORT, REPORT, REPORT_NOW, node_subject, sender_of
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.core.errors import CorralError, InvalidInput, NoResponders, Unavailable
from corral.core.nodes.node import Node, NodeId, NodeStatus, NodeType
from corral.core.nodes.observed import Observation, ObservedBackend, ObservedProcess
from corral.store.backends.observed import ObservedStore
from corral.store.nodes.nodes import NodeStore
from corral.system import Clock

log = structlog.get_logger()

ASK_WITHIN_S = 10.0
ASK_AT_ONCE = 64
ASK_SILENT_EVERY_S = 5.0
ASK_SPACING_S = 0.1
"""When a thousand nodes join at once, the list of nodes is not read a thousand times."""
SILENT_AFTER_S = 45.0
"""A node that has not reported for this long is asked, whatever the reason."""
KIND = "report"
LOCALAI_EVERY_S = 10.0
"""A LocalAI worker reports nothing unasked, neither a process that ended nor its own restart."""

Listener = Callable[[NodeReport], Awaitable[None]]
RequestLocalAiReport = Callable[[str], Awaitable[NodeReport | None]]
"""Makes the report of a LocalAI worker; None for a Corral worker."""
React = Callable[[], Awaitable[None]]


class ReportBus(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...

    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None: ...

    def on_reconnect(self, listener: Callable[[], Awaitable[None]]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """The result of a batch."""

    changed: bool = False
    routes: bool = False
    refused: Mapping[str, InvalidInput] = field(default_factory=dict)


class Reports:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        bus: ReportBus,
        observed: ObservedStore,
        nodes: NodeStore,
        refused: RefusedMessages,
        clock: Clock,
        request_localai_report: RequestLocalAiReport | None = None,
    ) -> None:
        self.silent_nodes = Reconciler(
            "silent_nodes", self._ask_silent, runtime, every_s=ASK_SILENT_EVERY_S, min_spacing_s=ASK_SPACING_S
        )
        self._bus, self._observed, self._nodes, self._clock = bus, observed, nodes, clock
        self._refused, self._request_localai_report = refused, request_localai_report
        self._listeners: list[Listener] = []
        self._reactions: list[React] = []
        self._route_reactions: list[React] = []
        self._newest: dict[str, tuple[int, int]] = {}
        self._waiting: dict[str, NodeReport] = {}
        self._next_batch: asyncio.Future[Mapping[str, InvalidInput]] | None = None
        """Resolved when the next batch is recorded, with the nodes whose reports the store rejected."""
        self._arrived = asyncio.Event()

    def listen(self, listener: Listener) -> None:
        """Called with every new report, after it was recorded."""
        self._listeners.append(listener)

    def on_change(self, react: React) -> None:
        """Called when the reported state of any node changed."""
        self._reactions.append(react)

    def on_routes(self, react: React) -> None:
        """Called first, when processes started or stopped serving."""
        self._route_reactions.append(react)

    async def start(self) -> None:
        await self._bus.serve(EVERY_REPORT, self._on_report, concurrency=64)

        async def ask_again() -> None:
            self.silent_nodes.notify()

        self._bus.on_reconnect(ask_again)

    async def request_report(self, node_id: NodeId | str) -> NodeReport:
        """Request a complete report, with tokens, and record it before this returns. A LocalAI worker is asked for
        what it can report.

        Raises NoResponders, Unavailable, OutcomeUnknown, or InvalidInput if the reply cannot be read or stored."""
        try:
            report = await self._request(str(node_id))
            if report.node != str(node_id):
                raise InvalidInput(f"node {node_id} answered with the report of node {report.node}")
        except InvalidInput as error:
            self._refused.note(str(node_id), KIND, error)
            raise
        if self._accept(report):
            refused = await self._recorded()
            if report.node in refused:
                raise refused[report.node]
        return report

    # Receiving

    async def _on_report(self, message: BusMessage) -> None:
        try:
            report = decode(message.data, NodeReport)
            if message.subject != node_subject(report.node, REPORT):
                raise InvalidInput(f"a report of node {report.node} arrived on a wrong subject: {message.subject}")
        except InvalidInput as error:
            self._refused.note(sender_of(message.subject), KIND, error)
            return
        self._accept(report)

    def _accept(self, report: NodeReport) -> bool:
        """False if the report is not newer than the last one."""
        order = (report.epoch, report.sequence)
        if order <= self._newest.get(report.node, (-1, -1)):
            return False
        self._newest[report.node] = order
        self._waiting[report.node] = report
        self._arrived.set()
        return True

    async def _recorded(self) -> Mapping[str, InvalidInput]:
        """Wait until all reports received so far are recorded. Returns the nodes whose reports the store rejected."""
        if self._next_batch is None:
            self._next_batch = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._next_batch)

    async def run(self) -> None:
        """Record all reports received so far in one transaction. A report that the store rejects is dropped alone."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._waiting = self._waiting, {}
            waiter, self._next_batch = self._next_batch, None
            try:
                done = await self._record(list(batch.values()))
            except BaseException as error:  # the reports are kept for the next batch, also when the frontend stops
                for node, report in batch.items():
                    self._waiting.setdefault(node, report)
                self._arrived.set()
                if waiter is not None and not waiter.done():
                    waiter.set_exception(Unavailable(f"a report could not be recorded: {error}"))
                    waiter.exception()
                raise
            if waiter is not None and not waiter.done():
                waiter.set_result(done.refused)
            for react in self._route_reactions if done.routes else ():
                await react()
            for node, report in batch.items():
                if node not in done.refused:
                    await self._pass_on(report)
            for react in self._reactions if done.changed else ():
                await react()

    async def _record(self, batch: Sequence[NodeReport]) -> "_Done":
        try:
            recorded = await self._observed.record([observation_of(report) for report in batch])
            return _Done(changed=bool(recorded.changed), routes=recorded.routes)
        except InvalidInput as error:
            if len(batch) == 1:
                self._refused.note(batch[0].node, KIND, error)
                return _Done(refused={batch[0].node: error})
        done = _Done()
        for report in batch:  # one of them is bad, and the store does not say which
            one = await self._record([report])
            done = _Done(
                changed=done.changed or one.changed,
                routes=done.routes or one.routes,
                refused={**done.refused, **one.refused},
            )
        return done

    async def _pass_on(self, report: NodeReport) -> None:
        for listener in self._listeners:
            try:
                await listener(report)
            except Exception:  # a failing listener must not affect the others
                log.exception("report.listener_crashed", node=report.node)

    # Asking

    async def _ask_silent(self, _run: ReconcileRun) -> None:
        """Ask every healthy node that has reported nothing in its current epoch, or nothing for a while."""
        if not self._bus.connected:
            return
        ages = await self._observed.read_ages_s()
        silent = [node.id for node in await self._nodes.read_all() if _is_silent(node, ages.get(node.id))]
        limit = asyncio.Semaphore(ASK_AT_ONCE)

        async def ask(node_id: NodeId) -> None:
            async with limit:
                try:
                    await self.request_report(node_id)
                except CorralError as error:
                    log.info("report.not_answered", node=node_id, error=str(error))

        await asyncio.gather(*(ask(node_id) for node_id in silent))

    async def _request(self, node: str) -> NodeReport:
        try:
            answer = await self._bus.request(node_subject(node, REPORT_NOW), b"{}", within_s=ASK_WITHIN_S)
        except NoResponders:
            report = await self._request_localai_report(node) if self._request_localai_report is not None else None
            if report is None:
                raise
            return report
        return decode(answer, NodeReport)


def _is_silent(node: Node, seen: tuple[int, float] | None) -> bool:
    if node.node_type is not NodeType.BACKEND or node.status not in (NodeStatus.HEALTHY, NodeStatus.DRAINING):
        return False
    patience_s = SILENT_AFTER_S if node.speaks_corral else LOCALAI_EVERY_S
    return seen is None or seen[1] >= patience_s or seen[0] != node.epoch


def observation_of(report: NodeReport) -> Observation:
    listed = {backend.name: backend for backend in report.backends}  # a name listed twice must not break the report
    return Observation(
        node_id=NodeId(report.node),
        instance=report.instance,
        epoch=report.epoch,
        sequence=report.sequence,
        backends=tuple(_backend(listed[name]) for name in sorted(listed)),
        processes=tuple(_process(process) for process in sorted(report.processes, key=lambda one: one.process_key)),
    )


def _backend(listed: ListedBackend) -> ObservedBackend:
    return ObservedBackend(
        name=listed.name,
        is_meta=listed.is_meta,
        is_system=listed.is_system,
        concrete=listed.concrete or "",
        alias=listed.alias,
        version=listed.version,
        digest=listed.digest,
        uri=listed.uri,
        gallery_url=listed.gallery_url,
        installed_at=listed.installed_at,
        generation=listed.generation,
        versions=tuple(listed.versions),
        problem=listed.problem,
    )


def _process(process: ReportedProcess) -> ObservedProcess:
    return ObservedProcess(
        process_key=process.process_key,
        model=process.model_id,
        replica=process.replica_index,
        backend=process.backend,
        digest=process.digest,
        state=process.state,
        protocol=process.protocol,
        pid=process.pid,
        engine=process.engine,
        restarts=process.restarts,
    )
