"""Loads of the whole cluster, single-flight: requested once, run by one frontend, awaited by any number of requests."""

import asyncio
from dataclasses import dataclass, replace

import structlog

from corral.bus.client import BusMessage
from corral.bus.messages import InstallProgress, decode
from corral.controller.loads.localai import RemoteStaging
from corral.controller.loads.needs import find_deletions, find_need
from corral.controller.loads.ports import LoadServices
from corral.controller.loads.run import LoadRun
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.errors import Conflict, CorralError, OutcomeUnknown, Unavailable
from corral.core.models.load_plan import backend_of
from corral.core.nodes.node import Node, NodeStatus
from corral.core.replicas.attached import NOT_STARTED, describe_away
from corral.core.replicas.availability import Availability
from corral.core.replicas.load_jobs import ACTIVE, LEASE_S, LoadProgress, LoadState
from corral.core.replicas.obstacles import find_obstacle
from corral.core.replicas.on_demand import check_limit
from corral.core.replicas.placement import Waiting, count_placements, place
from corral.core.replicas.replica import COMING, ReplicaState
from corral.core.replicas.routing import RouteSnapshot
from corral.core.replicas.scaling import Add, Scheduling
from corral.store.engine.database import StoreConflict
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.load_jobs import NoLoadNeeded
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import ReplicaStatus
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

CLAIM_EVERY_S = 1.0
MAX_CONCURRENT = 64
WATCH_EVERY_S = 0.5
ROUNDS = 3
MAX_CRASHES = 5
TRANSIENT = (Unavailable, OutcomeUnknown, StoreConflict)
"""The store or another service is unavailable for now."""


