"""What serves from an old version of a backend goes over to the new one: the replica controller does it, here it is
waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from corral.controller.switch import ReplicaSwitch, Restored, VersionFailed
from corral.core.causes import brief_cause
from corral.core.errors import CorralError, NotFound, TimedOut
from corral.core.nodes import NodeId
from corral.core.replicas import COMING, Replica, ReplicaState
from corral.core.rollout import STOP_FIRST_REASON, ReplicaChange
from corral.store.load_job_rows import LoadJob
from corral.store.stores import Stores

log = structlog.get_logger()

LOOK_EVERY_S = 0.5
WITHIN_S = 900.0
RESTORE_LOOKS = 240
UNKNOWN = "waiting for the store, which does not answer"

Tell = Callable[[str, NodeId, str], Awaitable[None]]
"""Of an operation, on a node: what is being done."""


class ReplicaSwitcher:
    def __init__(self, stores: Stores, *, poke: Callable[[], None], others: ReplicaSwitch, tell: Tell) -> None:
        """`others` is for processes that are no replica of ours, such as a LocalAI frontend's."""
        self._stores, self._poke, self._others, self._tell = stores, poke, others, tell

    async def switch(
        self, node_id: NodeId, changes: Sequence[ReplicaChange], *, backend: str, digest: str, operation_id: str
    ) -> None:
        """Returns when a successor serves for each, and none of the old version runs. Raises VersionFailed with the
        cause when one does not start. A store that does not answer for a while says nothing of the version: it is asked
        again."""
        ours = {replica.process_key for replica in await self._stores.replicas.read_of_node(node_id)}
        strangers = [change for change in changes if change.process.process_key not in ours]
        if strangers:
            await self._others.switch(node_id, strangers, backend=backend, digest=digest, operation_id=operation_id)
        keys = frozenset(change.process.process_key for change in changes)
        waiting = _Switch(self._stores, self._poke, node_id, keys, backend=backend, digest=digest)
        await waiting.begin()
        self._poke()
        told = ""
        try:
            async with asyncio.timeout(WITHIN_S):
                while doing := await self._look(waiting):
                    if doing != told:
                        told = doing
                        await self._tell(operation_id, node_id, doing)
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise TimedOut(f"replicas still run from the old version after {WITHIN_S:.0f} s") from None

    async def _look(self, waiting: "_Switch") -> str:
        try:
            return await waiting.look()
        except CorralError as error:
            if not error.retryable:
                raise
            log.warning("switch.not_looked_at", error=str(error))
            return UNKNOWN

    async def restore(self, node_id: NodeId, *, backend: str) -> Restored:
        jobs = await self._stores.load_jobs.retry_stopped_first(node_id, backend)
        if not jobs:
            return Restored()
        self._poke()
        for _ in range(RESTORE_LOOKS):
            if not {job.id for job in await self._stores.load_jobs.read_successors(node_id, ())} & {*jobs}:
                return Restored("the old one, which was stopped first, was started again", was_stopped=True)
            await asyncio.sleep(LOOK_EVERY_S)
        return Restored("the old one, which was stopped first, is being started again", was_stopped=True)


class _Switch:
    """One node's replicas of the versions that are to go, and the loads that take their places."""

    def __init__(
        self,
        stores: Stores,
        poke: Callable[[], None],
        node_id: NodeId,
        keys: frozenset[str],
        *,
        backend: str,
        digest: str,
    ) -> None:
        self._stores, self._poke, self._node_id, self._keys = stores, poke, node_id, keys
        self._backend, self._digest = backend, digest
        self._replaced: set[str] = set()
        self._earlier: set[str] = set()
        self._stopped: dict[str, LoadJob] = {}
        """Loads for which a replica was stopped, as they were seen last."""

    async def begin(self) -> None:
        """Loads begun before the version was changed: only where they fail with this very version does that say
        anything. What failed beside a replica that still serves is tried anew in any case."""
        await self._outdated()
        jobs = await self._read_jobs()
        self._earlier = {job.id for job in jobs}
        for job in jobs:
            if not job.active and job.stops_first_on is None:
                await self._try_anew(job)

    async def look(self) -> str:
        """What is being done; empty when nothing is left to do."""
        rows = await self._outdated()
        jobs = await self._read_jobs()
        failed = [job for job in jobs if not job.active]
        for job in failed:
            await self._judge(job)
        if failed:
            return f"the new version is tried again, as that failed: {brief_cause(failed[0].last_error)}"
        if any(job.stops_first_on is not None for job in jobs):
            return STOP_FIRST_REASON
        if any(row.state is ReplicaState.READY for row in rows):
            return "starting the new version beside the old one"
        if rows:
            return "waiting for open requests of the old version"
        for job in self._stopped.values():
            if not await self._is_settled(job):
                return "waiting for the new version to serve"
        return ""

    async def _outdated(self) -> list[Replica]:
        found = [
            replica
            for replica in await self._stores.replicas.read_of_node(self._node_id)
            if replica.process_key in self._keys and replica.backend_digest not in ("", self._digest)
        ]
        self._replaced |= {replica.id for replica in found}
        return found

    async def _read_jobs(self) -> list[LoadJob]:
        found = await self._stores.load_jobs.read_successors(self._node_id, self._replaced)
        jobs = [job for job in found if job.replaces in self._replaced or job.stops_first_backend == self._backend]
        self._stopped |= {job.id: job for job in jobs if job.stops_first_on is not None}
        return jobs

    async def _judge(self, job: LoadJob) -> None:
        """Of a load that failed. Only that this version did not start here speaks against it; what failed for another
        reason is tried again when it is due, and at once where it failed with the version before."""
        failed_at_ms = await self._check_start(job)
        if job.id in self._earlier or (failed_at_ms is not None and failed_at_ms < job.created_at):
            await self._try_anew(job)

    async def _try_anew(self, job: LoadJob) -> None:
        await self._stores.load_jobs.try_anew(job, node_id=self._node_id)
        self._earlier.discard(job.id)
        self._poke()

    async def _check_start(self, job: LoadJob) -> int | None:
        """When the model failed on the node. Raises VersionFailed where it was this version, for this load."""
        own = (await self._stores.setbacks.read(job.model, job.revision)).get(self._node_id)
        if own is None:
            return None
        if own.digest == self._digest and own.failed_at_ms >= job.created_at:
            raise VersionFailed(own.error)
        return own.failed_at_ms

    async def _is_settled(self, job: LoadJob) -> bool:
        """Of a load for which a replica was stopped, and which is gone: whether the new version serves instead, or as
        many replicas as are wanted serve elsewhere."""
        rows = await self._stores.replicas.read_of_model(job.model)
        ready = [row for row in rows if row.state is ReplicaState.READY]
        if any(row.node_id == self._node_id and row.backend_digest == self._digest for row in ready):
            return True
        await self._check_start(job)
        if any(row.state in COMING for row in rows) or await self._stores.load_jobs.read_of_model(job.model):
            return False
        try:
            wanted = (await self._stores.scheduling.read(job.model)).scheduling.min_replicas
            await self._stores.models.read(job.model)
        except NotFound:
            return True
        return len(ready) >= wanted
