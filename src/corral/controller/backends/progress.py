"""Live progress of operations. Every frontend receives it from the workers, so all show the same. The frontend that
runs the intent writes it to the store in batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import InstallProgress, ProgressExtras, decode, encode
from corral.bus.subjects import EVERY_PROGRESS, progress_subject, sender_of
from corral.controller.loop import ReconcileRun
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.core.backends.operations import NodeProgress, NodeProgressStatus
from corral.core.backends.progress import after_worker, is_after_worker, merge_progress
from corral.core.errors import CorralError, InvalidInput
from corral.core.nodes.node import NodeId
from corral.core.transfer import TransferProgress
from corral.system import Clock

log = structlog.get_logger()

KIND = "progress"
SAVE_EVERY_S = 2.0
FORGET_AFTER_S = 120.0
OPERATIONS_MOST = 1000


class ProgressBus(Protocol):
    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None: ...

    async def publish(self, subject: str, data: bytes) -> None: ...


class ProgressStore(Protocol):
    async def save_progress(self, progress: Iterable[tuple[str, NodeProgress]]) -> None: ...


class LiveProgress:
    def __init__(
        self,
        *,
        bus: ProgressBus,
        store: ProgressStore,
        refused: RefusedMessages,
        clock: Clock,
    ) -> None:
        self._bus, self._store, self._refused, self._clock = bus, store, refused, clock
        self._operations: dict[str, dict[NodeId, NodeProgress]] = {}
        self._received_s: dict[str, float] = {}
        self._ours: set[tuple[str, NodeId]] = set()
        self._unsaved: set[tuple[str, NodeId]] = set()
        self._ended: tuple[set[tuple[str, NodeId]], set[tuple[str, NodeId]]] = (set(), set())
        """Runs that have ended since the last turn, and before it: by then their outcome has been written."""
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Adds a callback for every change."""
        self._listeners.append(listener)

    async def start(self) -> None:
        await self._bus.serve(EVERY_PROGRESS, self._on_progress, concurrency=1)

    def of(self, operation_id: str) -> Mapping[NodeId, NodeProgress]:
        return self._operations.get(operation_id, {})

    def follow(self, operation_id: str, node_id: NodeId) -> None:
        """From now on this frontend writes the progress, as it runs the intent. Earlier progress is of another attempt
        and already in the store."""
        self._ours.add((operation_id, node_id))
        self._drop(operation_id, node_id)

    def leave(self, operation_id: str, node_id: NodeId) -> None:
        self._ours.discard((operation_id, node_id))
        self._unsaved.discard((operation_id, node_id))

    async def _on_progress(self, message: BusMessage) -> None:
        try:
            progress = decode(message.data, InstallProgress)
            if message.subject != progress_subject(progress.node_id, progress.op_id):
                raise InvalidInput(f"progress of node {progress.node_id} arrived on a wrong subject: {message.subject}")
        except InvalidInput as error:
            self._refused.note(sender_of(message.subject), KIND, error)
            return
        if progress.op_id not in self._operations and len(self._operations) >= OPERATIONS_MOST:
            self._forget(incoming=1)
        key = (progress.op_id, NodeId(progress.node_id))
        extras = progress.corral
        if extras is not None and extras.last and extras.error:
            self._drop(*key)  # the reply says how it ended
            return
        if extras is not None and extras.last:
            self._ended[0].add(key)
        elif extras is not None and is_after_worker(extras.sequence):
            self._ended[0].discard(key)  # the worker's run has ended, and the intent goes on
            self._ended[1].discard(key)
        nodes = self._operations.setdefault(progress.op_id, {})
        known = nodes.get(key[1]) or NodeProgress(node_id=key[1], node_name="", status=NodeProgressStatus.DOWNLOADING)
        merged = merge_progress(known, extras.sequence if extras is not None else None, progress.transfer)
        if merged is known:
            return
        nodes[key[1]] = merged
        self._received_s[progress.op_id] = self._clock.monotonic_s()
        if key in self._ours:
            self._unsaved.add(key)
        for listener in self._listeners:
            listener()

    def _drop(self, operation_id: str, node_id: NodeId) -> None:
        self._operations.get(operation_id, {}).pop(node_id, None)
        self._unsaved.discard((operation_id, node_id))

    async def reconcile(self, _run: ReconcileRun) -> None:
        """Write progress to the store. What cannot be written is dropped: the next message has more."""
        self._forget()
        await self.save()
        for key in self._ended[1]:
            self._drop(*key)
        self._ended = (set(), self._ended[0])

    async def save(self) -> None:
        keys, self._unsaved = self._unsaved, set()
        received = [(key[0], self._operations.get(key[0], {}).get(key[1])) for key in keys]
        await self._save([(operation_id, node) for operation_id, node in received if node is not None])

    async def _save(self, updates: Sequence[tuple[str, NodeProgress]]) -> None:
        try:
            await self._store.save_progress(updates)
        except InvalidInput as error:
            if len(updates) == 1:
                self._refused.note(updates[0][1].node_id, KIND, error)
                return
            for one in updates:  # the error does not name the bad one; save the others
                await self._save([one])

    def _forget(self, *, incoming: int = 0) -> None:
        now_s = self._clock.monotonic_s()
        oldest_first = sorted(self._received_s, key=self._received_s.__getitem__)
        surplus = max(0, len(oldest_first) + incoming - OPERATIONS_MOST)
        for position, operation_id in enumerate(oldest_first):
            if position < surplus or now_s - self._received_s[operation_id] > FORGET_AFTER_S:
                del self._received_s[operation_id]
                self._operations.pop(operation_id, None)


async def publish_progress(bus: ProgressBus, clock: Clock, operation_id: str, node_id: NodeId, phase: str) -> None:
    """Publishes a frontend's own step after the worker's, in the same form, to every frontend."""
    transfer = TransferProgress(phase=phase, percentage=100.0, bytes_done=0)
    extras = ProgressExtras(sequence=after_worker(clock.now_ms()), transfer=transfer)
    updates = InstallProgress(
        op_id=operation_id, node_id=node_id, backend="", percentage=100.0, phase=phase, corral=extras
    )
    with suppress(CorralError):  # progress may be lost: the outcome is written
        await bus.publish(progress_subject(node_id, operation_id), encode(updates))
