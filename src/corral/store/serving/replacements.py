"""What replacements of replicas work on, read once for all nodes; and replicas that were stopped first."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from corral.core.backends.rollout import StoppedFirst, StoppedModel
from corral.core.replicas.load_backoff import LoadBackoff
from corral.core.replicas.replica import Replica
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places
from corral.store.serving.load_backoff import read_backoff_row
from corral.store.serving.load_job_rows import LoadJob, read_jobs
from corral.store.serving.replica_rows import read_replicas

T = TypeVar("T")
SELECT_STOPPED = "SELECT replica_id, node_id, model, revision, backend, digest, stopped_at FROM stop_first_replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementView:
    replicas: Mapping[str, list[Replica]] = field(default_factory=dict)
    """By node."""
    jobs: Mapping[str, LoadJob] = field(default_factory=dict)
    """Loads that replace a replica, on any node; by id."""
    jobs_for: Mapping[str, list[LoadJob]] = field(default_factory=dict)
    """The same, by the replica they replace and by the node on which one was stopped first for them."""
    stopped: Mapping[str, list[StoppedFirst]] = field(default_factory=dict)
    """By node."""
    backoffs: Mapping[tuple[str, str, str], LoadBackoff] = field(default_factory=dict)
    """By node, model and revision."""
    models: Mapping[str, StoppedModel] = field(default_factory=dict)
    """Models of the stopped replicas."""


class ReplacementStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, nodes: Collection[str]) -> ReplacementView:
        async def body(tx: Tx) -> ReplacementView:
            ids = in_list(nodes)
            here = f"WHERE node_id IN ({places(len(ids))})"
            replicas: dict[str, list[Replica]] = {node_id: [] for node_id in nodes}
            for replica in await read_replicas(tx, here, *ids):
                replicas[replica.node_id].append(replica)
            failed = await tx.fetch(f"SELECT *, until_at > now_ms() AS cooling_down FROM load_backoff {here}", *ids)  # noqa: S608
            stopped = [_stopped_of(row) for row in await tx.fetch(f"{SELECT_STOPPED} {here}", *ids)]
            jobs = await read_jobs(tx, "WHERE replaces IS NOT NULL OR stop_first_node IS NOT NULL")
            return ReplacementView(
                replicas=replicas,
                jobs={job.id: job for job in jobs},
                jobs_for=_grouped((key, job) for job in jobs for key in (job.replaces, job.stop_first_node) if key),
                stopped=_grouped((one.node_id, one) for one in stopped),
                backoffs={(row["node_id"], row["model"], row["revision"]): read_backoff_row(row) for row in failed},
                models=await read_stopped_models(tx, stopped),
            )

        return await self._database.read(body)

    async def settle(self, replicas: Collection[str]) -> None:
        """Forget stopped replicas that were replaced or are no longer desired."""

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                "DELETE FROM stop_first_replicas WHERE replica_id = $1", [(one,) for one in sorted(replicas)]
            )

        await self._database.write(body)


async def record_stopped_first(tx: Tx, replica: Replica) -> None:
    await tx.execute(
        "DELETE FROM stop_first_replicas WHERE node_id NOT IN (SELECT id FROM nodes WHERE removed_at IS NULL)",
    )
    await tx.execute(
        "INSERT INTO stop_first_replicas (replica_id, node_id, model, revision, backend, digest, stopped_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, now_ms()) ON CONFLICT (replica_id) DO NOTHING",
        replica.id,
        replica.node_id,
        replica.model,
        replica.revision,
        replica.backend,
        replica.backend_digest,
    )


async def record_served_again(tx: Tx, model: str, *, node_id: str, replaced: str | None) -> None:
    """A replica of the model is ready on the node; it may replace one on another node."""
    await tx.execute(
        "DELETE FROM stop_first_replicas WHERE (model = $1 AND node_id = $2) OR replica_id = $3",
        model,
        node_id,
        replaced,
    )


async def read_stopped(tx: Tx, node_id: str, backend: str) -> list[StoppedFirst]:
    rows = await tx.fetch(f"{SELECT_STOPPED} WHERE node_id = $1 AND backend = $2", node_id, backend)
    return [_stopped_of(row) for row in rows]


async def read_stopped_models(tx: Tx, stopped: Iterable[StoppedFirst]) -> dict[str, StoppedModel]:
    names = in_list({one.model for one in stopped})
    if not names:
        return {}
    among = f"IN ({places(len(names))})"
    replicas = _grouped((row.model, row) for row in await read_replicas(tx, f"WHERE model {among}", *names))
    loads = Counter(job.model for job in await read_jobs(tx, f"WHERE model {among}", *names))
    rows = await tx.fetch(
        "SELECT scheduling.model, min_replicas FROM scheduling JOIN models ON models.name = scheduling.model"  # noqa: S608
        f" WHERE deleted_at IS NULL AND scheduling.model {among}",
        *names,
    )
    desired = {row["model"]: row["min_replicas"] for row in rows}
    return {
        name: StoppedModel(replicas=tuple(replicas.get(name, ())), loads=loads[name], desired=desired.get(name, 0))
        for name in names
    }


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _stopped_of(row: Row) -> StoppedFirst:
    return StoppedFirst(
        replica_id=row["replica_id"],
        node_id=row["node_id"],
        model=row["model"],
        revision=row["revision"],
        backend=row["backend"],
        digest=row["digest"],
        stopped_at_ms=row["stopped_at"],
    )
