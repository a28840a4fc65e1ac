"""Load jobs: requested (one for all concurrent requests), read, restored and cancelled."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from corral.core.backends.rollout import StoppedFirst, is_served_again
from corral.core.replicas.on_demand import OnDemandPlan, plan_on_demand
from corral.core.replicas.replica import ReplicaState
from corral.core.replicas.scaling import Add, Scheduling
from corral.store.engine.counters import ROUTES, bump_counter
from corral.store.engine.database import Database, Tx
from corral.store.engine.leases import Lease, check_held
from corral.store.engine.sql import in_list, places
from corral.store.serving.load_backoff import clear_load_backoff, wake_loads
from corral.store.serving.load_job_rows import LoadJob, end_jobs, forget_failed, job_of, read_jobs
from corral.store.serving.models import StoredModel, find_model, lock_model, read_models
from corral.store.serving.pending_revisions import retry_pending
from corral.store.serving.replacements import read_stopped, read_stopped_models
from corral.store.serving.replica_rows import InFlight, read_replicas, set_states
from corral.store.serving.replicas import FleetView, read_cluster, read_fleet
from corral.store.serving.scheduling import SchedulingRecord, clear_unsatisfiable, find_scheduling, read_all_scheduling
from corral.system import Ids


@dataclass(frozen=True, slots=True)
class NoLoadNeeded:
    """No load is needed: waiting is enough, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    jobs: tuple[str, ...]
    """Loads that restore the replicas that were stopped."""
    ended: int
    """How many loads of the other version were ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSnapshot:
    """What should serve and what does, read at one moment. A load that just finished is seen as a load or as a replica,
    never as neither; an edit that replicas survive is seen in the model and in its replicas, never in one of them."""

    fleet: FleetView
    jobs: Sequence[LoadJob]
    models: Mapping[str, StoredModel]
    scheduling: Mapping[str, SchedulingRecord]


_TRY_NOW = "UPDATE load_jobs SET state = 'pending', attempts = 0, reason = '', due_at = now_ms(), changed_at = now_ms()"


class LoadJobStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def request_load(self, model: str, revision: str, *, cause: str, ids: Ids) -> LoadJob | NoLoadNeeded:
        """Return the load in progress, or start one. A failed load is returned until it is due again. None is started
        if the existing replicas are enough."""

        async def body(tx: Tx) -> LoadJob | NoLoadNeeded:
            await lock_model(tx, model)
            jobs = await read_jobs(tx, "WHERE model = $1", model)
            for job in jobs:
                if job.active:
                    return job
            for job in jobs:
                if not await _is_due(tx, job) and job.revision == revision:
                    return job
            record = await find_scheduling(tx, model)
            scheduling = record.scheduling if record is not None else Scheduling(model=model)
            rows = await read_replicas(tx, "WHERE model = $1", model)
            plan = plan_on_demand(revision, rows, scheduling, await read_cluster(tx)) if rows else OnDemandPlan()
            if plan.wait:
                return NoLoadNeeded(plan.wait)
            add = Add(why=cause, replaces=plan.replaces)
            return await put_job(tx, model, revision, add, {job.ordinal: job for job in jobs}, ids)

        return await self._database.write(body)

    async def request_loads(
        self,
        model: str,
        revision: str,
        adds: Sequence[Add],
        *,
        ids: Ids,
        known: Collection[str] | None = None,
        lease: Lease | None = None,
    ) -> list[LoadJob]:
        """Start a load for each of `adds`, unless an active one is for the same node or replaces the same replica.

        `known`: the loads that the caller has counted; each newer one stands for one of `adds`."""

        async def body(tx: Tx) -> list[LoadJob]:
            await check_held(tx, lease)
            await lock_model(tx, model)
            jobs = {job.ordinal: job for job in await read_jobs(tx, "WHERE model = $1", model)}
            newer = sum(job.active and job.id not in known for job in jobs.values()) if known is not None else 0
            made = []
            for add in adds:
                if any(_same(job, add) for job in jobs.values()):
                    continue
                if newer and add.replaces is None and add.node_id is None:
                    newer -= 1
                    continue
                job = await put_job(tx, model, revision, add, jobs, ids)
                jobs[job.ordinal] = job
                made.append(job)
            return made

        return await self._database.write(body)

    async def read_serving(self, in_flight: InFlight) -> ServingSnapshot:
        async def body(tx: Tx) -> ServingSnapshot:
            return ServingSnapshot(
                fleet=await read_fleet(tx, in_flight),
                jobs=await read_jobs(tx),
                models={model.name: model for model in await read_models(tx)},
                scheduling={record.scheduling.model: record for record in await read_all_scheduling(tx)},
            )

        return await self._database.read(body)

    async def read_all(self) -> list[LoadJob]:
        async def body(tx: Tx) -> list[LoadJob]:
            return await read_jobs(tx)

        return await self._database.read(body)

    async def read_of_model(self, model: str) -> list[LoadJob]:
        async def body(tx: Tx) -> list[LoadJob]:
            return await read_jobs(tx, "WHERE model = $1", model)

        return await self._database.read(body)

    async def cancel(self, model: str, *, why: str) -> None:
        """End all loads of the model and clear its back-off, for an unload."""

        async def body(tx: Tx) -> None:
            await end_jobs(tx, model, why)
            await clear_load_backoff(tx, model)

        await self._database.write(body)

    async def exists(self, identity: str) -> bool:
        """Whether the job exists, even if it failed or another frontend holds it."""

        async def body(tx: Tx) -> bool:
            return await tx.fetch_one("SELECT id FROM load_jobs WHERE id = $1", identity) is not None

        return await self._database.read(body)

    async def retry_now(self, model: str, *, node_id: str | None = None) -> None:
        """A person wants the load retried now, on one node or on any: clear its failures."""

        async def body(tx: Tx) -> None:
            await lock_model(tx, model)
            await forget_failed(tx, model, node_id=node_id)
            await clear_load_backoff(tx, model, node_id=node_id)
            await retry_pending(tx, model)

        await self._database.write(body)

    async def retry_failed(self, job: LoadJob, *, node_id: str) -> None:
        """Retry a failed load at once, because its failure was of another backend version than the node has now.

        A job for which a replica was stopped first is itself retried; another one is deleted."""

        async def body(tx: Tx) -> None:
            await lock_model(tx, job.model)
            await tx.execute(
                "DELETE FROM load_jobs WHERE id = $1 AND state = 'failed' AND stop_first_node IS NULL", job.id
            )
            await tx.execute(f"{_TRY_NOW} WHERE id = $1 AND state = 'failed'", job.id)
            await clear_load_backoff(tx, job.model, node_id=node_id)

        await self._database.write(body)

    async def restore(self, node_id: str, backend: str, *, digest: str, ids: Ids) -> Restoring:
        """A rollout of the backend on the node was taken back, and `digest` stays current there. Replicas that were
        stopped first are loaded again at once. Loads that would replace replicas of this version end."""

        async def body(tx: Tx) -> Restoring:
            found = await _find_changed(tx, node_id, backend, digest)
            for model in sorted(found.models):
                await lock_model(tx, model)
                await clear_load_backoff(tx, model, node_id=node_id)
            found = await _find_changed(tx, node_id, backend, digest)  # again, now that the models are locked
            await _end_successors(tx, found.unneeded)
            again = list(found.again)
            await tx.execute_many(f"{_TRY_NOW} WHERE id = $1 AND owner = ''", [(job.id,) for job in again])
            # An owner may wait long for the version that is gone: it is fenced, and the load starts again.
            await tx.execute_many(
                "UPDATE load_jobs SET owner = '', fence = fence + 1, lease_until = 0, due_at = now_ms(),"
                " changed_at = now_ms() WHERE id = $1 AND owner <> ''",
                [(job.id,) for job in again],
            )
            lost = [one for one in found.stopped if one.replica_id not in {job.replaces for job in again}]
            again += await _load_lost(tx, lost, digest, ids)
            return Restoring(jobs=tuple(job.id for job in again), ended=len(found.unneeded))

        return await self._database.write(body)

    async def delete_obsolete(
        self, model: str, jobs: Sequence[str], *, seen_at: int, lease: Lease | None = None
    ) -> None:
        """Delete loads that are no longer needed. One that was placed, or lost its replica, after `seen_at` stays: the
        decision was made on an outdated view."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            await lock_model(tx, model)
            await tx.execute_many(
                "DELETE FROM load_jobs WHERE id = $1 AND changed_at < $2"
                " AND (replica_id IS NULL OR replica_id NOT IN (SELECT id FROM replicas))",
                [(job, seen_at) for job in jobs],
            )
            if not await read_jobs(tx, "WHERE model = $1 AND state = 'pending'", model):
                await clear_unsatisfiable(tx, model)

        await self._database.write(body)

    async def wake(self) -> None:
        """New capacity is available: retry the loads that wait for it."""

        async def body(tx: Tx) -> None:
            await wake_loads(tx)
            await clear_unsatisfiable(tx)

        await self._database.write(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    stopped: Sequence[StoppedFirst]
    again: Sequence[LoadJob]
    """Loads for which a replica was stopped first."""
    unneeded: Sequence[LoadJob]
    """Loads that would replace replicas which may stay."""

    @property
    def models(self) -> set[str]:
        return {one.model for one in self.stopped} | {job.model for job in (*self.again, *self.unneeded)}


async def _find_changed(tx: Tx, node_id: str, backend: str, digest: str) -> _Changed:
    serving = await read_replicas(
        tx,
        "WHERE node_id = $1 AND backend = $2 AND backend_digest = $3 AND state = 'ready'",
        node_id,
        backend,
        digest,
    )
    revisions = {row.id: row.revision for row in serving}
    ids = in_list(revisions)
    successors = await read_jobs(tx, f"WHERE replaces IN ({places(len(ids))})", *ids) if ids else []
    stopping = await read_jobs(tx, "WHERE stop_first_node = $1 AND stop_first_backend = $2", node_id, backend)
    # Another revision is an edit, whatever the version of the backend.
    unneeded = [job for job in successors if job.replaces is not None and job.revision == revisions[job.replaces]]
    return _Changed(
        stopped=await read_stopped(tx, node_id, backend),
        again=[job for job in stopping if job.id not in {one.id for one in unneeded}],
        unneeded=unneeded,
    )


async def _end_successors(tx: Tx, jobs: Sequence[LoadJob]) -> None:
    """Delete the jobs. Their owners are fenced and stop what they started."""
    replicas = [job.replica_id for job in jobs if job.replica_id is not None]
    if replicas:
        await set_states(tx, replicas, ReplicaState.STOPPING, "the rollout of its backend version was reverted")
        await bump_counter(tx, ROUTES)
    await tx.execute_many("DELETE FROM load_jobs WHERE id = $1", [(job.id,) for job in jobs])


async def _load_lost(tx: Tx, lost: Sequence[StoppedFirst], digest: str, ids: Ids) -> list[LoadJob]:
    """Start loads for replicas whose own load is gone, unless other replicas serve instead."""
    models = await read_stopped_models(tx, lost)
    made = []
    for one in lost:
        model = await find_model(tx, one.model)
        if model is None or is_served_again(one, models[one.model], digest=digest):
            await tx.execute("DELETE FROM stop_first_replicas WHERE replica_id = $1", one.replica_id)
            continue
        jobs = {job.ordinal: job for job in await read_jobs(tx, "WHERE model = $1", one.model)}
        if any(job.active and job.replaces is None for job in jobs.values()):
            continue  # another load restores it already
        add = Add(why="it was stopped for a rollout that was reverted", replaces=one.replica_id)
        job = await put_job(tx, one.model, model.revision, add, jobs, ids)
        await tx.execute(
            "UPDATE load_jobs SET stop_first_node = $2, stop_first_backend = $3 WHERE id = $1",
            job.id,
            one.node_id,
            one.backend,
        )
        made.append(job)
    return made


async def put_job(tx: Tx, model: str, revision: str, add: Add, jobs: Mapping[int, LoadJob], ids: Ids) -> LoadJob:
    """Reuse a failed job that is due again, so that its attempts count, or insert a new one. A job for which a replica
    was stopped first stays that replica's successor, and is not reused for another replica or node."""
    for ordinal, job in sorted(jobs.items(), key=lambda one: (one[1].replaces != add.replaces, one[0])):
        if not job.active and _may_become(job, add) and await _is_due(tx, job):
            attempts = job.attempts if job.revision == revision else 0
            row = await tx.fetch_one(
                "UPDATE load_jobs SET state = 'pending', revision = $2, cause = $3, target_node = $4, replaces = $5,"
                " attempts = $6, replica_id = NULL, node_name = '', slot = NULL, reason = '',"
                " bytes_sent = 0, total_bytes = 0, file_index = 0, total_files = 0, eta_ms = NULL, owner = '',"
                " lease_until = 0, due_at = now_ms(), changed_at = now_ms() WHERE id = $1"
                " RETURNING *",
                job.id,
                revision,
                add.why,
                add.node_id,
                add.replaces if job.stop_first_node is None else job.replaces,
                attempts,
            )
            assert row is not None
            return replace(job_of(row), ordinal=ordinal)
    ordinal = next(number for number in range(len(jobs) + 1) if number not in jobs)
    row = await tx.fetch_one(
        "INSERT INTO load_jobs (id, model, ordinal, revision, state, cause, target_node, replaces, node_name, owner,"
        " fence, lease_until, due_at, attempts, reason, last_error, bytes_sent, total_bytes, file_index,"
        " total_files, created_at, changed_at) VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, '', '', 0, 0,"
        " now_ms(), 0, '', '', 0, 0, 0, 0, now_ms(), now_ms()) RETURNING *",
        ids.uuid(),
        model,
        ordinal,
        revision,
        add.why,
        add.node_id,
        add.replaces,
    )
    assert row is not None
    return job_of(row)


def _may_become(job: LoadJob, add: Add) -> bool:
    if job.stop_first_node is None:
        return True
    if add.replaces is not None:
        return add.replaces == job.replaces
    return add.node_id in (None, job.stop_first_node)


async def _is_due(tx: Tx, job: LoadJob) -> bool:
    return await tx.fetch_one("SELECT 1 AS due WHERE now_ms() >= CAST($1 AS BIGINT)", job.due_at) is not None


def _same(job: LoadJob, add: Add) -> bool:
    if not job.active:
        return False
    if add.replaces is not None:
        return job.replaces == add.replaces
    return add.node_id is not None and job.target_node == add.node_id
