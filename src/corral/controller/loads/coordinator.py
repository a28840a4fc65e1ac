"""Loads in the whole cluster: asked for once, carried out by one frontend, waited for by any number of requests."""

import asyncio
from dataclasses import dataclass, replace

import structlog

from corral.bus.client import BusMessage
from corral.bus.messages import InstallProgress, decode
from corral.controller.loads.context import LoadContext
from corral.controller.loads.localai_staging import StagingMirrors
from corral.controller.loads.on_named_node import NamedLoads
from corral.controller.loads.run import LoadRun
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.errors import CorralError, OutcomeUnknown, Unavailable
from corral.core.models.load_plan import backend_of
from corral.core.nodes.node import Node, NodeStatus
from corral.core.replicas.load_jobs import ACTIVE, LEASE_S, LoadProgress, LoadState
from corral.core.replicas.placement import count_room
from corral.core.replicas.replica import COMING, ReplicaState
from corral.core.replicas.routing import RouteSnapshot
from corral.store.engine.database import StoreConflict
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.load_jobs import LoadPatience
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

CLAIM_EVERY_S = 1.0
AT_ONCE = 64
WATCH_EVERY_S = 0.5
ROUNDS = 3
MOST_CRASHES = 5
PASSING = (Unavailable, OutcomeUnknown, StoreConflict)
"""The store, or what else is asked, is away for now."""


class LoadRunner:
    """Claims jobs that are due and carries each out in a task of its own."""

    def __init__(self, runtime: ReconcileRuntime, tools: LoadContext) -> None:
        self.loop = Reconciler("loads", self._claim, runtime, every_s=CLAIM_EVERY_S)
        self._owner, self._tools = runtime.holder, tools
        self._runs: dict[str, LoadRun] = {}
        self._tasks: asyncio.TaskGroup

    def loads(self, model: str) -> bool:
        """Whether this frontend is at it."""
        return any(run.model == model for run in self._runs.values())

    async def hear(self, message: BusMessage) -> None:
        """Progress of installs and fetches; those that belong to loads of ours are signs of life."""
        if not self._runs:
            return
        progress = decode(message.data, InstallProgress)
        run = self._runs.get(progress.op_id)
        if run is not None:
            run.hear(progress)

    async def run(self) -> None:
        """Running loads continue when a claim fails."""
        async with asyncio.TaskGroup() as self._tasks:
            await self.loop.run()

    async def _claim(self, _run: ReconcileRun) -> None:
        free = AT_ONCE - len(self._runs)
        if free <= 0:
            return
        for job in await self._tools.stores.load_claims.claim(self._owner, lease_s=LEASE_S, most=free):
            run = self._runs[job.id] = LoadRun(job, self._tools)
            self._tasks.create_task(self._carry_out(job, run), name=f"load {job.model}")

    async def _carry_out(self, job: LoadJob, run: LoadRun) -> None:
        try:
            await run.run()
        except CorralError as error:
            log.warning("load.interrupted", model=job.model, error=str(error))
        except Exception:
            log.exception("load.crashed", model=job.model)
        finally:
            if self._runs.get(job.id) is run:
                del self._runs[job.id]
            self.loop.notify()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Neither a cause nor progress: there is a replica to send requests to."""

    cause: str | None = None
    """Why the load failed."""
    progress: LoadProgress | None = None
    """The load goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    replicas: int
    reason: str
    """What keeps the next one out; empty when all that are wanted fit."""


class _Watch:
    """One look at the store for all who wait for one model here."""

    def __init__(self, model: str) -> None:
        self.progress = LoadProgress(model=model, state=LoadState.PENDING)
        self.outcome: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self.notified = asyncio.Event()
        self.waiters = 0