class LoadRunner:
    """Claims due load jobs and runs each in a task of its own."""

    def __init__(self, runtime: ReconcileRuntime, services: LoadServices) -> None:
        self.loop = Reconciler("loads", self._claim, runtime, every_s=CLAIM_EVERY_S)
        self._owner, self._services = runtime.holder, services
        self._runs: dict[str, LoadRun] = {}
        self._tasks: asyncio.TaskGroup

    def loads(self, model: str) -> bool:
        """Whether a load of the model runs here."""
        return any(run.model == model for run in self._runs.values())

    async def on_progress(self, message: BusMessage) -> None:
        """Progress of installs and downloads on nodes; that of our own loads is passed on to them."""
        if not self._runs:
            return
        progress = decode(message.data, InstallProgress)
        run = self._runs.get(progress.op_id)
        if run is not None:
            run.on_progress(progress)

    async def run(self) -> None:
        """Running loads continue when a claim fails."""
        async with asyncio.TaskGroup() as self._tasks:
            await self.loop.run()

    async def _claim(self, _run: ReconcileRun) -> None:
        free = MAX_CONCURRENT - len(self._runs)
        if free <= 0:
            return
        for job in await self._services.stores.load_claims.claim(self._owner, lease_s=LEASE_S, most=free):
            run = self._runs[job.id] = LoadRun(job, self._services)
            self._tasks.create_task(self._run_job(job, run), name=f"load {job.model}")

    async def _run_job(self, job: LoadJob, run: LoadRun) -> None:
        try:
            await run.run()
        except CorralError as error:
            log.warning("load.interrupted", model=job.model, error=str(error))
        except Exception:  # a bug in one load must not end the others
            log.exception("load.crashed", model=job.model)
        finally:
            if self._runs.get(job.id) is run:
                del self._runs[job.id]
            self.loop.notify()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutcome:
    """The end of a wait for a model. A replica is ready when there is neither a cause nor progress."""

    cause: str | None = None
    """Why the load failed."""
    is_lasting: bool = False
    """Whether another request would fail for the same cause: only a change of the fleet or of the model helps."""
    progress: LoadProgress | None = None
    """How far the load is that is still running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFit:
    replicas: int
    reason: str
    """Why no more fit; empty when all do."""


class _Watch:
    """One poll of the store for all requests on this frontend that wait for one model."""

    def __init__(self, model: str) -> None:
        self.progress = LoadProgress(model=model, state=LoadState.PENDING)
        self.outcome: asyncio.Future[LoadOutcome] = asyncio.get_running_loop().create_future()
        self.notified = asyncio.Event()
        self.waiters = 0
        self.examined: frozenset[str] = frozenset()
        """What the loads waited for when it was last examined whether waiting helps."""


class LoadCoordinator:
    """Requests loads, and waits for them."""

    def __init__(self, services: LoadServices, runner: LoadRunner, remote: RemoteStaging) -> None:
        self._services, self._runner, self._remote = services, runner, remote
        self._watches: dict[str, _Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def notify(self) -> None:
        """Routes changed: poll now."""
        for watch in self._watches.values():
            watch.notified.set()

    async def load(self, model: str, *, within_s: float, cause: str = "a request") -> LoadOutcome:
        """Waits for a ready replica. All waiters of one model share one load and one watch; a waiter that leaves stops
        neither."""
        watch = self._watches.get(model)
        if watch is None:
            watch = self._watches[model] = _Watch(model)
            task = asyncio.create_task(self._follow(model, watch, cause), name=f"watch {model}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        watch.waiters += 1
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(watch.outcome)
        except TimeoutError:
            return LoadOutcome(progress=watch.progress)
        finally:
            watch.waiters -= 1

    def progress(self, model: str) -> LoadProgress | None:
        """Of the load that requests wait for on this frontend."""
        watch = self._watches.get(model)
        return watch.progress if watch is not None else None

    async def load_on(self, name: str, node: Node, *, within_s: float) -> LoadOutcome:
        """Waits for a replica on the node that someone chose. Raises Conflict when that node cannot take the model: it
        never waits for capacity, since another node can be chosen."""
        read_model, clock = self._services.stores.models.read, self._services.clock
        progress = await self._step_on(await read_model(name), node)
        self._runner.loop.notify()
        until_s = clock.monotonic_s() + within_s
        while progress is not None and (left_s := until_s - clock.monotonic_s()) > 0:
            await asyncio.sleep(min(WATCH_EVERY_S, left_s))
            try:
                progress = await self._step_on(await read_model(name), node)
            except TRANSIENT as error:  # the load has begun and continues
                log.info("load.poll_failed", model=name, error=str(error))
        return LoadOutcome(progress=progress)

    async def fit(self, name: str, requested: int) -> ReplicaFit:
        """How many of `requested` replicas the present nodes can run at the same time."""
        stores = self._services.stores
        model = await stores.models.read(name)
        if model.config.is_attached:
            return ReplicaFit(replicas=0, reason=NOT_STARTED)
        fleet = await stores.replicas.read_fleet(self._services.traffic.total)
        need = await find_need(self._services, model, fleet)
        healthy = {node.id for node in fleet.nodes if node.status is NodeStatus.HEALTHY}
        kept = (ReplicaState.READY, *COMING)
        there = sum(row.model == model.name and row.state in kept and row.node_id in healthy for row in fleet.replicas)
        more, reason = count_placements(need, fleet.capacities, requested - there)
        return ReplicaFit(replicas=min(requested, there + more), reason=reason)

    async def status(self, model: str) -> LoadProgress | None:
        """A load that the store does not know may be that of a LocalAI frontend on the same bus."""
        return _most_advanced(await self._services.stores.load_jobs.read_of_model(model)) or self._remote.find(model)

    async def _step_on(self, model: StoredModel, node: Node) -> LoadProgress | None:
        """Requests the load on this node if there is none. None when a replica serves there."""
        if model.config.is_attached:
            raise Conflict(f"{model.name} cannot be loaded: {NOT_STARTED}")
        stores = self._services.stores
        here = [one for one in await stores.replicas.read_statuses() if _is_here(one, model, node)]
        if any(one.verdict is not None and one.verdict.availability is Availability.SERVES for one in here):
            return None
        jobs = await stores.load_jobs.read_of_model(model.name)
        running = next((job for job in jobs if _is_for_node(job, node)), None)
        if running is not None:
            return running.progress()
        returning = next((one.verdict.why for one in here if one.verdict is not None), None)
        if returning is not None or any(one.row.state in COMING for one in here):
            return LoadProgress(
                model=model.name, state=LoadState.PENDING, node=node.name, reason=returning or "a load is in progress"
            )
        await self._check_place_on(model, node, jobs)
        add = Add(why=f"an administrator requested it on {node.name}", node_id=node.id)
        await stores.load_jobs.request_loads(model.name, model.revision, [add], ids=self._services.ids)
        return LoadProgress(model=model.name, state=LoadState.PENDING, node=node.name)

    async def _check_place_on(self, model: StoredModel, node: Node, jobs: list[LoadJob]) -> None:
        stores = self._services.stores
        fleet = await stores.replicas.read_fleet(self._services.traffic.total)
        rows = [row for row in fleet.replicas if row.model == model.name]
        too_many = check_limit(model.revision, rows, fleet.scheduling.get(model.name) or Scheduling(model=model.name))
        need, backoffs = await asyncio.gather(
            find_need(self._services, model, fleet, only_node=node.id),
            stores.load_backoff.read(model.name, model.revision),
        )
        decision = place(replace(need, backoffs=backoffs), [one for one in fleet.capacities if one.id == node.id])
        reasons = [one.reason for one in decision.candidates] if isinstance(decision.outcome, Waiting) else []
        failed = [job.last_error for job in jobs if _is_cooling_down(job, model, node, now_ms=fleet.now_ms)]
        why = next(iter([*failed, *filter(None, [too_many]), *reasons]), "")
        if why:
            raise Conflict(f"{node.name} cannot take {model.name}: {why}")

    async def _follow(self, model: str, watch: _Watch, cause: str) -> None:
        """However the watch ends, its waiters get an outcome."""
        try:
            settled = await self._until_settled(model, watch, cause)
        except asyncio.CancelledError:
            watch.outcome.cancel()
            raise
        except CorralError as error:
            settled = LoadOutcome(cause=str(error))
        except Exception as error:  # those that wait get an answer, also after a bug
            log.exception("load.watch_crashed", model=model)
            settled = LoadOutcome(cause=f"internal error, see the log: {error!r}")
        finally:
            del self._watches[model]
        watch.outcome.set_result(settled)

    async def _until_settled(self, model: str, watch: _Watch, cause: str) -> LoadOutcome:
        """Polls: a replica that was about to return may be lost, a load superseded by an edit."""
        followed: set[str] = set()
        crashes = 0
        while len(followed) <= ROUNDS:
            try:
                settled = await self._step(model, watch, cause, followed)
                crashes = 0
            except TRANSIENT as error:
                # Waiters have their own time limits; the load itself continues.
                log.info("load.poll_failed", model=model, error=str(error))
                watch.progress = replace(watch.progress, reason=str(error))
                settled = None
            except CorralError:
                raise
            except Exception:  # one bug may be chance; repeated ones are raised
                crashes += 1
                if crashes == MAX_CRASHES:
                    raise
                log.exception("load.poll_crashed", model=model)
                settled = None
            if settled is not None:
                return settled
            await wait_or_timeout(watch.notified, within_s=WATCH_EVERY_S)
            if not watch.waiters:
                # The load continues without this watch.
                return LoadOutcome(cause="no request waits for it any more")
        return LoadOutcome(cause=f"{model} was loaded {ROUNDS} times and removed again each time; see its events")

    async def _step(self, model: str, watch: _Watch, cause: str, followed: set[str]) -> LoadOutcome | None:
        stores = self._services.stores
        if _serves(await stores.replicas.read_routes(), model):
            return LoadOutcome()
        jobs = await stores.load_jobs.read_of_model(model)
        failed = [job for job in jobs if not job.active and job.id in followed]
        if failed and not any(job.active for job in jobs):
            return LoadOutcome(cause=max(failed, key=lambda job: job.changed_at).last_error)
        if not any(job.active for job in jobs):
            stored = await stores.models.read(model)
            if stored.config.is_attached:
                return LoadOutcome(cause=describe_away(await stores.attached_endpoints.read_of_model(model)))
            job = await stores.load_jobs.request_load(model, stored.revision, cause=cause, ids=self._services.ids)
            if isinstance(job, NoLoadNeeded):
                watch.progress = LoadProgress(model=model, state=LoadState.PENDING, reason=job.reason)
                return None
            if not job.active:
                return LoadOutcome(cause=job.last_error)
            jobs = [job]
            self._runner.loop.notify()
        obstacle = await self._find_obstacle(model, watch, jobs)
        if obstacle:
            return LoadOutcome(cause=obstacle, is_lasting=True)
        followed.update(job.id for job in jobs if job.active)
        watch.progress = _most_advanced(jobs) or watch.progress
        return None

    async def _find_obstacle(self, name: str, watch: _Watch, jobs: list[LoadJob]) -> str:
        """Why waiting does not help, when all loads of the model wait for a node; empty where it may. It is examined
        whenever a load states another reason (each attempt to place it does), and until all nodes have reported."""
        active = [job for job in jobs if job.active]
        reasons = frozenset(job.reason for job in active)
        if "" in reasons or any(job.state is not LoadState.PENDING for job in active) or reasons == watch.examined:
            return ""
        stores = self._services.stores
        model = await stores.models.read(name)
        deletions = await find_deletions(self._services, backend_of(model.config), await stores.nodes.read_all())
        deleted = next((one.reason for one in deletions.values() if one.reason in reasons), "")
        if deleted:
            return deleted
        fleet = await stores.replicas.read_fleet(self._services.traffic.total)
        need = await find_need(self._services, model, fleet, with_away=True)
        if not need.unreported_on:
            watch.examined = reasons
        return find_obstacle(need, fleet.capacities)


def _most_advanced(jobs: list[LoadJob]) -> LoadProgress | None:
    """The progress of the most advanced load."""
    active = sorted((job for job in jobs if job.active), key=lambda job: -ACTIVE.index(job.state))
    chosen = active or sorted(jobs, key=lambda job: -job.changed_at)
    return chosen[0].progress() if chosen else None


def _serves(snapshot: RouteSnapshot, model: str) -> bool:
    return any(route.replicas for route in snapshot.routes if route.model == model)


def _is_here(one: ReplicaStatus, model: StoredModel, node: Node) -> bool:
    return one.row.model == model.name and one.row.node_id == node.id and one.row.revision == model.revision


def _is_for_node(job: LoadJob, node: Node) -> bool:
    return job.active and (job.target_node == node.id or (job.replica_id is not None and job.node_id == node.id))


def _is_cooling_down(job: LoadJob, model: StoredModel, node: Node, *, now_ms: int) -> bool:
    """It failed for a reason that is not the node's, and is not due yet."""
    failed = not job.active and job.revision == model.revision and job.due_at > now_ms
    return failed and job.target_node == node.id
