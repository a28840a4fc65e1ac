"""Load jobs as whoever carries them out sees them: claimed by lease, and every write behind the fence."""

from dataclasses import dataclass, field, replace

from corral.core.backends.rollout import stop_first_at_once
from corral.core.causes import brief_cause
from corral.core.errors import Conflict, Fenced
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.load_jobs import LoadProgress
from corral.core.replicas.placement import Decision, Need, Placed, Waiting, place
from corral.core.replicas.replica import Replica, ReplicaState
from corral.store.engine.counters import MODELS, ROUTES, bump_version, lock_version
from corral.store.engine.database import Database, Tx
from corral.store.engine.sql import places
from corral.store.serving.decisions import record_decision
from corral.store.serving.load_backoff import clear_setbacks, note_setback, wake_loads
from corral.store.serving.load_job_rows import SELECT, LoadJob, job_of, read_jobs
from corral.store.serving.load_memory import note_load_time
from corral.store.serving.models import StoredModel, find_model, lock_model, promote
from corral.store.serving.pending_models import find_pending, note_pending_failed, note_pending_waits
from corral.store.serving.replica_rows import InFlight, insert_replica, lock_replicas, read_replicas, set_states
from corral.store.serving.replicas import FleetView, read_fleet
from corral.store.serving.revoked_processes import record_revoked
from corral.store.serving.scheduling import clear_unsatisfiable, note_unsatisfiable
from corral.store.serving.version_switches import note_served_again, note_stopped_first
from corral.system import Ids

ERROR_MOST_CHARS = 4000
REASON_MOST_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoaded:
    """What a load that succeeded found out."""

    address: str
    protocol: str
    token: str = field(repr=False)
    process_key: str
    backend: str
    backend_digest: str
    epoch: int
    pid: int | None
    capacity: int | None
    load_options: str
    load_ms: int
    device: str


class LoadClaimStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, owner: str, *, lease_s: float, most: int) -> list[LoadJob]:
        """Those that are due and that nobody works on. An owner that died has them taken away when its lease ends."""

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
        """Conflict tells that its place was given away meanwhile."""

        async def body(tx: Tx) -> None:
            await _check_place(tx, await _held(tx, job))
            await tx.execute(
                "UPDATE load_jobs SET lease_until = now_ms() + $2 WHERE id = $1", job.id, int(lease_s * 1000)
            )

        await self._database.write(body)

    async def hold(self, job: LoadJob, *, lease_s: float) -> None:
        """Nobody takes it over for this long, whatever became of its place."""

        async def body(tx: Tx) -> None:
            await _held(tx, job)
            await tx.execute(
                "UPDATE load_jobs SET lease_until = now_ms() + $2 WHERE id = $1", job.id, int(lease_s * 1000)
            )

        await self._database.write(body)

    async def note_progress(self, job: LoadJob, progress: LoadProgress, *, lease_s: float) -> None:
        """As `renew`."""

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
        """Takes the place. Judged once more on the locked node: whoever came first has it, and Conflict tells."""
        outcome = decision.outcome
        assert isinstance(outcome, Placed)
        identity = ids.uuid()

        async def body(tx: Tx) -> Replica:
            if need.instead_of is not None:
                await lock_model(tx, job.model)
            held = await _held(tx, job)
            if held.replica_id is not None:
                # We asked before and did not hear that it was done.
                found = await read_replicas(tx, "WHERE id = $1", held.replica_id)
                if found and found[0].state is not ReplicaState.STOPPING:
                    return found[0]
            await tx.fetch("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", outcome.node_id)
            fleet = await read_fleet(tx, in_flight)
            if need.instead_of is not None and await _must_wait_to_stop(tx, job, fleet):
                raise Conflict(f"other replicas of {job.model} are being replaced first")
            rooms = [room for room in fleet.rooms if room.id == outcome.node_id]
            again = place(need, rooms).outcome
            if not isinstance(again, Placed) or again.evict:
                raise Conflict(f"the place for {job.model} was taken meanwhile")
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
            # Last of all, and short: everybody who changes routes takes turns here.
            await record_decision(tx, job, decision)
            await clear_unsatisfiable(tx, job.model)
            replica = replace(replica, generation=await bump_version(tx, ROUTES))
            await insert_replica(tx, replica)
            stopped = await read_replicas(tx, "WHERE id = $1", need.instead_of) if need.instead_of is not None else []
            await tx.execute(
                "UPDATE load_jobs SET replica_id = $2, node_id = $3, node_name = $4, slot = $5, state = 'pending',"
                " reason = '', stops_first_on = coalesce($6, stops_first_on),"
                " stops_first_backend = coalesce($7, stops_first_backend), changed_at = now_ms() WHERE id = $1",
                job.id,
                replica.id,
                replica.node_id,
                rooms[0].name,
                replica.slot,
                replica.node_id if need.instead_of is not None else None,
                stopped[0].backend if stopped else None,
            )
            return replica

        return await self._database.write(body)

    async def must_wait_to_stop(self, job: LoadJob, fleet: FleetView) -> bool:
        """Too many of the model's replicas have been stopped already for successors that do not serve yet."""

        async def body(tx: Tx) -> bool:
            return await _must_wait_to_stop(tx, job, fleet)

        return await self._database.read(body)

    async def stop_first(self, job: LoadJob, why: str) -> Replica | None:
        """Its place is there but for the memory of the one it replaces, which takes nothing new from now on. None when
        that one is gone."""

        async def body(tx: Tx) -> Replica | None:
            held = await _held(tx, job)
            await _check_place(tx, held)
            rows = await lock_replicas(tx, [held.replaces] if held.replaces else [])
            if rows and rows[0].state is ReplicaState.READY:
                await note_stopped_first(tx, rows[0])
                await set_states(tx, [rows[0].id], ReplicaState.DRAINING, why)
                await bump_version(tx, ROUTES)
            return rows[0] if rows else None

        return await self._database.write(body)

    async def evict(self, job: LoadJob, need: Need, decision: Decision, in_flight: InFlight) -> list[Replica]:
        """Others are to make room. Judged once more while nobody else scales their models: one that serves somebody by
        now, or is needed, stays, and Conflict tells."""
        outcome = decision.outcome
        assert isinstance(outcome, Placed)

        async def body(tx: Tx) -> list[Replica]:
            chosen = await read_replicas(tx, f"WHERE id IN ({places(len(outcome.evict))})", *outcome.evict)
            for model in sorted({row.model for row in chosen}):
                await lock_model(tx, model)
            await _held(tx, job)
            rooms = [room for room in (await read_fleet(tx, in_flight)).rooms if room.id == outcome.node_id]
            again = place(need, rooms).outcome
            if not isinstance(again, Placed) or not {*again.evict} <= {*outcome.evict}:
                raise Conflict(f"what was to make room for {job.model} has to stay by now")
            if again.evict:
                await record_decision(tx, job, replace(decision, outcome=again))
                await set_states(tx, again.evict, ReplicaState.STOPPING, f"it makes room for {job.model}")
                await bump_version(tx, ROUTES)
            return await lock_replicas(tx, again.evict)

        return await self._database.write(body)

    async def enlarge(self, job: LoadJob, need: Need, in_flight: InFlight) -> str:
        """What it takes became known only at its place: the reservation follows if there is room, else why there is
        not."""

        async def body(tx: Tx) -> str:
            held = await _held(tx, job)
            await tx.fetch("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", held.node_id)
            rooms = [
                replace(
                    room,
                    status=NodeStatus.HEALTHY,
                    conditions=(),  # the load has its place; its own download may have filled the disk
                    low_disk="",
                    replicas=tuple(one for one in room.replicas if one.id != held.replica_id),
                )
                for room in (await read_fleet(tx, in_flight)).rooms
                if room.id == held.node_id
            ]
            outcome = place(need, rooms).outcome
            if isinstance(outcome, Waiting):
                return outcome.reason
            if outcome.evict:
                return "others have to make room for it first"
            await tx.execute(
                "UPDATE replicas SET memory_bytes = $2 WHERE id = $1", held.replica_id, outcome.memory_bytes
            )
            return ""

        return await self._database.write(body)

    async def wait(self, job: LoadJob, decision: Decision, reason: str, *, again_in_s: float) -> None:
        """No place: it stays in the queue with the reason, until there is room or the time is over."""

        async def body(tx: Tx) -> None:
            is_trial = await _lock_trial(tx, job)
            held = await _held(tx, job)
            if held.reason != reason:
                await record_decision(tx, job, decision)
            await note_unsatisfiable(tx, job.model, reason, for_ms=int(again_in_s * 1000))
            if is_trial and held.reason != reason:
                await note_pending_waits(tx, job.model, held.revision, reason)
                await bump_version(tx, MODELS)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', reason = $2, owner = '', lease_until = 0,"
                " attempts = attempts + 1, due_at = now_ms() + $3, changed_at = now_ms() WHERE id = $1",
                job.id,
                reason,
                int(again_in_s * 1000),
            )

        await self._database.write(body)

    async def finish(self, job: LoadJob, loaded: ReplicaLoaded) -> Replica:
        """The replica may get traffic from now on; the one it replaces gets none. The first one of a pending revision
        makes that the current one."""

        async def body(tx: Tx) -> Replica:
            is_trial = await _lock_trial(tx, job)
            await lock_model(tx, job.model)
            held = await _held(tx, job)
            model = await find_model(tx, job.model)
            if model is None or model.of_revision(held.revision) is None:
                raise Conflict(f"{job.model} was changed while it was loaded")
            rows = await lock_replicas(tx, [one for one in (held.replica_id, held.replaces) if one])
            mine = next((row for row in rows if row.id == held.replica_id), None)
            if mine is None or mine.state is ReplicaState.STOPPING:
                raise _given_away(job)
            old = [row.id for row in rows if row.id == held.replaces and row.state is ReplicaState.READY]
            if is_trial and model.revision != held.revision:
                await promote(tx, model)
            version = await bump_version(tx, ROUTES)
            await tx.execute(
                "UPDATE replicas SET state = 'ready', reason = '', address = $2, protocol = $3, token = $4,"
                " process_key = $5, backend = $6, backend_digest = $7, epoch = $8, generation = $9, capacity = $10,"
                " load_options = $11, pid = $12, missed = 0, ready_at = now_ms(), last_used = now_ms(),"
                " changed_at = now_ms() WHERE id = $1",
                mine.id,
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
            )
            await set_states(tx, old, ReplicaState.DRAINING, "another has taken its place")
            await note_load_time(tx, job.model, held.revision, loaded.backend_digest, loaded.device, loaded.load_ms)
            await clear_setbacks(tx, job.model, node_id=mine.node_id)
            await note_served_again(tx, job.model, node_id=mine.node_id, replaced=held.replaces)
            await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)
            if held.stops_first_on is not None:
                await wake_loads(tx)  # of the same model: the next one may be stopped
            [ready] = await read_replicas(tx, "WHERE id = $1", mine.id)
            return ready

        return await self._database.write(body)

    async def fail_here(self, job: LoadJob, error: str, *, draw: float, stop: bool, digest: str = "") -> None:
        """The machine could not: it rests, and the load looks for another at once. `stop`: something may run there; it
        is ended before its place is free again. `digest`: of the version of its backend that did not start."""

        async def body(tx: Tx) -> None:
            is_trial = await _lock_trial(tx, job)
            await lock_model(tx, job.model)
            held = await _held(tx, job)
            await _give_place_back(tx, held, error, stop=stop)
            await _forget_unstopped(tx, held)
            model = await find_model(tx, job.model)
            if model is None:
                await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)
                return
            if is_trial and await _goes_back(tx, held, model, error):
                return
            await note_setback(tx, held, error[:ERROR_MOST_CHARS], draw=draw, digest=digest)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', replica_id = NULL, node_name = '', slot = NULL, owner = '',"
                " lease_until = 0, attempts = attempts + 1, last_error = $2, due_at = now_ms(), reason = $3,"
                " changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:ERROR_MOST_CHARS],
                f"another machine is looked for: {brief_cause(error)[:REASON_MOST_CHARS]}",
            )

        await self._database.write(body)

    async def rest(self, job: LoadJob, decision: Decision, error: str, *, until_ms: int) -> None:
        """It failed wherever it could be tried now."""

        async def body(tx: Tx) -> None:
            is_trial = await _lock_trial(tx, job)
            await lock_model(tx, job.model)
            held = await _held(tx, job)
            await record_decision(tx, job, decision)
            model = await find_model(tx, job.model)
            if is_trial and model is not None and await _goes_back(tx, held, model, error):
                return
            await tx.execute(
                "UPDATE load_jobs SET state = 'failed', last_error = $2, owner = '', lease_until = 0, due_at = $3,"
                " reason = '', changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:ERROR_MOST_CHARS],
                until_ms,
            )

        await self._database.write(body)

    async def fail(self, job: LoadJob, error: str, *, again_in_s: float, stop: bool) -> None:
        """For a reason that has nothing to do with the machine. A load whose model was deleted meanwhile leaves nothing
        to be told of."""

        async def body(tx: Tx) -> None:
            is_trial = await _lock_trial(tx, job)
            await lock_model(tx, job.model)
            held = await _held(tx, job)
            await _give_place_back(tx, held, error, stop=stop)
            await _forget_unstopped(tx, held)
            model = await find_model(tx, job.model)
            if is_trial and model is not None and await _goes_back(tx, held, model, error):
                return
            await tx.execute(
                "UPDATE load_jobs SET state = 'failed', last_error = $2, attempts = attempts + 1, owner = '',"
                " lease_until = 0, due_at = now_ms() + $3, reason = '', changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:ERROR_MOST_CHARS],
                int(again_in_s * 1000),
            )
            if model is None:
                await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)

        await self._database.write(body)

    async def unplace(self, job: LoadJob, *, again_in_s: float) -> None:
        """Its node is gone, and the place with it: the next owner looks for another."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                lost = [
                    row for row in await lock_replicas(tx, [held.replica_id]) if row.state is not ReplicaState.READY
                ]
                await tx.execute_many("DELETE FROM replicas WHERE id = $1", [(row.id,) for row in lost])
                await record_revoked(tx, lost)
                await bump_version(tx, ROUTES)
            await _forget_unstopped(tx, held)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', replica_id = NULL, node_name = '', slot = NULL, owner = '',"
                " reason = '', lease_until = 0, due_at = now_ms() + $2, changed_at = now_ms() WHERE id = $1",
                job.id,
                int(again_in_s * 1000),
            )

        await self._database.write(body)

    async def renew_revision(self, job: LoadJob, revision: str) -> None:
        """The model was edited: what was begun ends, and the new configuration is loaded instead."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                await set_states(tx, [held.replica_id], ReplicaState.STOPPING, "its model was changed")
            await _forget_unstopped(tx, held)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', revision = $2, replica_id = NULL, node_name = '', slot = NULL,"
                " attempts = 0, reason = '', owner = '', lease_until = 0, due_at = now_ms(), changed_at = now_ms()"
                " WHERE id = $1",
                job.id,
                revision,
            )

        await self._database.write(body)

    async def give_up(self, job: LoadJob, why: str) -> None:
        """Nobody wants it any more: the model was changed, deleted or unloaded."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                await set_states(tx, [held.replica_id], ReplicaState.STOPPING, why)
            await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)

        await self._database.write(body)

    async def release(self, job: LoadJob) -> None:
        """This frontend leaves; another goes on at once."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE load_jobs SET lease_until = 0 WHERE id = $1 AND owner = $2 AND fence = $3",
                job.id,
                job.owner,
                job.fence,
            )

        await self._database.write(body)


