"""Deletes the weights of deleted models from the shared storage."""

import asyncio
from typing import Protocol

import structlog

from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.backoff import Backoff
from corral.core.errors import CorralError
from corral.store.serving.bucket_weights import BucketWeightsStore, ObjectDeletion

log = structlog.get_logger()

EVERY_S = 2.0
CLAIM_MS = 60_000
RETRIES = Backoff(base_s=5.0, cap_s=15 * 60.0)


class Bucket(Protocol):
    @property
    def place(self) -> str:
        """Identifies the bucket among others."""
        ...

    async def delete(self, sha256: str) -> None:
        """Succeeds if the object does not exist."""
        ...


class BucketCollector:
    def __init__(self, runtime: ReconcileRuntime, weights: BucketWeightsStore, bucket: Bucket) -> None:
        self.loop = Reconciler("bucket", self._reconcile, runtime, every_s=EVERY_S)
        self._weights, self._bucket = weights, bucket

    async def _reconcile(self, _run: ReconcileRun) -> None:
        deletions = await self._weights.claim_deletions(self._bucket.place, lease_ms=CLAIM_MS)
        await asyncio.gather(*map(self._delete, deletions))

    async def _delete(self, deletion: ObjectDeletion) -> None:
        try:
            await self._delete_and_record(deletion)
        except CorralError as error:  # the claim expires, and the deletion is tried again
            log.warning("bucket.deletion_not_recorded", sha256=deletion.sha256, error=str(error))

    async def _delete_and_record(self, deletion: ObjectDeletion) -> None:
        try:
            await self._bucket.delete(deletion.sha256)
        except CorralError as error:
            delay_ms = int(RETRIES.delay_s(deletion.attempts + 1) * 1000)
            log.warning("bucket.not_deleted", sha256=deletion.sha256, error=str(error), again_in_ms=delay_ms)
            await self._weights.deletion_failed(deletion, str(error), again_in_ms=delay_ms)
        else:
            log.info("bucket.deleted", sha256=deletion.sha256)
            await self._weights.deleted(deletion)
