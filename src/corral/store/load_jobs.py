"""Load jobs: asked for once, carried out by whichever frontend holds the lease, with every write behind its fence."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import msgspec

from corral.core.cold import ColdPlan, plan_cold
from corral.core.errors import Conflict, Fenced
from corral.core.load_jobs import LoadProgress, LoadState
from corral.core.nodes import NodeStatus
from corral.core.placement import SCORE_NAMES, Decision, Need, Placed, Waiting, place
from corral.core.replicas import Replica, ReplicaState
from corral.core.scaling import Add, Scheduling
from corral.store.database import Database, Row, Tx
from corral.store.given_away import note_given_away
from corral.store.leases import Lease, check_held
from corral.store.load_memory import upsert_load_info
from corral.store.models import find_model
from corral.store.replica_rows import InFlight, insert_replica, lock_replicas, read_replicas, set_states
from corral.store.replicas import read_fleet, read_surroundings
from corral.store.scheduling import clear_unsatisfiable, find_scheduling, note_unsatisfiable
from corral.store.versions import ROUTES, bump_version
from corral.system import Ids

DECISIONS_KEPT = 20
NODES_EXPLAINED = 200
"""Of a larger herd a decision keeps the best and counts the rest."""


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


@dataclass(frozen=True, slots=True)
class Patience:
    """Nothing is loaded: why waiting is enough."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
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


_COLUMNS = tuple(column.name for column in fields(LoadJob))
_SELECT = "SELECT * FROM load_jobs"


def _job(row: Row) -> LoadJob:
    values = {column: row[column] for column in _COLUMNS}
    values["state"] = LoadState(values["state"])
    return LoadJob(**values)


async def read_jobs(tx: Tx, where: str = "", *args: object) -> list[LoadJob]:
    return [_job(row) for row in await tx.fetch(f"{_SELECT} {where} ORDER BY model, ordinal", *args)]


async def _held(tx: Tx, job: LoadJob) -> LoadJob:
    row = await tx.fetch_one(
        f"{_SELECT} WHERE id = $1 AND owner = $2 AND fence = $3 AND lease_until > now_ms() FOR UPDATE",
        job.id,
        job.owner,
        job.fence,
    )
    if row is None:
        raise Fenced(f"the load of {job.model} is not ours any more; another frontend has taken it over, or it ended")
    return _job(row)


class LoadJobStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # Asking

    async def ask(self, model: str, revision: str, *, cause: str, ids: Ids) -> LoadJob | Patience:
        """One load for all who ask: the one under way, or a new one. A failed one is answered until it is due again.
        None is made where a replica is there, or no more may be."""

        async def body(tx: Tx) -> LoadJob | Patience:
            await _lock_model(tx, model)
            jobs = await read_jobs(tx, "WHERE model = $1", model)
            for job in jobs:
                if job.active:
                    return job
            for job in jobs:
                if not await _is_due(tx, job) and job.revision == revision:
                    return job
            record = await find_scheduling(tx, model)
            wanted = record.scheduling if record is not None else Scheduling(model=model)
            rows = await read_replicas(tx, "WHERE model = $1", model)
            plan = plan_cold(revision, rows, wanted, await read_surroundings(tx)) if rows else ColdPlan()
            if plan.wait:
                return Patience(plan.wait)
            add = Add(why=cause, replaces=plan.replaces)
            return await _put(tx, model, revision, add, {job.ordinal: job for job in jobs}, ids)

        return await self._database.write(body)

    async def ask_more(
        self,
        model: str,
        revision: str,
        adds: Sequence[Add],
        *,
        ids: Ids,
        known: Collection[str] | None = None,
        lease: Lease | None = None,
    ) -> list[LoadJob]:
        """Each beside those under way, unless one of them is for the same node or takes the same one's place. `known`:
        the loads that were counted; one that somebody asked for since is one of those that were missing."""

        async def body(tx: Tx) -> list[LoadJob]:
            await check_held(tx, lease)
            await _lock_model(tx, model)
            jobs = {job.ordinal: job for job in await read_jobs(tx, "WHERE model = $1", model)}
            news = sum(job.active and job.id not in known for job in jobs.values()) if known is not None else 0
            made = []
            for add in adds:
                if any(_same(job, add) for job in jobs.values()):
                    continue
                if news and add.replaces is None and add.node_id is None:
                    news -= 1
                    continue
                job = await _put(tx, model, revision, add, jobs, ids)
                jobs[job.ordinal] = job
                made.append(job)
            return made

        return await self._database.write(body)

    # Reading

    async def read_all(self) -> list[LoadJob]:
        async def body(tx: Tx) -> list[LoadJob]:
            return await read_jobs(tx)

        return await self._database.read(body)

    async def read_of_model(self, model: str) -> list[LoadJob]:
        async def body(tx: Tx) -> list[LoadJob]:
            return await read_jobs(tx, "WHERE model = $1", model)

        return await self._database.read(body)

    # Carrying out

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
                claimed.append(_job(found))
            return claimed

        return await self._database.write(body)

    async def renew(self, job: LoadJob, *, lease_s: float) -> None:
        async def body(tx: Tx) -> None:
            await _held(tx, job)
            await tx.execute(
                "UPDATE load_jobs SET lease_until = now_ms() + $2 WHERE id = $1", job.id, int(lease_s * 1000)
            )

        await self._database.write(body)

    async def note_progress(self, job: LoadJob, progress: LoadProgress, *, lease_s: float) -> None:
        async def body(tx: Tx) -> None:
            await _held(tx, job)
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
            held = await _held(tx, job)
            await tx.fetch("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", outcome.node_id)
            fleet = await read_fleet(tx, in_flight)
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
            await _record_decision(tx, job, decision)
            await clear_unsatisfiable(tx, job.model)
            replica = replace(replica, generation=await bump_version(tx, ROUTES))
            await insert_replica(tx, replica)
            await tx.execute(
                "UPDATE load_jobs SET replica_id = $2, node_id = $3, node_name = $4, slot = $5, state = 'installing',"
                " reason = '', changed_at = now_ms() WHERE id = $1",
                job.id,
                replica.id,
                replica.node_id,
                rooms[0].name,
                replica.slot,
            )
            return replica

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
            held = await _held(tx, job)
            if held.reason != reason:
                await _record_decision(tx, job, decision)
            await note_unsatisfiable(tx, job.model, reason, for_ms=int(again_in_s * 1000))
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', reason = $2, owner = '', lease_until = 0,"
                " attempts = attempts + 1, due_at = now_ms() + $3, changed_at = now_ms() WHERE id = $1",
                job.id,
                reason,
                int(again_in_s * 1000),
            )

        await self._database.write(body)

    async def finish(self, job: LoadJob, loaded: Loaded) -> Replica:
        """The replica may get traffic from now on; the one it replaces gets none."""

        async def body(tx: Tx) -> Replica:
            held = await _held(tx, job)
            model = await find_model(tx, job.model)
            if model is None or model.revision != held.revision:
                raise Conflict(f"{job.model} was changed while it was loaded")
            rows = await lock_replicas(tx, [one for one in (held.replica_id, held.replaces) if one])
            mine = next((row for row in rows if row.id == held.replica_id), None)
            if mine is None or mine.state is ReplicaState.STOPPING:
                raise Conflict(f"the place for {job.model} was given away while it was loaded")
            old = [row.id for row in rows if row.id == held.replaces and row.state is ReplicaState.READY]
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
            await upsert_load_info(
                tx, job.model, loaded.backend, loaded.backend_digest, loaded.load_options, held.revision
            )
            await _note_load_time(tx, held, loaded)
            await tx.execute("DELETE FROM load_jobs WHERE id = $1", job.id)
            [ready] = await read_replicas(tx, "WHERE id = $1", mine.id)
            return ready

        return await self._database.write(body)

    async def fail(self, job: LoadJob, error: str, *, again_in_s: float, stop: bool) -> None:
        """`stop`: something may run on the node; it is ended before its place is free again."""

        async def body(tx: Tx) -> None:
            held = await _held(tx, job)
            if held.replica_id is not None:
                if stop:
                    await set_states(tx, [held.replica_id], ReplicaState.STOPPING, f"its load failed: {error[:300]}")
                else:
                    await tx.execute("DELETE FROM replicas WHERE id = $1", held.replica_id)
            await tx.execute(
                "UPDATE load_jobs SET state = 'failed', last_error = $2, attempts = attempts + 1, owner = '',"
                " lease_until = 0, due_at = now_ms() + $3, reason = '', changed_at = now_ms() WHERE id = $1",
                job.id,
                error[:4000],
                int(again_in_s * 1000),
            )

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
                await note_given_away(tx, lost)
                await bump_version(tx, ROUTES)
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', replica_id = NULL, node_name = '', slot = NULL, owner = '',"
                " lease_until = 0, due_at = now_ms() + $2, changed_at = now_ms() WHERE id = $1",
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
            await tx.execute(
                "UPDATE load_jobs SET state = 'pending', revision = $2, replica_id = NULL, node_name = '', slot = NULL,"
                " attempts = 0, owner = '', lease_until = 0, due_at = now_ms(), changed_at = now_ms() WHERE id = $1",
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

    async def cancel(self, model: str, *, why: str) -> None:
        """Of an unload: no load of the model goes on. Whoever works on one finds itself fenced."""

        async def body(tx: Tx) -> None:
            for job in await read_jobs(tx, "WHERE model = $1", model):
                if job.replica_id is not None:
                    await set_states(tx, [job.replica_id], ReplicaState.STOPPING, why)
            await tx.execute("DELETE FROM load_jobs WHERE model = $1", model)

        await self._database.write(body)

    async def forget(self, model: str, jobs: Sequence[str], *, lease: Lease | None = None) -> None:
        """They are not wanted any more. One that has got a place meanwhile goes on."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            await _lock_model(tx, model)
            await tx.execute_many(
                "DELETE FROM load_jobs WHERE id = $1"
                " AND (replica_id IS NULL OR replica_id NOT IN (SELECT id FROM replicas))",
                [(job,) for job in jobs],
            )
            if not await read_jobs(tx, "WHERE model = $1 AND state = 'pending'", model):
                await clear_unsatisfiable(tx, model)

        await self._database.write(body)

    async def wake(self) -> None:
        """There is new capacity: what waits in the queue is tried now."""

        async def body(tx: Tx) -> None:
            await tx.execute("UPDATE load_jobs SET due_at = now_ms() WHERE state = 'pending' AND due_at > now_ms()")
            await clear_unsatisfiable(tx)

        await self._database.write(body)


async def _put(tx: Tx, model: str, revision: str, add: Add, jobs: Mapping[int, LoadJob], ids: Ids) -> LoadJob:
    """A failed job that is due again is the first to be taken up, so that its attempts are not forgotten."""
    for ordinal, job in sorted(jobs.items()):
        if not job.active and await _is_due(tx, job):
            attempts = job.attempts if job.revision == revision else 0
            row = await tx.fetch_one(
                "UPDATE load_jobs SET state = 'pending', revision = $2, cause = $3, target_node = $4, replaces = $5,"
                " attempts = $6, replica_id = NULL, slot = NULL, reason = '',"
                " bytes_sent = 0, total_bytes = 0, file_index = 0, total_files = 0, eta_ms = NULL, owner = '',"
                " lease_until = 0, due_at = now_ms(), changed_at = now_ms() WHERE id = $1"
                " RETURNING *",
                job.id,
                revision,
                add.why,
                add.node_id,
                add.replaces,
                attempts,
            )
            assert row is not None
            return replace(_job(row), ordinal=ordinal)
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
    return _job(row)


async def _lock_model(tx: Tx, model: str) -> None:
    """Two who ask at the same moment take turns, so that the second finds the first one's load."""
    await tx.fetch_one("SELECT name FROM models WHERE name = $1 FOR UPDATE", model)


async def _is_due(tx: Tx, job: LoadJob) -> bool:
    return await tx.fetch_one("SELECT 1 AS due WHERE now_ms() >= CAST($1 AS BIGINT)", job.due_at) is not None


def _same(job: LoadJob, add: Add) -> bool:
    if not job.active:
        return False
    if add.replaces is not None:
        return job.replaces == add.replaces
    return add.node_id is not None and job.target_node == add.node_id


async def _record_decision(tx: Tx, job: LoadJob, decision: Decision) -> None:
    outcome = decision.outcome
    candidates = [
        {
            "node_id": candidate.node_id,
            "node": candidate.node_name,
            "verdict": candidate.verdict.value,
            "reason": candidate.reason,
            "score": dict(zip(SCORE_NAMES, candidate.score, strict=True)) if candidate.score else None,
        }
        for candidate in sorted(decision.candidates, key=lambda one: (one.verdict.value != "chosen", one.score is None))
    ]
    await tx.execute(
        "INSERT INTO decisions (model, job, at, cause, node_id, outcome, candidates)"
        " VALUES ($1, $2, now_ms(), $3, $4, $5, $6)",
        job.model,
        job.id,
        job.cause,
        outcome.node_id if isinstance(outcome, Placed) else None,
        msgspec.json.encode(
            {"placed": outcome} if isinstance(outcome, Placed) else {"waiting": outcome.reason}
        ).decode(),
        msgspec.json.encode({"nodes": len(candidates), "candidates": candidates[:NODES_EXPLAINED]}).decode(),
    )
    await tx.execute(
        "DELETE FROM decisions WHERE model = $1 AND id NOT IN"
        " (SELECT id FROM decisions WHERE model = $1 ORDER BY id DESC LIMIT $2)",
        job.model,
        DECISIONS_KEPT,
    )


async def _note_load_time(tx: Tx, job: LoadJob, loaded: Loaded) -> None:
    await tx.execute(
        "INSERT INTO footprints (model, revision, backend_digest, device, load_ms, measured_at)"
        " VALUES ($1, $2, $3, $4, $5, now_ms()) ON CONFLICT (model, revision, backend_digest, device)"
        " DO UPDATE SET load_ms = excluded.load_ms, measured_at = excluded.measured_at",
        job.model,
        job.revision,
        loaded.backend_digest,
        loaded.device,
        loaded.load_ms,
    )