class LoadCoordinator:
    """Where requests ask for a cold model."""

    def __init__(self, tools: LoadContext, runner: LoadRunner, elsewhere: StagingMirrors) -> None:
        self._tools, self._runner, self._elsewhere = tools, runner, elsewhere
        self._watches: dict[str, _Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def notify(self) -> None:
        """Routes changed somewhere: whoever waits looks now."""
        for watch in self._watches.values():
            watch.notified.set()

    async def ask(self, model: str, *, within_s: float, cause: str = "a request") -> Settled:
        """All who ask for one model share one load and one watch. Leaving stops neither."""
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
            return Settled(progress=watch.progress)
        finally:
            watch.waiters -= 1

    async def ask_on(self, name: str, node: Node, *, within_s: float) -> Settled:
        """The same for one node that somebody chose. Raises Conflict when it cannot take the model."""
        stores = self._tools.stores
        named = NamedLoads(stores=stores, needs=self._tools.needs, traffic=self._tools.traffic, ids=self._tools.ids)
        model = await stores.models.read(name)
        progress = await named.step(model, node)
        self._runner.loop.notify()
        give_up_s = self._tools.clock.monotonic_s() + within_s
        while progress is not None and (left_s := give_up_s - self._tools.clock.monotonic_s()) > 0:
            await asyncio.sleep(min(WATCH_EVERY_S, left_s))
            try:
                progress = await named.step(await stores.models.read(name), node)
            except PASSING as error:  # it was begun, and goes on
                log.info("load.not_seen", model=name, error=str(error))
        return Settled(progress=progress)

    async def fit(self, name: str, wanted: int) -> Fit:
        """How many of `wanted` the machines that are there can serve at the same time."""
        stores = self._tools.stores
        model = await stores.models.read(name)
        fleet = await stores.replicas.read_fleet(self._tools.traffic.total)
        need = await self._tools.needs.find(model, fleet)
        healthy = {node.id for node in fleet.nodes if node.status is NodeStatus.HEALTHY}
        kept = (ReplicaState.READY, *COMING)
        there = sum(row.model == model.name and row.state in kept and row.node_id in healthy for row in fleet.replicas)
        more, reason = count_room(need, fleet.rooms, wanted - there)
        return Fit(replicas=min(wanted, there + more), reason=reason)

    async def status(self, model: str) -> LoadProgress | None:
        """A load that the store does not know may be that of a LocalAI frontend on the same bus."""
        return _foremost(await self._tools.stores.load_jobs.read_of_model(model)) or self._elsewhere.find(model)

    async def _follow(self, model: str, watch: _Watch, cause: str) -> None:
        """However it ends, nobody is left waiting for a watch that is over."""
        try:
            settled = await self._until_settled(model, watch, cause)
        except asyncio.CancelledError:
            watch.outcome.cancel()
            raise
        except CorralError as error:
            settled = Settled(cause=str(error))
        except Exception as error:
            log.exception("load.watch_crashed", model=model)
            settled = Settled(cause=f"an error of Corral's own, see the log: {error!r}")
        finally:
            del self._watches[model]
        watch.outcome.set_result(settled)

    async def _until_settled(self, model: str, watch: _Watch, cause: str) -> Settled:
        """Looks again and again: a replica that was to return may be lost, a load overtaken by an edit."""
        followed: set[str] = set()
        crashes = 0
        while len(followed) <= ROUNDS:
            try:
                settled = await self._step(model, watch, cause, followed)
                crashes = 0
            except PASSING as error:
                # Whoever waits does so as long as it wants to; the load itself goes on.
                log.info("load.not_seen", model=model, error=str(error))
                watch.progress = replace(watch.progress, reason=str(error))
                settled = None
            except CorralError:
                raise
            except Exception:
                crashes += 1
                if crashes == MOST_CRASHES:
                    raise
                log.exception("load.look_crashed", model=model)
                settled = None
            if settled is not None:
                return settled
            await wait_or_timeout(watch.notified, within_s=WATCH_EVERY_S)
            if not watch.waiters:
                # Nobody is here any more; the load goes on without us.
                return Settled(cause="nobody waits for it here any more")
        return Settled(cause=f"{model} was loaded {ROUNDS} times and each time taken away again; look at its events")

    async def _step(self, model: str, watch: _Watch, cause: str, followed: set[str]) -> Settled | None:
        stores = self._tools.stores
        if _serves(await stores.replicas.read_routes(), model):
            return Settled()
        jobs = await stores.load_jobs.read_of_model(model)
        failed = [job for job in jobs if not job.active and job.id in followed]
        if failed and not any(job.active for job in jobs):
            return Settled(cause=max(failed, key=lambda job: job.changed_at).last_error)
        if not any(job.active for job in jobs):
            revision = (await stores.models.read(model)).revision
            asked = await stores.load_jobs.ask(model, revision, cause=cause, ids=self._tools.ids)
            if isinstance(asked, LoadPatience):
                watch.progress = LoadProgress(model=model, state=LoadState.PENDING, reason=asked.reason)
                return None
            if not asked.active:
                return Settled(cause=asked.last_error)
            jobs = [asked]
            self._runner.loop.notify()
        deleted = await self._deleted(model, jobs)
        if deleted is not None:
            return Settled(cause=deleted)
        followed.update(job.id for job in jobs if job.active)
        watch.progress = _foremost(jobs) or watch.progress
        return None

    async def _deleted(self, name: str, jobs: list[LoadJob]) -> str | None:
        """What all its loads wait for, where that is somebody who installs again what was deleted."""
        active = [job for job in jobs if job.active]
        reasons = {job.reason for job in active}
        if "" in reasons or any(job.state is not LoadState.PENDING for job in active):
            return None
        stores = self._tools.stores
        backend = backend_of((await stores.models.read(name)).config)
        deletions = await self._tools.needs.find_deletions(backend, await stores.nodes.read_all())
        return next((one.reason for one in deletions.values() if one.reason in reasons), None)


def _foremost(jobs: list[LoadJob]) -> LoadProgress | None:
    """Of several loads the one that is furthest."""
    active = sorted((job for job in jobs if job.active), key=lambda job: -ACTIVE.index(job.state))
    chosen = active or sorted(jobs, key=lambda job: -job.changed_at)
    return chosen[0].progress() if chosen else None


def _serves(snapshot: RouteSnapshot, model: str) -> bool:
    return any(route.replicas for route in snapshot.routes if route.model == model)
