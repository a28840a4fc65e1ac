"""Conversion between rows of `load_jobs` and the value `LoadJob`."""

from dataclasses import dataclass, fields

from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.replica import ReplicaState
from corral.store.engine.database import Row, Tx
from corral.store.serving.replica_rows import set_states


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    id: str
    model: str
    ordinal: int
    revision: str
    state: LoadState
    cause: str
    target_node: str | None = None
    replaces: str | None = None
    stop_first_node: str | None = None
    """The node where the replica it replaces is, or was, stopped first, because both do not fit into memory."""
    stop_first_backend: str | None = None
    """That replica's backend, by its name on the node."""
    replica_id: str | None = None
    node_id: str | None = None
    node_name: str = ""
    slot: int | None = None
    owner: str = ""
    fence: int = 0
    lease_until: int = 0
    due_at: int = 0
    attempts: int = 0
    reason: str = ""
    last_error: str = ""
    bytes_sent: int = 0
    total_bytes: int = 0
    file_index: int = 0
    total_files: int = 0
    eta_ms: int | None = None
    created_at: int = 0
    changed_at: int = 0

    @property
    def active(self) -> bool:
        return self.state is not LoadState.FAILED

    def progress(self) -> LoadProgress:
        return LoadProgress(
            model=self.model,
            state=self.state,
            node=self.node_name,
            bytes_sent=self.bytes_sent,
            total_bytes=self.total_bytes,
            file_index=self.file_index,
            total_files=self.total_files,
            eta_s=self.eta_ms / 1000 if self.eta_ms is not None else None,
            reason=self.reason,
            error=self.last_error if self.state is LoadState.FAILED else "",
        )


_COLUMNS = tuple(column.name for column in fields(LoadJob))
SELECT = "SELECT * FROM load_jobs"


def job_of(row: Row) -> LoadJob:
    values = {column: row[column] for column in _COLUMNS}
    values["state"] = LoadState(values["state"])
    return LoadJob(**values)


async def read_jobs(tx: Tx, where: str = "", *args: object) -> list[LoadJob]:
    return [job_of(row) for row in await tx.fetch(f"{SELECT} {where} ORDER BY model, ordinal", *args)]


async def forget_failed(tx: Tx, model: str, *, node_id: str | None = None) -> None:
    """Delete failed jobs, so that the next request loads again. A job for which a replica was stopped first stays, and
    is due at once: it is the only record that the replica must be replaced."""
    await tx.execute(
        "DELETE FROM load_jobs WHERE model = $1 AND state = 'failed' AND stop_first_node IS NULL"
        " AND (CAST($2 AS TEXT) IS NULL OR target_node = $2)",
        model,
        node_id,
    )
    await tx.execute(
        "UPDATE load_jobs SET due_at = now_ms(), changed_at = now_ms() WHERE model = $1 AND state = 'failed'"
        " AND stop_first_node IS NOT NULL AND (CAST($2 AS TEXT) IS NULL OR $2 IN (target_node, stop_first_node))",
        model,
        node_id,
    )


async def end_jobs(tx: Tx, model: str, why: str) -> None:
    """Delete all jobs of the model. Their owners are fenced and stop what they started."""
    for job in await read_jobs(tx, "WHERE model = $1", model):
        if job.replica_id is not None:
            await set_states(tx, [job.replica_id], ReplicaState.STOPPING, why)
    await tx.execute("DELETE FROM load_jobs WHERE model = $1", model)
    await tx.execute("DELETE FROM stop_first_replicas WHERE model = $1", model)