async def _lock_trial(tx: Tx, job: LoadJob) -> bool:
    """Whether it is to prove a pending revision. Then what it tells of that is told in turn with whoever edits models,
    and that lock comes before all others."""
    pending = await find_pending(tx, job.model)
    is_trial = pending is not None and pending.revision == job.revision
    if is_trial:
        await lock_version(tx, MODELS)
    return is_trial


async def _goes_back(tx: Tx, held: LoadJob, model: StoredModel, error: str) -> bool:
    """Of a pending revision it is noted why it does not serve yet. Where the replica before does not serve either,
    because it had to make room, the load goes on with the revision that did."""
    if model.pending is None or model.pending.revision != held.revision:
        return False
    ready = {row.id for row in await read_replicas(tx, "WHERE model = $1 AND state = 'ready'", model.name)}
    serves_on = held.replaces in ready if held.replaces is not None else bool(ready)
    await note_pending_failed(tx, model.name, held.revision, brief_cause(error), held=not serves_on)
    await bump_version(tx, MODELS)
    if serves_on:
        return False
    await tx.execute(
        "UPDATE load_jobs SET state = 'pending', revision = $2, cause = $3, replaces = NULL, replica_id = NULL,"
        " node_name = '', slot = NULL, owner = '', lease_until = 0, attempts = 0, last_error = '', reason = '',"
        " due_at = now_ms(), changed_at = now_ms() WHERE id = $1",
        held.id,
        model.revision,
        "its new revision could not be loaded; the one before serves again",
    )
    return True


