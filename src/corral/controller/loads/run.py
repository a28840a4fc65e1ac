"""One load, from a job to a replica that serves. Every step may be repeated: whoever takes the job over begins where
the last owner stood, and the worker answers a question it was asked before from what it has."""

import asyncio

import structlog

from corral.bus.messages import InstallProgress
from corral.controller.loads.context import BackendDeleted, LoadContext, LoadJobFailed, NodeLost, written
from corral.controller.loads.node_rpc import CALL_OFF_WITHIN_S, NodeRpc
from corral.controller.loads.place import PlaceReplica
from corral.controller.loads.progress import LoadTracker
from corral.controller.loads.stage import StageWeights
from corral.controller.loads.start import StartReplica
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
"""Whoever stops a frontend does not wait for a store that is away."""


class LoadRun:
    def __init__(self, job: LoadJob, tools: LoadContext) -> None:
        self._job, self._tools = job, tools
        self._begun: StoredModel | None = None
        """As it is being loaded."""
        self._replica_id = job.replica_id
        self._headway = LoadTracker(job, tools.clock)
        self._line = NodeRpc(tools, self._headway)
        self._placing = PlaceReplica(job, tools, self._headway)
        self._weights = StageWeights(job.id, tools, self._headway, self._line)
        self._starting = StartReplica(job.id, tools, self._headway, self._line)

    @property
    def model(self) -> str:
        return self._job.model

    def hear(self, message: InstallProgress) -> None:
        """A sign of life from the worker."""
        self._headway.hear(message)

    async def run(self) -> None:
        job = self._job
        try:
            await self._while_leased()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(RELEASE_WITHIN_S):
                    await self._tools.stores.load_claims.release(job)
            except (CorralError, TimeoutError) as error:  # then its lease runs out by itself
                log.info("load.not_released", model=job.model, error=str(error))
            raise
        finally:
            await self._tools.hint()

    async def _while_leased(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(self._keep_lease())
                try:
                    await self._carry_out()
                finally:
                    keeping.cancel()
        except* Fenced:
            await self._leave()
        except* Conflict as overtaken:
            try:
                await self._overtaken(str(overtaken.exceptions[0]))
            except Fenced:
                await self._leave()

    async def _leave(self) -> None:
        """The job is not ours any more. While another frontend carries it on, or has brought it to its end, there is
        nothing to be cancelled: only what nobody wants any more is."""
        job, stores = self._job, self._tools.stores
        if await stores.load_jobs.is_there(job.id) or await self._was_finished():
            log.info("load.taken_over", model=job.model)
            return
        log.info("load.ended_by_others", model=job.model)
        await self._line.call_off(job.id, keep=await self._needs_the_same())

    async def _was_finished(self) -> bool:
        """Whoever takes a load over keeps its place."""
        rows = await self._tools.stores.replicas.read_of_model(self._job.model)
        return any(row.id == self._replica_id and row.state is ReplicaState.READY for row in rows)

    async def _overtaken(self, why: str) -> None:
        job = self._job
        log.info("load.overtaken", model=job.model, why=why)
        await self._call_off(keep=await self._needs_the_same())
        await written(job.model, lambda: self._tools.stores.load_claims.give_up(job, why))

    async def _call_off(self, *, keep: bool = False) -> None:
        """Stops our work on the node, under a lease that was just renewed: what a successor has begun there goes by the
        same id. Raises Fenced where the job is not ours any more. The end is written afterwards, since whoever takes
        the job up from then on may be on the same node at once; a crash in between leaves a job whose lease runs out,
        and whoever takes it over asks the node again."""
        job, clock = self._job, self._tools.clock
        if self._headway.node_id is None:
            return
        asked_s = -LEASE_S
        while clock.monotonic_s() - asked_s > LEASE_S - CALL_OFF_WITHIN_S:
            asked_s = clock.monotonic_s()
            await written(job.model, lambda: self._tools.stores.load_claims.hold(job, lease_s=LEASE_S))
        await self._line.call_off(job.id, keep=keep)

    async def _needs_the_same(self) -> bool:
        """Whether another load of the model could go on with the files that came so far."""
        try:
            model = await self._tools.stores.models.read(self._job.model)
        except NotFound:
            return False
        return self._begun is None or plan_weights(model.config) == plan_weights(self._begun.config)

    async def _keep_lease(self) -> None:
        """Until cancelled, or until the job is another's; then everything here ends."""
        told = self._headway.progress
        while True:
            await wait_or_timeout(self._headway.stepped, within_s=RENEW_S if self._headway.progress == told else 0.5)
            progress = self._headway.progress
            try:
                if progress == told:
                    await self._tools.stores.load_claims.renew(self._job, lease_s=LEASE_S)
                else:
                    await self._tools.stores.load_claims.note_progress(self._job, progress, lease_s=LEASE_S)
                    told = progress
            except StoreConflict as error:
                log.warning("load.lease_not_renewed", model=self._job.model, error=str(error))
            except Conflict:
                raise
            except CorralError as error:  # whether the lease held is known the next time
                log.warning("load.lease_not_renewed", model=self._job.model, error=str(error))
            except Exception:
                log.exception("load.lease_not_renewed", model=self._job.model)

    async def _carry_out(self) -> None:
        job, jobs = self._job, self._tools.stores.load_claims
        started = False
        try:
            model = await self._model()
            if model is None:
                return
            placed = await self._placing.take(model)
            if placed is None:
                return
            replica, node = placed
            self._begun, self._replica_id = model, replica.id
            found = await self._weights.bring(model, replica, node)
            if not await self._placing.still_fits(node):
                return
            await self._placing.stop_predecessor(node)
            started = True
            loaded = await self._starting.start(model, replica, node, found)
            await written(job.model, lambda: jobs.finish(job, loaded))
            log.info("load.ready", model=job.model, node=node.name, slot=replica.slot, after_ms=loaded.load_ms)
        except Fenced:
            raise
        except (NodeLost, BackendDeleted) as error:
            log.warning("load.rescheduled", model=job.model, node=job.node_name, error=str(error))
            await written(job.model, lambda: jobs.unplace(job, again_in_s=0.5))
        except StoreConflict as error:
            await self._fail(error, started=started)
        except Conflict as error:  # overtaken by an edit, a delete or an unload
            await self._overtaken(str(error))
        except LoadJobFailed as error:  # what another machine may do better
            await self._fail_here(error, started=started)
        except CorralError as error:
            await self._fail(error, started=started)
        except Exception as error:
            log.exception("load.crashed", model=job.model)
            await self._fail(Unavailable(f"an error of Corral's own, see the log: {error!r}"), started=started)

    async def _fail_here(self, error: CorralError, *, started: bool) -> None:
        job, draw = self._job, self._tools.ids.draw()
        log.warning("load.failed_here", model=job.model, node=self._headway.progress.node, error=str(error))
        await self._call_off()
        await written(
            job.model,
            lambda: self._tools.stores.load_claims.fail_here(
                job, str(error), draw=draw, stop=started, digest=self._starting.tried
            ),
        )

    async def _fail(self, error: CorralError, *, started: bool) -> None:
        job = self._job
        delay_s = LOAD_RETRIES.delay_s(job.attempts + 1, self._tools.ids.draw())
        log.warning(
            "load.failed", model=job.model, node=self._headway.progress.node, error=str(error), again_in_s=delay_s
        )
        await self._call_off()
        await written(
            job.model, lambda: self._tools.stores.load_claims.fail(job, str(error), again_in_s=delay_s, stop=started)
        )

    async def _model(self) -> StoredModel | None:
        """None when nobody wants this load any more; an edited model's is asked for anew."""
        stores, job = self._tools.stores, self._job
        try:
            model = await stores.models.read(job.model)
        except NotFound:
            await written(job.model, lambda: stores.load_claims.give_up(job, "its model was deleted"))
            return None
        wanted = model.of_revision(job.revision)
        unneeded = job.replaces is not None and job.stop_first_node is None and model.pending is None
        if wanted is None and unneeded:
            await written(job.model, lambda: stores.load_claims.give_up(job, "its model was changed"))
        elif wanted is None:
            newest = model.newest.revision if job.replaces is not None else model.revision
            await written(job.model, lambda: stores.load_claims.renew_revision(job, newest))
        return wanted
