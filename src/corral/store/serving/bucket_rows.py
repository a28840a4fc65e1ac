"""Rows of objects in a shared bucket and the models that need them."""

from corral.core.models.config import ModelConfig
from corral.core.models.load_plan import uses_file
from corral.store.engine.database import Tx

NOBODY = ""
"""In place of a model's name: the object is deleted, unless another model uses its file."""


async def insert_object(tx: Tx, bucket: str, sha256: str, model: str, file: str) -> None:
    await tx.execute(
        "INSERT INTO bucket_weights (bucket, sha256, model, file, recorded_at, deleting_until, delete_due_at,"
        " delete_attempts, delete_error) VALUES ($1, $2, $3, $4, now_ms(), 0, 0, 0, '')"
        " ON CONFLICT (bucket, sha256, model, file) DO UPDATE SET recorded_at = excluded.recorded_at",
        bucket,
        sha256,
        model,
        file,
    )


async def leave_unused(tx: Tx, config: ModelConfig) -> None:
    """Release the objects that earlier configurations of the model needed and this one does not."""
    rows = await tx.fetch(
        "SELECT bucket, sha256, file FROM bucket_weights WHERE model = $1 ORDER BY bucket, sha256, file FOR UPDATE",
        config.name,
    )
    unused = [(row["bucket"], row["sha256"], row["file"]) for row in rows if not uses_file(config, row["file"])]
    for bucket, sha256, file in unused:
        await insert_object(tx, bucket, sha256, NOBODY, file)
    await tx.execute_many(
        "DELETE FROM bucket_weights WHERE bucket = $1 AND sha256 = $2 AND file = $3 AND model = $4",
        [(*one, config.name) for one in unused],
    )