async def _must_wait_to_stop(tx: Tx, job: LoadJob, fleet: FleetView) -> bool:
    healthy = {node.id for node in fleet.nodes if node.status is NodeStatus.HEALTHY}
    others = await read_jobs(tx, "WHERE model = $1 AND stops_first_on IS NOT NULL AND id <> $2", job.model, job.id)
    jobs = [one for one in others if one.stops_first_on in healthy]
    stopped = {one.replaces for one in jobs}
    serving = sum(
        row.model == job.model and row.state is ReplicaState.READY and row.node_id in healthy and row.id not in stopped
        for row in fleet.replicas
    )
    wanted = fleet.scheduling.get(job.model)
    kept = wanted.kept if wanted is not None else 1
    return len(jobs) >= stop_first_at_once(serving + len(jobs), kept=kept)


async def _forget_unstopped(tx: Tx, job: LoadJob) -> None:
    """The place was given back before the replica it replaces took any harm: nothing was stopped."""
    await tx.execute(
        "UPDATE load_jobs SET stops_first_on = NULL WHERE id = $1"
        " AND replaces IN (SELECT id FROM replicas WHERE state = 'ready')",
        job.id,
    )


async def _check_place(tx: Tx, held: LoadJob) -> None:
    if held.replica_id is None:
        return
    rows = await read_replicas(tx, "WHERE id = $1", held.replica_id)
    if not rows or rows[0].state is ReplicaState.STOPPING:
        raise _given_away(held)


def _given_away(job: LoadJob) -> Conflict:
    return Conflict(f"the place for {job.model} was given away while it was loaded")


async def _give_place_back(tx: Tx, held: LoadJob, error: str, *, stop: bool) -> None:
    if held.replica_id is None:
        return
    if stop:
        why = f"its load failed: {brief_cause(error)[:REASON_MOST_CHARS]}"
        await set_states(tx, [held.replica_id], ReplicaState.STOPPING, why)
    else:
        await tx.execute("DELETE FROM replicas WHERE id = $1", held.replica_id)


async def _held(tx: Tx, job: LoadJob) -> LoadJob:
    """By the fence alone, which every claim moves: a lease that ran out while the store was away, and that nobody took,
    is still its owner's."""
    row = await tx.fetch_one(
        f"{SELECT} WHERE id = $1 AND owner = $2 AND fence = $3 FOR UPDATE",
        job.id,
        job.owner,
        job.fence,
    )
    if row is None:
        raise Fenced(f"the load of {job.model} is not ours any more; another frontend has taken it over, or it ended")
    return job_of(row)
