"""Weights in shared buckets: which models need them, and their deletion when no model does."""

from collections.abc import Sequence
from dataclasses import dataclass

from corral.core.models.load_plan import uses_file
from corral.store.engine.database import Database, Row, Tx
from corral.store.serving.bucket_rows import NOBODY, insert_object
from corral.store.serving.models import find_model, lock_model, read_models


@dataclass(frozen=True, slots=True)
class ObjectDeletion:
    bucket: str
    sha256: str
    attempts: int


class BucketWeightsStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, bucket: str, sha256: str, model: str, file: str) -> bool:
        """Record an object before it is uploaded, so that uploads of a killed frontend are known. False while the
        object is being deleted."""

        async def body(tx: Tx) -> bool:
            owner = await _owner(tx, model, file)
            rows = await tx.fetch(
                "SELECT deleting_until > now_ms() AS deleting FROM bucket_weights"
                " WHERE bucket = $1 AND sha256 = $2 ORDER BY model, file FOR UPDATE",
                bucket,
                sha256,
            )
            if any(row["deleting"] for row in rows):
                return False
            await insert_object(tx, bucket, sha256, owner, file)
            return True

        return await self._database.write(body)

    async def claim_deletions(self, bucket: str, *, lease_ms: int, most: int = 32) -> list[ObjectDeletion]:
        """Claim objects that no configured model needs. Claims of a frontend that died expire."""

        async def look(tx: Tx) -> bool:
            return bool(await tx.fetch(_OF_NO_MODEL, bucket, 1))

        async def claim(tx: Tx) -> list[ObjectDeletion]:
            rows = await tx.fetch(f"{_OF_NO_MODEL} FOR UPDATE", bucket, most)
            await _reassign(tx, bucket, rows)
            # Read under the row locks, which a transaction that records the same object for another model also takes.
            needed = await tx.fetch(
                "SELECT DISTINCT b.sha256 FROM bucket_weights b JOIN models m ON m.name = b.model"
                " WHERE b.bucket = $1 AND m.deleted_at IS NULL",
                bucket,
            )
            kept = {row["sha256"] for row in needed}
            attempts = {row["sha256"]: int(row["delete_attempts"]) for row in rows if row["sha256"] not in kept}
            await tx.execute_many(
                "UPDATE bucket_weights SET deleting_until = now_ms() + $3 WHERE bucket = $1 AND sha256 = $2",
                [(bucket, sha256, lease_ms) for sha256 in attempts],
            )
            await tx.execute_many(
                "DELETE FROM bucket_weights WHERE bucket = $1 AND sha256 = $2 AND model = $3 AND file = $4",
                [(bucket, row["sha256"], row["model"], row["file"]) for row in rows if row["sha256"] in kept],
            )
            return [ObjectDeletion(bucket, sha256, count) for sha256, count in attempts.items()]

        return await self._database.write(claim) if await self._database.read(look) else []

    async def deleted(self, deletion: ObjectDeletion) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "DELETE FROM bucket_weights WHERE bucket = $1 AND sha256 = $2", deletion.bucket, deletion.sha256
            )

        await self._database.write(body)

    async def deletion_failed(self, deletion: ObjectDeletion, error: str, *, again_in_ms: int) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE bucket_weights SET deleting_until = 0, delete_attempts = delete_attempts + 1,"
                " delete_error = $3, delete_due_at = now_ms() + $4 WHERE bucket = $1 AND sha256 = $2",
                deletion.bucket,
                deletion.sha256,
                error[:2000],
                again_in_ms,
            )

        await self._database.write(body)


_OF_NO_MODEL = (
    "SELECT sha256, model, file, delete_attempts FROM bucket_weights b WHERE bucket = $1"
    " AND delete_due_at <= now_ms() AND deleting_until <= now_ms()"
    " AND NOT EXISTS (SELECT 1 FROM models m WHERE m.name = b.model AND m.deleted_at IS NULL)"
    " ORDER BY sha256, model, file LIMIT $2"
)


async def _owner(tx: Tx, model: str, file: str) -> str:
    """The model, locked against edits; NOBODY if its current configuration does not use the file."""
    await lock_model(tx, model)
    found = await find_model(tx, model)
    return model if found is not None and uses_file(found.config, file) else NOBODY


async def _reassign(tx: Tx, bucket: str, rows: Sequence[Row]) -> None:
    """Assign objects to a model that uses the same file; that model may have found it without recording it."""
    models = await read_models(tx) if rows else []
    for row in rows:
        user = next((model for model in models if uses_file(model.config, row["file"])), None)
        if user is not None:
            await insert_object(tx, bucket, row["sha256"], user.name, row["file"])
