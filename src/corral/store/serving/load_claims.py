"""Load jobs as their owners see them: claimed by lease, and every write checks the fence."""

from dataclasses import dataclass, field, replace

from corral.core.backends.rollout import stop_first_at_once
from corral.core.causes import brief_cause
from corral.core.errors import Conflict, Fenced
from corral.core.models.load_plan import find_elastic
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.footprints import FootprintKey, round_fitted
from corral.core.replicas.load_jobs import LoadProgress
from corral.core.replicas.placement import Decision, Need, Placed, Waiting, place
from corral.core.replicas.replica import Replica, ReplicaState
from corral.store.engine.counters import MODELS, ROUTES, bump_counter, lock_counter
from corral.store.engine.database import Database, Tx
from corral.store.engine.sql import places
from corral.store.serving.decisions import record_decision
from corral.store.serving.footprints import record_load_time
from corral.store.serving.load_backoff import clear_load_backoff, record_load_failure, wake_loads
from corral.store.serving.load_job_rows import SELECT, LoadJob, job_of, read_jobs
from corral.store.serving.models import StoredModel, find_model, lock_model, promote
from corral.store.serving.pending_revisions import find_pending, record_pending_failure, record_pending_waits
from corral.store.serving.replacements import record_served_again, record_stopped_first
from corral.store.serving.replica_rows import InFlight, insert_replica, lock_replicas, read_replicas, set_states
from corral.store.serving.replicas import FleetView, read_fleet
from corral.store.serving.revision_rows import record_served
from corral.store.serving.revoked_processes import record_revoked
from corral.store.serving.scheduling import clear_unsatisfiable, record_unsatisfiable
from corral.system import Ids

MAX_ERROR_CHARS = 4000
MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoaded:
    """The result of a successful load."""

    address: str
    protocol: str
    endpoints: tuple[str, ...] = ()
    """Client APIs that its process speaks itself."""
    continuation: str = ""
    """How its process continues an answer that another one began; empty if it cannot."""
    token: str = field(repr=False)
    process_key: str
    backend: str
    backend_digest: str
    epoch: int
    pid: int | None
    capacity: int | None
    load_options: str
    load_ms: int
    node_class: str
    device: str


class LoadClaimStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, owner: str, *, lease_s: float, most: int) -> list[LoadJob]:
        """Claim due jobs that nobody holds. Jobs of an owner that died become free when its lease expires."""

        async def body(tx: Tx) -> list[LoadJob]:
            rows = await tx.fetch(
                "SELECT id FROM load_jobs WHERE state <> 'failed' AND due_at <= now_ms() AND lease_until <= now_ms()"
                " ORDER BY due_at, id LIMIT $1 FOR UPDATE",
                most,
            )
            claimed = []
            for row in rows:
                found = await tx.fetch_one(
                    "UPDATE load_jobs SET owner = $2, fence = fence + 1, lease_until = now_ms() + $3"
                    " WHERE id = $1 RETURNING *",
                    row["id"],
                    owner,
                    int(lease_s * 1000),
                )
                assert found is not None
                claimed.append(job_of(found))
            return claimed

        return await self._database.write(body)

    async def renew(self, job: LoadJob, *, lease_s: float) -> None:
        """Extend the lease. Raises Conflict if the job's replica was revoked in the meantime."""

        async def body(tx: Tx) -> None:
            await _check_place(tx, await _held(tx, job))
            await tx.execute(
                "UPDATE load_jobs SET lease_until = now_ms() + $2 WHERE id = $1", job.id, int(lease_s * 1000)
            )

        await self._database.write(body)

    async def hold(self, job: LoadJob, *, lease_s: float) -> None:
        """Extend the lease, even if the job's replica was revoked."""

        async def body(tx: Tx) -> None:
            await _held(tx, job)
            await tx.execute(
                "UPDATE load_jobs SET lease_until = now_ms() + $2 WHERE id = $1", job.id, int(lease_s * 1000)
            )

        await self._database.write(body)

    async def note_progress(self, job: LoadJob, progress: LoadProgress, *, lease_s: float) -> None:
        """Store the progress and extend the lease, as `renew` does."""

        async def body(tx: Tx) -> None:
            await _check_place(tx, await _held(tx, job))
            await tx.execute(
                "UPDATE load_jobs SET state = $2, bytes_sent = $3, total_bytes = $4, file_index = $5, total_files = $6,"
                " eta_ms = $7, reason = $8, lease_until = now_ms() + $9, changed_at = now_ms() WHERE id = $1",
                job.id,
                progress.state.value,
                progress.bytes_sent,
                progress.total_bytes,
                progress.file_index,
                progress.total_files,
                int(progress.eta_s * 1000) if progress.eta_s is not None else None,
                progress.reason,
                int(lease_s * 1000),
            )

        await self._database.write(body)

    async def reserve(self, job: LoadJob, need: Need, decision: Decision, in_flight: InFlight, *, ids: Ids) -> Replica:
        """Reserve capacity for a replica. Placement is checked again on the locked node; raises Conflict if the
        capacity was taken in the meantime."""
        outcome = decision.outcome
        assert isinstance(outcome, Placed)
        identity = ids.uuid()

        async def body(tx: Tx) -> Replica:
            if need.instead_of is not None:
                await lock_model(tx, job.model)
            held = await _held(tx, job)
            if held.replica_id is not None:
                # An earlier attempt reserved it, but its outcome was unknown.
                found = await read_replicas(tx, "WHERE id = $1", held.replica_id)
                if found and found[0].state is not ReplicaState.STOPPING:
                    return found[0]
            await tx.fetch("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", outcome.node_id)
            fleet = await read_fleet(tx, in_flight)
            if need.instead_of is not None and await _must_wait_to_stop(tx, job, fleet):
                raise Conflict(f"other replicas of {job.model} are replaced first")
            nodes = [node for node in fleet.capacities if node.id == outcome.node_id]
            again = place(need, nodes).outcome
            if not isinstance(again, Placed) or again.evict:
                raise Conflict(f"the capacity for {job.model} was taken in the meantime")
            replica = Replica(
                id=identity,
                node_id=outcome.node_id,
                model=job.model,
                slot=again.slot,
                revision=held.revision,
                state=ReplicaState.STARTING,
                process_key=f"{job.model}#{again.slot}",
                memory_bytes=again.memory_bytes,
                disk_bytes=again.disk_bytes,
            )
            # Last, to keep it short: all transactions that change routes wait for each other here.
            await record_decision(tx, job, decision)
            await clear_unsatisfiable(tx, job.model)
            replica = replace(replica, generation=await bump_counter(tx, ROUTES))
            await insert_replica(tx, replica)
            stopped = await read_replicas(tx, "WHERE id = $1", need.instead_of) if need.instead_of is not None else []
            await tx.execute(
                "UPDATE load_jobs SET replica_id = $2, node_id = $3, node_name = $4, slot = $5, state = 'pending',"
                " reason = '', stop_first_node = coalesce($6, stop_first_node),"
                " stop_first_backend = coalesce($7, stop_first_backend), changed_at = now_ms() WHERE id = $1",
                job.id,
                replica.id,
                replica.node_id,
                nodes[0].name,
                replica.slot,
                replica.node_id if need.instead_of is not None else None,
                stopped[0].backend if stopped else None,
            )
            return replica

        return await self._database.write(body)

    async def must_wait_to_stop(self, job: LoadJob, fleet: FleetView) -> bool:
        """Whether too many replicas of the model are already stopped for successors that do not serve yet."""

        async def body(tx: Tx) -> bool:
            return await _must_wait_to_stop(tx, job, fleet)

        return await self._database.read(body)

    async def stop_first(self, job: LoadJob, why: str) -> Replica | None:
        """Drain the replica that the job replaces, whose memory it needs. None if that replica no longer exists."""

        async def body(tx: Tx) -> Replica | None:
            held = await _held(tx, job)
            await _check_place(tx, held)
            rows = await lock_replicas(tx, [held.replaces] if held.replaces else [])
            if rows and rows[0].state is ReplicaState.READY:
                await record_stopped_first(tx, rows[0])
                await set_states(tx, [rows[0].id], ReplicaState.DRAINING, why)
                await bump_counter(tx, ROUTES)
            return rows[0] if rows else None

        return await self._database.write(body)

    async def evict(self, job: LoadJob, need: Need, decision: Decision, in_flight: InFlight) -> list[Replica]:
        """Evict the replicas of the decision. Placement is checked again under locks of their models; raises Conflict
        if one of them is in use or needed now."""
        outcome = decision.outcome
        assert isinstance(outcome, Placed)

        async def body(tx: Tx) -> list[Replica]:
            chosen = await read_replicas(tx, f"WHERE id IN ({places(len(outcome.evict))})", *outcome.evict)
            for model in sorted({row.model for row in chosen}):
                await lock_model(tx, model)
            await _held(tx, job)
            nodes = [node for node in (await read_fleet(tx, in_flight)).capacities if node.id == outcome.node_id]
            again = place(need, nodes).outcome
            if not isinstance(again, Placed) or not {*again.evict} <= {*outcome.evict}:
                raise Conflict(f"a replica that was to be evicted for {job.model} is needed now")
            if again.evict:
                await record_decision(tx, job, replace(decision, outcome=again))
                await set_states(tx, again.evict, ReplicaState.STOPPING, f"evicted for {job.model}")
                await bump_counter(tx, ROUTES)
            return await lock_replicas(tx, again.evict)

        return await self._database.write(body)

    async def resize(self, job: LoadJob, need: Need, in_flight: InFlight) -> str:
        """Correct the reserved memory once the real need is known. Returns why it does not fit; empty if it does."""

        async def body(tx: Tx) -> str:
            held = await _held(tx, job)
            await tx.fetch("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", held.node_id)
            nodes = [
                replace(
                    node,
                    status=NodeStatus.HEALTHY,
                    conditions=(),  # the load is placed already, and its own download may have filled the disk
                    low_disk="",
                    replicas=tuple(one for one in node.replicas if one.id != held.replica_id),
                )
                for node in (await read_fleet(tx, in_flight)).capacities
                if node.id == held.node_id
            ]
            outcome = place(need, nodes).outcome
            if isinstance(outcome, Waiting):
                return outcome.reason
            if outcome.evict:
                return "other replicas would have to be evicted first"
            await tx.execute(
                "UPDATE replicas SET memory_bytes = $2 WHERE id = $1", held.replica_id, outcome.memory_bytes
            )
            return ""

        return await self._database.write(body)

    async def wait(self, job: LoadJob, decision: Decision, reason: str, *, again_in_s: float) -> None:
        """Keep the job in the queue, with the reason, until there is capacity or `again_in_s` is over."""

        async def body(tx: Tx) -> None:
            is_canary = await _lock_pending(tx, job)
            held = await _held(tx, job)
            if held.reason != reason:
                await record_decision(tx, job, decision)
            await record_unsatisfiable(tx, job.model, reason, for_ms=int(again_in_s * 1000))
            if is_canary and held.reason != reason:
                await record_pending_waits(tx, job.model, held.revision, reason)
                await bump_counter(tx, MODELS)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', reason = $2, owner = '', lease_until = 0,"
                " attempts = attempts + 1, due_at = now_ms() + $3, changed_at = now_ms() WHERE id = $1",
                job.id,
                reason,
                int(again_in_s * 1000),
            )

        await self._database.write(body)

    async def finish(self, job: LoadJob, loaded: ReplicaLoaded) -> Replica:
        """Make the replica ready for requests and drain the one it replaces. The first replica of a pending revision
        makes that revision the current one."""

        async def body(tx: Tx) -> Replica:
            is_canary = await _lock_pending(tx, job)
            await lock_model(tx, job.model)
            held = await _held(tx, job)
            model = await find_model(tx, job.model)
            revision = model.of_revision(held.revision) if model is not None else None
            if model is None or revision is None:
                raise Conflict(f"the model {job.model} was changed while it was loading")
            rows = await lock_replicas(tx, [one for one in (held.replica_id, held.replaces) if one])
            own = next((row for row in rows if row.id == held.replica_id), None)
            if own is None or own.state is ReplicaState.STOPPING:
                raise _revoked(job)
            old = [row.id for row in rows if row.id == held.replaces and row.state is ReplicaState.READY]
            if is_canary and model.revision != held.revision:
                await promote(tx, model)
            await record_served(tx, job.model, revision.number)
            version = await bump_counter(tx, ROUTES)
            await tx.execute(
                "UPDATE replicas SET state = 'ready', reason = '', address = $2, protocol = $3, token = $4,"
                " process_key = $5, backend = $6, backend_digest = $7, epoch = $8, generation = $9, capacity = $10,"
                " load_options = $11, pid = $12, endpoints = $13, continuation = $14, missed = 0, ready_at = now_ms(),"
                " last_used = now_ms(), changed_at = now_ms() WHERE id = $1",
                own.id,
                loaded.address,
                loaded.protocol,
                loaded.token,
                loaded.process_key,
                loaded.backend,
                loaded.backend_digest,
                loaded.epoch,
                version,
                loaded.capacity,
                loaded.load_options,
                loaded.pid,
                " ".join(loaded.endpoints),
                loaded.continuation,
            )
            await set_states(tx, old, ReplicaState.DRAINING, "replaced by another replica")
            footprint = FootprintKey(
                model=job.model,
                revision=held.revision,
                digest=loaded.backend_digest,
                node_class=loaded.node_class,
                fitted_bytes=round_fitted(own.memory_bytes, find_elastic(revision.config)),
                device=loaded.device,
            )
            await record_load_time(tx, footprint, loaded.load_ms)
            await clear_load_backoff(tx, job.model, node_id=own.node_id)
            await record_served_again(tx, job.model, node_id=own.node_id, replaced=held.replaces)
            await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)
            if held.stop_first_node is not None:
                await wake_loads(tx)  # of the same model: its next replica may be stopped now
            [ready] = await read_replicas(tx, "WHERE id = $1", own.id)
            return ready

        return await self._database.write(body)

    async def fail_on_node(self, job: LoadJob, error: str, *, draw: float, stop: bool, digest: str = "") -> None:
        """The load failed on its node: the node cools down, and the job is due at once, for another node.

        `stop`: a process may be running there; it is stopped before the capacity is free. `digest`: of the backend
        version that did not start."""

        async def body(tx: Tx) -> None:
            held = await _end_attempt(tx, job, error, stop=stop)
            if held is None:
                return
            await record_load_failure(tx, held, error[:MAX_ERROR_CHARS], draw=draw, digest=digest)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', replica_id = NULL, node_name = '', slot = NULL, owner = '',"
                " lease_until = 0, attempts = attempts + 1, last_error = $2, due_at = now_ms(), reason = $3,"
                " changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:MAX_ERROR_CHARS],
                f"trying another node: {brief_cause(error)[:MAX_REASON_CHARS]}",
            )

        await self._database.write(body)

    async def cool_down(self, job: LoadJob, decision: Decision, error: str, *, until_ms: int) -> None:
        """The load failed on every possible node; it is due again at `until_ms`."""

        async def body(tx: Tx) -> None:
            is_canary = await _lock_pending(tx, job)
            await lock_model(tx, job.model)
            held = await _held(tx, job)
            await record_decision(tx, job, decision)
            model = await find_model(tx, job.model)
            if is_canary and model is not None and await _fall_back(tx, held, model, error):
                return
            await tx.execute(
                "UPDATE load_jobs SET state = 'failed', last_error = $2, owner = '', lease_until = 0, due_at = $3,"
                " reason = '', changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:MAX_ERROR_CHARS],
                until_ms,
            )

        await self._database.write(body)

    async def fail(self, job: LoadJob, error: str, *, again_in_s: float, stop: bool) -> None:
        """The load failed for a reason that does not depend on the node. If the model was deleted, the job is too."""

        async def body(tx: Tx) -> None:
            if await _end_attempt(tx, job, error, stop=stop) is None:
                return
            await tx.execute(
                "UPDATE load_jobs SET state = 'failed', last_error = $2, attempts = attempts + 1, owner = '',"
                " lease_until = 0, due_at = now_ms() + $3, reason = '', changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:MAX_ERROR_CHARS],
                int(again_in_s * 1000),
            )

        await self._database.write(body)

    async def reschedule(self, job: LoadJob, *, again_in_s: float) -> None:
        """The job's node is gone, and its replica with it: the next owner places it again."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                lost = [
                    row for row in await lock_replicas(tx, [held.replica_id]) if row.state is not ReplicaState.READY
                ]
                await tx.execute_many("DELETE FROM replicas WHERE id = $1", [(row.id,) for row in lost])
                await record_revoked(tx, lost)
                await bump_counter(tx, ROUTES)
            await _clear_stop_first(tx, held)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', replica_id = NULL, node_name = '', slot = NULL, owner = '',"
                " reason = '', lease_until = 0, due_at = now_ms() + $2, changed_at = now_ms() WHERE id = $1",
                job.id,
                int(again_in_s * 1000),
            )

        await self._database.write(body)

    async def renew_revision(self, job: LoadJob, revision: str) -> None:
        """The model was edited: stop the replica that was started, and load the new revision instead."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                await set_states(tx, [held.replica_id], ReplicaState.STOPPING, "its model was changed")
            await _clear_stop_first(tx, held)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', revision = $2, replica_id = NULL, node_name = '', slot = NULL,"
                " attempts = 0, reason = '', owner = '', lease_until = 0, due_at = now_ms(), changed_at = now_ms()"
                " WHERE id = $1",
                job.id,
                revision,
            )

        await self._database.write(body)

    async def end(self, job: LoadJob, why: str) -> None:
        """The load is no longer needed: the model was changed, deleted or unloaded."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                await set_states(tx, [held.replica_id], ReplicaState.STOPPING, why)
            await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)

        await self._database.write(body)

    async def release(self, job: LoadJob) -> None:
        """This frontend shuts down; another one can continue the load at once."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE load_jobs SET lease_until = 0 WHERE id = $1 AND owner = $2 AND fence = $3",
                job.id,
                job.owner,
                job.fence,
            )

        await self._database.write(body)


