"""Load back-off: nodes on which a load failed, and until when they cool down."""

from collections.abc import Collection
from dataclasses import dataclass

from corral.core.replicas.load_backoff import FORGOTTEN_AFTER_MS, LoadBackoff, cooldown_s
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places
from corral.store.serving.load_job_rows import LoadJob


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLoad:
    model: str
    revision: str
    node_id: str
    digest: str
    error: str


class LoadBackoffStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, model: str, revision: str) -> dict[str, LoadBackoff]:
        """By node."""

        async def body(tx: Tx) -> dict[str, LoadBackoff]:
            rows = await tx.fetch(
                "SELECT *, until_at > now_ms() AS cooling_down FROM load_backoff"
                " WHERE model = $1 AND revision = $2 AND until_at + $3 > now_ms()",
                model,
                revision,
                FORGOTTEN_AFTER_MS,
            )
            return {row["node_id"]: read_backoff_row(row) for row in rows}

        return await self._database.read(body)

    async def read_failed(self, *, digests: Collection[str], since_ms: int) -> list[FailedLoad]:
        """Loads in which these versions of backends did not start, and have not started since."""
        wanted = in_list(digests)
        if not wanted:
            return []

        async def body(tx: Tx) -> list[FailedLoad]:
            rows = await tx.fetch(
                "SELECT model, revision, node_id, digest, error FROM load_backoff WHERE failed_at >= $1"  # noqa: S608
                f" AND digest IN ({places(len(wanted), first=2)}) ORDER BY model, node_id",
                since_ms,
                *wanted,
            )
            return [
                FailedLoad(
                    model=row["model"],
                    revision=row["revision"],
                    node_id=row["node_id"],
                    digest=row["digest"],
                    error=row["error"],
                )
                for row in rows
            ]

        return await self._database.read(body)


def read_backoff_row(row: Row) -> LoadBackoff:
    return LoadBackoff(
        failures=row["failures"],
        error=row["error"],
        failed_at_ms=row["failed_at"],
        until_ms=row["until_at"],
        digest=row["digest"],
        cooling_down=bool(row["cooling_down"]),
    )


async def record_load_failure(tx: Tx, job: LoadJob, error: str, *, draw: float, digest: str) -> None:
    assert job.node_id is not None
    await tx.execute("DELETE FROM load_backoff WHERE until_at + $1 <= now_ms()", FORGOTTEN_AFTER_MS)
    before = await tx.fetch_one(
        "SELECT failures FROM load_backoff WHERE model = $1 AND revision = $2 AND node_id = $3",
        job.model,
        job.revision,
        job.node_id,
    )
    failures = (before["failures"] if before is not None else 0) + 1
    await tx.execute(
        "INSERT INTO load_backoff (model, revision, node_id, failures, error, failed_at, until_at, digest)"
        " VALUES ($1, $2, $3, $4, $5, now_ms(), now_ms() + $6, $7) ON CONFLICT (model, revision, node_id) DO UPDATE SET"
        " failures = excluded.failures, error = excluded.error, failed_at = excluded.failed_at,"
        " until_at = excluded.until_at, digest = excluded.digest",
        job.model,
        job.revision,
        job.node_id,
        failures,
        error,
        int(cooldown_s(job.attempts + 1, failures, draw=draw) * 1000),
        digest,
    )


async def clear_load_backoff(tx: Tx, model: str, *, node_id: str | None = None) -> None:
    """Clear the back-off of one node or of all, after a success or for a retry."""
    await tx.execute(
        "DELETE FROM load_backoff WHERE model = $1 AND (CAST($2 AS TEXT) IS NULL OR node_id = $2)", model, node_id
    )


async def wake_loads(tx: Tx, *, freed_by: str = "") -> None:
    """Capacity became free: loads that wait for it are due now, and so are failed loads of models with nodes in
    back-off, since another node may take them. Except for the model `freed_by`: the capacity may be that of the very
    process that did not start."""
    await tx.execute(
        "UPDATE load_jobs SET due_at = now_ms() WHERE due_at > now_ms() AND (state = 'pending' OR (state = 'failed'"
        " AND model <> $1 AND EXISTS (SELECT 1 FROM load_backoff WHERE load_backoff.model = load_jobs.model"
        " AND load_backoff.revision = load_jobs.revision AND until_at > now_ms())))",
        freed_by,
    )
