"""Removes orphans: processes without a replica, and files of deleted models. It runs beside the replica controller,
which finds them, so that a node that does not answer delays no repair."""

import asyncio
from collections.abc import Iterable

import structlog

from corral.bus.messages import DoneReply, ModelDeleteRequest, ModelStopRequest, decode, encode
from corral.bus.subjects import MODEL_DELETE, MODEL_STOP, node_subject
from corral.controller.loads.ports import NodeBus
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.backoff import Backoff
from corral.core.errors import CorralError, Unavailable
from corral.core.replicas.repair import Orphan
from corral.store.serving.staged_files import FileDeletion, StagedFileStore
from corral.system import Clock

log = structlog.get_logger()

EVERY_S = 2.0
FRESH_S = 10.0
ASK_WITHIN_S = 30.0
CLAIM_MS = 60_000
RETRIES = Backoff(base_s=5.0, cap_s=15 * 60.0)


class OrphanCollector:
    def __init__(
        self, runtime: ReconcileRuntime, files: StagedFileStore, bus: NodeBus, *, orphan_grace_s: float, clock: Clock
    ) -> None:
        self.loop = Reconciler("orphans", self._reconcile, runtime, every_s=EVERY_S)
        self._files, self._bus, self._grace_s, self._clock = files, bus, orphan_grace_s, clock
        self._orphans: dict[Orphan, float] = {}
        self._noted_s = 0.0

    def note(self, orphans: Iterable[Orphan]) -> None:
        """All orphans found now. Each gets a grace period: a process and its row appear shortly after one another."""
        now_s = self._noted_s = self._clock.monotonic_s()
        self._orphans = {orphan: self._orphans.get(orphan, now_s) for orphan in orphans}

    async def _reconcile(self, _run: ReconcileRun) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._noted_s > FRESH_S:
            self._orphans = {}  # this process slept, or another frontend leads: they may be in use by now
        due = [orphan for orphan, since_s in self._orphans.items() if now_s - since_s >= self._grace_s]
        await self._files.request_deletion_with_models()
        deletions = await self._files.claim_deletions(lease_ms=CLAIM_MS)
        await asyncio.gather(*map(self._stop, due), *map(self._delete, deletions))

    async def _stop(self, orphan: Orphan) -> None:
        request = ModelStopRequest(process_key=orphan.process_key, model_name=orphan.model)
        try:
            await self._bus.request(node_subject(orphan.node_id, MODEL_STOP), encode(request), within_s=ASK_WITHIN_S)
            log.info("replicas.orphan_stopped", node=orphan.node_id, process=orphan.process_key)
        except CorralError as error:
            log.warning("replicas.orphan_not_stopped", process=orphan.process_key, error=str(error))
        self._orphans.pop(orphan, None)

    async def _delete(self, deletion: FileDeletion) -> None:
        try:
            for name in deletion.files:
                await self._delete_file(deletion, name)
            await self._files.deleted(deletion)
        except CorralError as error:
            delay_ms = int(RETRIES.delay_s(deletion.attempts + 1) * 1000)
            try:
                await self._files.deletion_failed(deletion, str(error), again_in_ms=delay_ms)
            except CorralError as unwritten:  # the claim expires, and the deletion is tried again
                log.warning("orphans.deletion_not_recorded", model=deletion.model, error=str(unwritten))

    async def _delete_file(self, deletion: FileDeletion, name: str) -> None:
        """A late request does no harm: the worker rejects it if the file is in use again."""
        request = encode(ModelDeleteRequest(model_name=name, generation=deletion.generation, epoch=deletion.epoch))
        data = await self._bus.request(node_subject(deletion.node_id, MODEL_DELETE), request, within_s=ASK_WITHIN_S)
        reply = decode(data, DoneReply)
        if not reply.success:
            raise Unavailable(reply.error)