async def _lock_pending(tx: Tx, job: LoadJob) -> bool:
    """Whether the job is the first load of a pending revision. Its result then changes the model, so the transaction
    takes the lock of model edits, before all other locks."""
    pending = await find_pending(tx, job.model)
    is_canary = pending is not None and pending.revision == job.revision
    if is_canary:
        await lock_counter(tx, MODELS)
    return is_canary


async def _end_attempt(tx: Tx, job: LoadJob, error: str, *, stop: bool) -> LoadJob | None:
    """Release what a failed attempt has reserved. Return the job if its failure must still be recorded: not if the
    model was deleted, which deletes the job, nor if the job continues with another revision."""
    is_canary = await _lock_pending(tx, job)
    await lock_model(tx, job.model)
    held = await _held(tx, job)
    await _release_replica(tx, held, error, stop=stop)
    await _clear_stop_first(tx, held)
    model = await find_model(tx, job.model)
    if model is None:
        await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)
        return None
    return None if is_canary and await _fall_back(tx, held, model, error) else held


async def _fall_back(tx: Tx, held: LoadJob, model: StoredModel, error: str) -> bool:
    """Record why a pending revision does not serve yet. If the previous replica was stopped first and does not serve
    either, the job continues with the current revision; returns whether it does."""
    if model.pending is None or model.pending.revision != held.revision:
        return False
    ready = {row.id for row in await read_replicas(tx, "WHERE model = $1 AND state = 'ready'", model.name)}
    still_serves = held.replaces in ready if held.replaces is not None else bool(ready)
    await record_pending_failure(tx, model.name, model.pending, brief_cause(error), held=not still_serves)
    await bump_counter(tx, MODELS)
    if still_serves:
        return False
    await tx.execute(
        "UPDATE load_jobs SET state = 'pending', revision = $2, cause = $3, replaces = NULL, replica_id = NULL,"
        " node_name = '', slot = NULL, owner = '', lease_until = 0, attempts = 0, last_error = '', reason = '',"
        " due_at = now_ms(), changed_at = now_ms() WHERE id = $1",
        held.id,
        model.revision,
        "the new revision failed to load; the previous one is restored",
    )
    return True


