"""Numbered batches: sums that a writer may send again, and that are counted once."""

from corral.store.engine.database import Tx

WRITER_RETENTION_MS = 2 * 86_400_000


async def take_batch(tx: Tx, writer: str, batch: int) -> bool:
    """False if the batch has been counted. A writer numbers its batches in order, and repeats one whose outcome is
    unknown under its number."""
    fresh = await tx.execute(
        "INSERT INTO batch_writers (id, batch, at) VALUES ($1, $2, now_ms())"
        " ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, at = excluded.at"
        " WHERE batch_writers.batch < excluded.batch",
        writer,
        batch,
    )
    return bool(fresh)


async def prune_writers(tx: Tx) -> None:
    await tx.execute("DELETE FROM batch_writers WHERE at < now_ms() - $1", WRITER_RETENTION_MS)
