"""Takes weights of deleted models out of the shared storage."""

import asyncio
from typing import Protocol

import structlog

from corral.core.errors import CorralError
from corral.store.serving.bucket_weights import BucketWeightsStore, ObjectDeletion

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
LEASE_MS = 60_000
AGAIN_FIRST_MS, AGAIN_LONGEST_MS = 5_000, 15 * 60_000


class Bucket(Protocol):
    @property
    def place(self) -> str:
        """Tells it from other buckets."""
        ...

    async def delete(self, sha256: str) -> None:
        """Nothing there is done already."""
        ...


class BucketCollector:
    def __init__(self, weights: BucketWeightsStore, bucket: Bucket) -> None:
        self._weights, self._bucket = weights, bucket

    async def run(self) -> None:
        while True:
            deletions = await self._weights.claim_deletions(self._bucket.place, lease_ms=LEASE_MS)
            await asyncio.gather(*map(self._delete, deletions))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _delete(self, deletion: ObjectDeletion) -> None:
        try:
            await self._delete_and_note(deletion)
        except CorralError as error:  # its claim runs out, and it is tried again
            log.warning("bucket.not_noted", sha256=deletion.sha256, error=str(error))

    async def _delete_and_note(self, deletion: ObjectDeletion) -> None:
        try:
            await self._bucket.delete(deletion.sha256)
        except CorralError as error:
            delay_ms = min(AGAIN_LONGEST_MS, AGAIN_FIRST_MS * 2 ** min(deletion.attempts, 8))
            log.warning("bucket.not_deleted", sha256=deletion.sha256, error=str(error), again_in_ms=delay_ms)
            await self._weights.deletion_failed(deletion, str(error), again_in_ms=delay_ms)
        else:
            log.info("bucket.deleted", sha256=deletion.sha256)
            await self._weights.deleted(deletion)
