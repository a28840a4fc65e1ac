"""Waits until replicas of an old backend version are replaced by the new one. The replica controller replaces them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import structlog

from corral.controller.replicas.smoke_test import Restored, RolloutStalled, VersionFailed, VersionRollout
from corral.core.backends.rollout import OTHERS_FIRST_REASON, STOP_FIRST_REASON, ReplicaChange, is_served_again
from corral.core.backends.rollouts import PerNode
from corral.core.causes import brief_cause
from corral.core.errors import CorralError, TimedOut
from corral.core.models.load_plan import family_named_by
from corral.core.nodes.node import NodeId
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.replacements import ReplacementView
from corral.store.stores import Stores
from corral.system import Clock, Ids

log = structlog.get_logger()

READ_EVERY_S = 0.5
WITHIN_S = 900.0
RESTORED_WITHIN_S = 120.0
REPORT_AGAIN_S = 30.0
"""Progress is repeated: frontends drop what they have not heard for a while, and a new frontend has heard nothing."""
UNKNOWN = "waiting for the store, which does not answer"

ReportStep = Callable[[str, NodeId, str], Awaitable[None]]
"""Reports the current step of an operation on a node."""


class SharedSnapshot:
    """One read of the store for all rollouts that this frontend waits for, at most twice a second."""

    def __init__(self, read: Callable[[Collection[str]], Awaitable[ReplacementView]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._nodes: set[str] = set()
        self._next: asyncio.Task[ReplacementView] | None = None
        self._last_s = clock.monotonic_s() - READ_EVERY_S

    async def read(self, node_id: str) -> ReplacementView:
        """The state from a read that begins after this call."""
        self._nodes.add(node_id)
        if self._next is None:
            self._next = asyncio.create_task(self._read_soon(), name="read rollouts")
            self._next.add_done_callback(_take_error)
        return await asyncio.shield(self._next)

    async def _read_soon(self) -> ReplacementView:
        await asyncio.sleep(self._last_s + READ_EVERY_S - self._clock.monotonic_s())  # one read for all rollouts
        nodes, self._nodes, self._next = self._nodes, set(), None
        self._last_s = self._clock.monotonic_s()
        return await self._read(nodes)


def _take_error(task: "asyncio.Task[ReplacementView]") -> None:
    """Mark the error as seen: everybody who waited for it may have been cancelled."""
    if not task.cancelled():
        task.exception()


class ReplicaRollout:
    def __init__(
        self,
        stores: Stores,
        *,
        notify: Callable[[], None],
        others: VersionRollout,
        report_step: ReportStep,
        clock: Clock,
        ids: Ids,
        within_s: float = WITHIN_S,
        report_again_s: float = REPORT_AGAIN_S,
    ) -> None:
        """`others` handles processes that are not replicas of this cluster, such as those of a LocalAI frontend."""
        self._stores, self._notify, self._others, self._report_step = stores, notify, others, report_step
        self._clock, self._ids = clock, ids
        self._within_s, self._report_again_s = within_s, report_again_s
        self._shared = SharedSnapshot(stores.replacements.read, clock)

    async def find_models(self, families: Collection[str]) -> frozenset[str]:
        if not families:
            return frozenset()
        models = await self._stores.models.read_all()
        return frozenset(model.name for model in models if family_named_by(model.config) in families)

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        """Returns when every replica has a successor that serves, and no process of the old version runs. Raises
        VersionFailed with the cause when the new version does not start, and RolloutStalled when it could not be
        tried. While the store does not answer, it is asked again: that is no verdict on the version."""
        view = await self._shared.read(node_id)
        ours = {replica.process_key for replica in view.replicas[node_id]}
        of_others = [change for change in changes if change.process.process_key not in ours]
        if of_others:
            await self._others.roll_out(node_id, of_others, backend=backend, digest=digest, operation_id=operation_id)
        keys = frozenset(change.process.process_key for change in changes)
        waiting = _NodeRollout(
            self._stores,
            self._shared,
            self._notify,
            node_id,
            keys,
            backend=backend,
            digest=digest,
            models=frozenset(models),
        )
        await waiting.begin()
        self._notify()
        reported, reported_s = "", 0.0
        until_s = self._clock.monotonic_s() + self._within_s
        while doing := await self._read_step(waiting):
            await self._note_method(waiting, operation_id)
            now_s = self._clock.monotonic_s()
            if now_s > until_s:
                raise _stalled(waiting, doing, self._within_s)
            if doing != reported or now_s - reported_s >= self._report_again_s:
                reported, reported_s = doing, now_s
                await self._report_step(operation_id, node_id, doing)
        await self._note_method(waiting, operation_id, is_done=True)

    async def _note_method(self, waiting: "_NodeRollout", operation_id: str, *, is_done: bool = False) -> None:
        """Until it is done, another replica may still be stopped first."""
        method = waiting.method if is_done or waiting.method is PerNode.STOP_FIRST else None
        if method is None or method is waiting.noted:
            return
        try:
            await self._stores.operations.note_method(operation_id, waiting.node_id, method)
        except CorralError as error:  # it is shown as planned then
            log.warning("rollout.method_not_noted", operation=operation_id, error=str(error))
            return
        waiting.noted = method

    async def _read_step(self, waiting: "_NodeRollout") -> str:
        try:
            return await waiting.read_step()
        except CorralError as error:
            if not error.retryable:
                raise
            log.warning("rollout.state_not_read", error=str(error))
            return UNKNOWN

    async def find_stopped(self, node_id: NodeId, backend: str, models: Collection[str] = ()) -> str | None:
        view = await self._shared.read(node_id)
        here = [one for one in view.stopped.get(node_id, ()) if one.backend == backend or one.model in models]
        unserved = [one for one in here if not is_served_again(one, view.models[one.model], digest="")]
        return unserved[0].digest if unserved else None

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        restoring = await self._stores.load_jobs.restore(node_id, backend, digest=digest, ids=self._ids)
        if restoring.jobs or restoring.ended:
            self._notify()
        if not restoring.jobs:
            return Restored()
        until_s = self._clock.monotonic_s() + RESTORED_WITHIN_S
        while wait and self._clock.monotonic_s() < until_s:
            view = await self._shared.read(node_id)
            if not any(job in view.jobs for job in restoring.jobs):
                return Restored("the old version, which was stopped first, was started again", was_stopped=True)
        return Restored("the old version, which was stopped first, is being started again", was_stopped=True)

    async def note_stopped(self, node_id: NodeId, process_keys: Sequence[str]) -> None:
        rows = await self._stores.replicas.read_of_node(node_id)
        ended = [row.id for row in rows if row.process_key in process_keys and row.state not in COMING]
        if ended:
            await self._stores.replicas.drop(ended, why="its LocalAI worker ended it to change its backend")
            self._notify()


def _stalled(waiting: "_NodeRollout", doing: str, within_s: float) -> CorralError:
    if doing == UNKNOWN or not waiting.problem:
        return TimedOut(f"replicas still run from the old version after {within_s:.0f} s ({doing})")
    return RolloutStalled(f"replicas still run from the old version after {within_s:.0f} s: {waiting.problem}")


class _NodeRollout:
    """One node's replicas of old versions, and the loads that replace them."""

    def __init__(
        self,
        stores: Stores,
        shared: SharedSnapshot,
        notify: Callable[[], None],
        node_id: NodeId,
        keys: frozenset[str],
        *,
        backend: str,
        digest: str,
        models: frozenset[str],
    ) -> None:
        self._stores, self._shared, self._notify, self.node_id, self._keys = stores, shared, notify, node_id, keys
        self._backend, self._digest, self._models = backend, digest, models
        self._replaced: set[str] = set()
        self._earlier: set[str] = set()
        self._stops_first = False
        self.noted: PerNode | None = None
        """The method that is stored."""
        self.problem = ""
        """What blocks the rollout, by the last read; empty while it makes progress."""

    @property
    def method(self) -> PerNode | None:
        """How replicas are being replaced, as far as it was seen; None if there are none."""
        if self._stops_first:
            return PerNode.STOP_FIRST
        return PerNode.ROLLING if self._replaced else None

    async def begin(self) -> None:
        """Note the loads that began before the version changed: their failures count only if they failed with this
        version. Retry those that failed beside a replica that still serves."""
        view = await self._shared.read(self.node_id)
        self._outdated(view)
        jobs = self._jobs(view)
        self._earlier = {job.id for job in jobs}
        for job in jobs:
            if not job.active and job.stop_first_node is None:
                await self._retry(job)

    async def read_step(self) -> str:
        """The current step; empty when nothing is left to do."""
        view = await self._shared.read(self.node_id)
        rows, jobs = self._outdated(view), self._jobs(view)
        failed = [job for job in jobs if not job.active]
        self._stops_first |= any(job.stop_first_node is not None for job in jobs)
        self.problem = _problem_of(jobs, rows)
        for job in failed:
            await self._judge(job, view)
        if failed:
            return f"retrying the new version, because its last load failed: {brief_cause(failed[0].last_error)}"
        if any(job.stop_first_node is not None for job in jobs):
            return STOP_FIRST_REASON
        if any(row.state is ReplicaState.READY for row in rows):
            return "starting the new version alongside the old one"
        if rows:
            return "waiting for open requests on the old version"
        return await self._await_stopped(view)

    async def _await_stopped(self, view: ReplacementView) -> str:
        """Wait for replicas that were stopped first and whose loads no longer exist."""
        here = [one for one in view.stopped.get(self.node_id, ()) if self._is_about(one.backend, one.model)]
        settled = [one for one in here if is_served_again(one, view.models[one.model], digest=self._digest)]
        if settled:
            await self._stores.replacements.settle([one.replica_id for one in settled])
        self._stops_first |= bool(here)
        for one in here:
            if one not in settled:
                self._check_start(one.model, one.revision, one.stopped_at_ms, view)
                self.problem = f"{one.model} was stopped first, and no replica serves it on the node"
                return "waiting for the new version to serve"
        return ""

    def _outdated(self, view: ReplacementView) -> list[Replica]:
        found = [
            replica
            for replica in view.replicas[self.node_id]
            if replica.process_key in self._keys and replica.backend_digest not in ("", self._digest)
        ]
        self._replaced |= {replica.id for replica in found}
        return found

    def _jobs(self, view: ReplacementView) -> list[LoadJob]:
        replacing = [job for identity in sorted(self._replaced) for job in view.jobs_for.get(identity, ())]
        stopping = [
            job
            for job in view.jobs_for.get(self.node_id, ())
            if job.stop_first_node == self.node_id and self._is_about(job.stop_first_backend, job.model)
        ]
        return list({job.id: job for job in (*replacing, *stopping)}.values())

    def _is_about(self, backend: str | None, model: str) -> bool:
        return backend == self._backend or model in self._models

    async def _judge(self, job: LoadJob, view: ReplacementView) -> None:
        """Judge a failed load. Only a failed start of this version here counts against the version. Other failures are
        retried when due, and at once if they happened with the version before."""
        failed_at_ms = self._check_start(job.model, job.revision, job.created_at, view)
        if job.id in self._earlier or (failed_at_ms is not None and failed_at_ms < job.created_at):
            await self._retry(job)

    async def _retry(self, job: LoadJob) -> None:
        await self._stores.load_jobs.retry_failed(job, node_id=self.node_id)
        self._earlier.discard(job.id)
        self._notify()

    def _check_start(self, model: str, revision: str, since_ms: int, view: ReplacementView) -> int | None:
        """When the model last failed on the node. Raises VersionFailed if that was this version, since `since_ms`."""
        own = view.backoffs.get((self.node_id, model, revision))
        if own is None:
            return None
        if own.digest == self._digest and own.failed_at_ms >= since_ms:
            raise VersionFailed(own.error)
        return own.failed_at_ms


def _problem_of(jobs: Sequence[LoadJob], rows: Sequence[Replica]) -> str:
    """Why loads fail repeatedly or cannot be placed; empty while they run, drain or wait for their turn."""
    for job in jobs:
        if not job.active or (job.last_error and (job.replica_id is None or job.attempts > 1)):
            return brief_cause(job.last_error)
        if job.replica_id is None and job.reason not in ("", OTHERS_FIRST_REASON):
            return job.reason
    if not jobs and any(row.state is ReplicaState.READY for row in rows):
        return "no load of the new version has started"
    return ""