async def _must_wait_to_stop(tx: Tx, job: LoadJob, fleet: FleetView) -> bool:
    healthy = {node.id for node in fleet.nodes if node.status is NodeStatus.HEALTHY}
    others = await read_jobs(tx, "WHERE model = $1 AND stop_first_node IS NOT NULL AND id <> $2", job.model, job.id)
    jobs = [one for one in others if one.stop_first_node in healthy]
    stopped = {one.replaces for one in jobs}
    serving = sum(
        row.model == job.model and row.state is ReplicaState.READY and row.node_id in healthy and row.id not in stopped
        for row in fleet.replicas
    )
    scheduling = fleet.scheduling.get(job.model)
    kept = scheduling.kept if scheduling is not None else 1
    return len(jobs) >= stop_first_at_once(serving + len(jobs), kept=kept)


async def _clear_stop_first(tx: Tx, job: LoadJob) -> None:
    """If the replica that the job replaces still serves, nothing was stopped for the job."""
    await tx.execute(
        "UPDATE load_jobs SET stop_first_node = NULL WHERE id = $1"
        " AND replaces IN (SELECT id FROM replicas WHERE state = 'ready')",
        job.id,
    )


async def _check_place(tx: Tx, held: LoadJob) -> None:
    if held.replica_id is None:
        return
    rows = await read_replicas(tx, "WHERE id = $1", held.replica_id)
    if not rows or rows[0].state is ReplicaState.STOPPING:
        raise _revoked(held)


def _revoked(job: LoadJob) -> Conflict:
    return Conflict(f"the replica of {job.model} was revoked while it was loading")


async def _release_replica(tx: Tx, held: LoadJob, error: str, *, stop: bool) -> None:
    if held.replica_id is None:
        return
    if stop:
        why = f"its load failed: {brief_cause(error)[:MAX_REASON_CHARS]}"
        await set_states(tx, [held.replica_id], ReplicaState.STOPPING, why)
    else:
        await tx.execute("DELETE FROM replicas WHERE id = $1", held.replica_id)


async def _held(tx: Tx, job: LoadJob) -> LoadJob:
    """The job as stored, locked. Only the fence counts, which every claim raises: a lease that expired while the store
    was unavailable, and that nobody else took, still belongs to its owner."""
    row = await tx.fetch_one(
        f"{SELECT} WHERE id = $1 AND owner = $2 AND fence = $3 FOR UPDATE",
        job.id,
        job.owner,
        job.fence,
    )
    if row is None:
        raise Fenced(f"this frontend no longer holds the load of {job.model}: another one took it over, or it ended")
    return job_of(row)
