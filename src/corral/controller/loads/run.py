"""One load, from a job to a ready replica: place, stage and start, under the lease of the job.

Every step may be repeated. A frontend that takes a job over continues from what the store has, and the worker answers a
request it has seen before from its own state.
"""

import asyncio

import structlog

from corral.bus.messages import InstallProgress
from corral.controller.loads.context import LoadContext
from corral.controller.loads.node_rpc import CANCEL_WITHIN_S, LoadJobFailed, NodeLost, NodeRpc
from corral.controller.loads.place import check_fit, place_replica, stop_predecessor
from corral.controller.loads.ports import LoadServices
from corral.controller.loads.stage import stage_weights
from corral.controller.loads.start import BackendDeleted, prove_replica, start_replica
from corral.controller.loads.tracker import LoadTracker
from corral.core.errors import Conflict, CorralError, Fenced, NotFound, Unavailable
from corral.core.models.load_plan import plan_weights
from corral.core.replicas.load_jobs import LEASE_S, LOAD_RETRIES, RENEW_S
from corral.core.replicas.replica import ReplicaState
from corral.store.engine.database import StoreConflict
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

RELEASE_WITHIN_S = 2.0
"""A frontend that stops does not wait for an unavailable store."""


class LoadRun:
    """Runs one load while this frontend holds the lease of its job."""

    def __init__(self, job: LoadJob, services: LoadServices) -> None:
        tracker = LoadTracker(job, services.clock)
        rpc = NodeRpc(services, tracker)
        self._load = LoadContext(job=job, services=services, tracker=tracker, rpc=rpc, replica_id=job.replica_id)

    @property
    def model(self) -> str:
        return self._load.job.model

    def on_progress(self, message: InstallProgress) -> None:
        """Progress that the worker reports."""
        self._load.tracker.on_progress(message)

    async def run(self) -> None:
        load = self._load
        try:
            await self._run_leased()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(RELEASE_WITHIN_S):
                    await load.claims.release(load.job)
            except (CorralError, TimeoutError) as error:  # then its lease expires
                log.info("load.release_failed", model=self.model, error=str(error))
            raise
        finally:
            await load.services.notify_changed()

    async def _run_leased(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew_lease())
                try:
                    await self._run_steps()
                finally:
                    renewing.cancel()
        except* Fenced:
            await self._leave()
        except* Conflict as superseded:
            try:
                await self._supersede(str(superseded.exceptions[0]))
            except Fenced:
                await self._leave()

    async def _renew_lease(self) -> None:
        """Renews the lease and stores progress until cancelled. Raises Fenced, which ends the run, when another
        frontend has the job."""
        load = self._load
        stored = load.tracker.progress
        while True:
            await wait_or_timeout(load.tracker.changed, within_s=RENEW_S if load.tracker.progress == stored else 0.5)
            progress = load.tracker.progress
            try:
                if progress == stored:
                    await load.claims.renew(load.job, lease_s=LEASE_S)
                else:
                    await load.claims.note_progress(load.job, progress, lease_s=LEASE_S)
                    stored = progress
            except Exception as error:  # the next renewal shows whether the lease was kept
                if isinstance(error, Conflict) and not isinstance(error, StoreConflict):
                    raise
                unexpected = not isinstance(error, CorralError)
                log.warning("load.lease_not_renewed", model=self.model, error=str(error), exc_info=unexpected)

    async def _run_steps(self) -> None:
        load, job = self._load, self._load.job
        try:
            model = await read_model(load)
            if model is None:
                return
            placed = await place_replica(load, model)
            if placed is None:
                return
            replica, node = placed
            load.model, load.replica_id = model, replica.id
            paths = await stage_weights(load, model, replica, node)
            if not await check_fit(load, node):
                return
            await stop_predecessor(load, node)
            load.started = True
            loaded = await start_replica(load, model, replica, node, paths)
            await prove_replica(load, model, replica, node, loaded)
            await load.persist(lambda: load.claims.finish(job, loaded))
            log.info("load.ready", model=job.model, node=node.name, slot=replica.slot, after_ms=loaded.load_ms)
        except Fenced:
            raise
        except (NodeLost, BackendDeleted) as error:
            log.warning("load.rescheduled", model=job.model, node=job.node_name, error=str(error))
            await load.persist(lambda: load.claims.reschedule(job, again_in_s=0.5))
        except StoreConflict as error:
            await self._fail(error)
        except Conflict as error:  # superseded by an edit, a deletion or an unload
            await self._supersede(str(error))
        except CorralError as error:
            await self._fail(error)
        except Exception as error:  # a bug must not keep the job leased
            log.exception("load.crashed", model=job.model)
            await self._fail(Unavailable(f"internal error, see the log: {error!r}"))

    async def _fail(self, failure: CorralError) -> None:
        """After a LoadJobFailed another node may succeed, and is tried first."""
        load, error, draw = self._load, str(failure), self._load.services.ids.draw()
        job, here = load.job, isinstance(failure, LoadJobFailed)
        event = "load.failed_here" if here else "load.failed"
        log.warning(event, model=job.model, node=load.tracker.progress.node, error=error)
        await self._cancel()
        if here:
            stop, digest = load.started, load.digest
            await load.persist(lambda: load.claims.fail_on_node(job, error, draw=draw, stop=stop, digest=digest))
        else:
            delay_s = LOAD_RETRIES.delay_s(job.attempts + 1, draw)
            await load.persist(lambda: load.claims.fail(job, error, again_in_s=delay_s, stop=load.started))

    async def _supersede(self, why: str) -> None:
        load = self._load
        log.info("load.superseded", model=self.model, why=why)
        await self._cancel(keep=await self._needs_same_files())
        await load.persist(lambda: load.claims.end(load.job, why))

    async def _leave(self) -> None:
        """Another frontend has the job, or it is gone. The work on the node is cancelled only when nobody continues or
        has finished it."""
        load = self._load
        if await load.stores.load_jobs.exists(load.job.id) or await self._was_finished():
            log.info("load.taken_over", model=self.model)
            return
        log.info("load.removed", model=self.model)
        await load.rpc.cancel(load.job.id, keep=await self._needs_same_files())

    async def _was_finished(self) -> bool:
        """A frontend that takes a load over keeps its replica."""
        rows = await self._load.stores.replicas.read_of_model(self.model)
        return any(row.id == self._load.replica_id and row.state is ReplicaState.READY for row in rows)

    async def _cancel(self, *, keep: bool = False) -> None:
        """Stops the work on the node under a lease that was just renewed, because the work of a successor has the same
        id. Raises Fenced when another frontend has the job. The result is stored afterwards: from then on a successor
        may use the same node. After a crash in between the lease expires, and the successor repeats the request."""
        load, clock = self._load, self._load.services.clock
        if load.tracker.node_id is None:
            return
        renewed_s = -LEASE_S
        while clock.monotonic_s() - renewed_s > LEASE_S - CANCEL_WITHIN_S:
            renewed_s = clock.monotonic_s()
            await load.persist(lambda: load.claims.hold(load.job, lease_s=LEASE_S))
        await load.rpc.cancel(load.job.id, keep=keep)

    async def _needs_same_files(self) -> bool:
        """Whether another load of the model could use the files that were staged so far."""
        try:
            model = await self._load.stores.models.read(self.model)
        except NotFound:
            return False
        begun = self._load.model
        return begun is None or plan_weights(model.config) == plan_weights(begun.config)


async def read_model(load: LoadContext) -> StoredModel | None:
    """The revision to load; None when the load is obsolete. The load of an edited model moves to the new revision."""
    job, claims = load.job, load.claims
    try:
        model = await load.stores.models.read(job.model)
    except NotFound:
        await load.persist(lambda: claims.end(job, "the model was deleted"))
        return None
    revision = model.of_revision(job.revision)
    load.is_canary = revision is not None and revision.revision != model.revision
    unneeded = job.replaces is not None and job.stop_first_node is None and model.pending is None
    if revision is None and unneeded:
        await load.persist(lambda: claims.end(job, "the model was changed"))
    elif revision is None:
        newest = model.newest.revision if job.replaces is not None else model.revision
        await load.persist(lambda: claims.renew_revision(job, newest))
    return revision
