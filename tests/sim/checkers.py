"""What must hold: after every commit, and when all is quiet again."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corral.core.replicas.scaling import Add
from corral.store.engine.database import Tx
from corral.store.serving.load_job_rows import LoadJob, read_jobs
from corral.store.serving.load_jobs import LoadJobStore, put_job
from corral.store.stores import Stores

if TYPE_CHECKING:
    from sim.ports import HostDatabase
    from sim.world import World

SETTLE_S = 60.0
"""A wish that has just changed is not kept yet."""


class Broken(AssertionError):
    """An invariant does not hold; the seed replays it."""


class Checkers:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._ready: dict[str, tuple[str, str, int | None]] = {}
        self._changed_s: dict[str, float] = {}
        self.commits = 0
        self._told: dict[str, str] = {}
        self.broken: Broken | None = None

    def wanted_changed(self, model: str) -> None:
        self._changed_s[model] = self._world.now_s()

    def raise_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def after_commit(self) -> None:
        self.commits += 1
        database = self._world.database
        if not database.peek("SELECT 1 FROM sqlite_master WHERE name = 'load_jobs'"):
            return
        rows = database.peek(
            "SELECT r.id, r.node_id, r.model, r.state, r.process_key, r.pid, r.revision = m.revision AS current"
            " FROM replicas r JOIN models m ON m.name = r.model"
        )
        jobs = database.peek("SELECT id, model, cause, replaces, replica_id, state, owner, fence FROM load_jobs")
        self._tell(rows, jobs)
        try:
            self._no_false_reap(rows)
            self._never_above_maximum(rows, jobs)
            self._one_load_for_a_place(jobs)
        except Broken as broken:  # not raised into the code that is tested: its loops are made to survive
            if self.broken is None:
                self._world.note(f"BROKEN {broken}")
                self.broken = broken

    def _tell(self, rows: list[Any], jobs: list[Any]) -> None:
        """The history, for whoever has to understand a broken run."""
        now = {row["id"]: f"{row['process_key'] or row['model']} {row['id'][:4]} {row['state']}" for row in rows}
        now |= {
            job["id"]: f"load of {job['model']} {job['id'][:4]} {job['state']} for {(job['replica_id'] or '-')[:4]}"
            f" because {job['cause']}"
            for job in jobs
        }
        for identity in sorted(now.keys() | self._told.keys()):
            if now.get(identity) != self._told.get(identity):
                self._world.note(now.get(identity) or f"gone: {self._told[identity]}")
        self._told = now

    def _no_false_reap(self, rows: list[Any]) -> None:
        """INV-20: a process that ran all the time on a machine that was there all the time keeps its row."""
        world = self._world
        now = {row["id"]: (row["node_id"], row["process_key"], row["pid"]) for row in rows}
        states = {row["id"]: row["state"] for row in rows}
        for identity, (node_id, key, pid) in self._ready.items():
            if identity in now:
                continue
            worker = world.find_worker(node_id)
            process = worker.processes.get(key) if worker is not None else None
            if worker is None or process is None or not worker.alive or not worker.linked:
                continue
            well_s = world.now_s() - max(worker.well_since_s, process.since_s)
            if process.state == "ready" and process.pid == pid and well_s > SETTLE_S:
                raise Broken(f"the row of {key} on {worker.name} is gone, but it has run for {well_s:.0f} s")
        self._ready = {identity: now[identity] for identity in now if states[identity] == "ready"}

    def _never_above_maximum(self, rows: list[Any], jobs: list[Any]) -> None:
        """INV-26 for what requests and repairs load; a successor is beside the one it replaces for a while."""
        for limit in self._world.database.peek("SELECT model, max_replicas FROM scheduling WHERE max_replicas > 0"):
            model = limit["model"]
            if self._world.now_s() - self._changed_s.get(model, 0) < SETTLE_S:
                continue
            successors = sum(job["model"] == model and job["replaces"] is not None for job in jobs)
            there = [
                row
                for row in rows
                if row["model"] == model and row["current"] and row["state"] in ("starting", "loading", "ready")
            ]
            if len(there) > limit["max_replicas"] + successors:
                raise Broken(f"{model} has {len(there)} replicas and may have {limit['max_replicas']}")

    def _one_load_for_a_place(self, jobs: list[Any]) -> None:
        """INV-33."""
        places = [job["replica_id"] for job in jobs if job["replica_id"] is not None and job["state"] != "failed"]
        if len(places) != len(set(places)):
            raise Broken("two loads work on one replica")

    async def at_rest(self, stores: Stores) -> None:
        """INV-12, 18, 19, 26, 27, 33: what is wanted is what runs, and nothing else."""
        self.raise_broken()
        world = self._world
        rows = await stores.replicas.read_all()
        models = {model.name: model for model in await stores.models.read_all()}
        strays = [row for row in rows if row.state.value != "ready" or row.revision != models[row.model].revision]
        if strays:
            raise Broken(f"not settled: {strays}")
        if left := [job for job in await stores.load_jobs.read_all() if job.active]:
            raise Broken(f"loads are under way: {left}")
        wanted = set()
        for row in rows:
            worker = world.find_worker(row.node_id)
            process = worker.processes.get(row.process_key) if worker is not None else None
            if worker is None or process is None or (process.pid, process.token) != (row.pid, row.token):
                where = worker.name if worker is not None else "no machine"
                raise Broken(f"{row.process_key} on {where}: the row leads to {row.pid}, not to {process}")
            wanted.add((worker.name, row.process_key))
        running = {(worker.name, key) for worker in world.workers for key in worker.processes}
        if running != wanted:
            raise Broken(f"these run and nobody wants them: {sorted(running - wanted)}")
        for record in await stores.scheduling.read_all():
            limits = record.scheduling
            count = sum(row.model == limits.model for row in rows)
            if not limits.min_replicas <= count <= limits.max_replicas:
                raise Broken(f"{limits.model} has {count} replicas, wanted {limits.min_replicas}-{limits.max_replicas}")
        routes = (await stores.replicas.read_routes()).routes
        routed = sum(len(route.replicas) for route in routes)
        if routed != len(rows):
            raise Broken(f"{routed} of {len(rows)} replicas get requests")

    # Safeguards taken away, to see that somebody notices

    def ablate(self, stores: Stores, database: "HostDatabase") -> None:
        match self._world.ablate:
            case "ask":
                stores.load_jobs = _Eager(database)
            case "table":
                stores.observed.read_tables = _nothing_runs(stores)  # type: ignore[method-assign]  # taken away on purpose
            case other:
                raise AssertionError(f"there is no safeguard {other!r}")


class _Eager(LoadJobStore):
    """Loads for whoever asks, whatever is there already."""

    async def request_load(self, model: str, revision: str, *, cause: str, ids: Any) -> LoadJob:
        async def body(tx: Tx) -> LoadJob:
            jobs = {job.ordinal: job for job in await read_jobs(tx, "WHERE model = $1", model)}
            return await put_job(tx, model, revision, Add(why=cause), jobs, ids)

        return await self._database.write(body)


def _nothing_runs(stores: Stores) -> Any:
    """An error taken for an empty table."""
    read = stores.observed.read_tables

    async def read_tables() -> Any:
        return {node: replace(table, processes=()) for node, table in (await read()).items()}

    return read_tables
