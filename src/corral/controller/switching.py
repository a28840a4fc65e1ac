"""What serves from an old version of a backend goes over to the new one: the replica controller does it, here it is
waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from corral.controller.switch import ReplicaSwitch, Restored, VersionFailed
from corral.core.errors import CorralError, TimedOut
from corral.core.nodes import NodeId
from corral.core.replicas import Replica, ReplicaState
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

    async def switch(self, node_id: NodeId, changes: Sequence[ReplicaChange], *, operation_id: str) -> None:
        """Returns when a successor serves for each, and none of the old version runs. Raises VersionFailed with the
        cause when one does not start. A store that does not answer for a while says nothing of the version: it is asked
        again."""
        ours = {replica.process_key for replica in await self._stores.replicas.read_of_node(node_id)}
        strangers = [change for change in changes if change.process.process_key not in ours]
        if strangers:
            await self._others.switch(node_id, strangers, operation_id=operation_id)
        waiting = _Switch(self._stores, node_id, {change.process.process_key: change.digest for change in changes})
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
            doing = await waiting.look()
            if doing and await waiting.forget_earlier():
                self._poke()
        except CorralError as error:
            if not error.retryable:
                raise
            log.warning("switch.not_looked_at", error=str(error))
            return UNKNOWN
        return doing

    async def restore(self, node_id: NodeId) -> Restored:
        jobs = await self._stores.load_jobs.retry_stopped_first(node_id)
        if not jobs:
            return Restored()
        self._poke()
        for _ in range(RESTORE_LOOKS):
            if not {job.id for job in await self._stores.load_jobs.read_all()} & {*jobs}:
                return Restored("the old one, which was stopped first, was started again", was_stopped=True)
            await asyncio.sleep(LOOK_EVERY_S)
        return Restored("the old one, which was stopped first, is being started again", was_stopped=True)


class _Switch:
    """One node's replicas of the versions that are to go, and the loads that take their places."""

    def __init__(self, stores: Stores, node_id: NodeId, digests: dict[str, str]) -> None:
        self._stores, self._node_id, self._digests = stores, node_id, digests
        self._replaced: dict[str, Replica] = {}
        self._earlier: set[str] = set()

    async def begin(self) -> None:
        """Loads begun before the version was changed: their failure says nothing of this one. Those for which a
        replica was stopped already are this switch's own, from before a frontend was restarted."""
        jobs = await self._stores.load_jobs.read_all()
        self._earlier = {job.id for job in jobs if job.stops_first_on != self._node_id}

    async def look(self) -> str:
        """What is being done; empty when nothing is left to do."""
        rows = await self._outdated()
        jobs = [job for job in await self._stores.load_jobs.read_all() if self._is_ours(job)]
        for job in jobs:
            if not job.active and job.id not in self._earlier:
                raise VersionFailed(await self._cause(job))
        if any(job.stops_first_on == self._node_id for job in jobs):
            return STOP_FIRST_REASON
        if any(row.state is ReplicaState.READY for row in rows):
            return "starting the new version beside the old one"
        return "waiting for open requests of the old version" if rows else ""

    async def forget_earlier(self) -> bool:
        """What failed to take a place with the version before is tried anew: it would be of another version."""
        jobs = await self._stores.load_jobs.read_all()
        failed = [job for job in jobs if self._is_ours(job) and not job.active and job.id in self._earlier]
        if failed:
            replaced = [self._replaced[job.replaces] for job in failed if job.replaces in self._replaced]
            await self._stores.load_jobs.forget_successors(replaced)
            self._earlier.difference_update(job.id for job in failed)
        return bool(failed)

    async def _outdated(self) -> list[Replica]:
        found = [
            replica
            for replica in await self._stores.replicas.read_of_node(self._node_id)
            if replica.backend_digest not in ("", self._digests.get(replica.process_key, replica.backend_digest))
        ]
        self._replaced |= {replica.id: replica for replica in found}
        return found

    def _is_ours(self, job: LoadJob) -> bool:
        return job.replaces in self._replaced or job.stops_first_on == self._node_id

    async def _cause(self, job: LoadJob) -> str:
        """What happened on the replica's own node; what happened on others, where it was not tried."""
        own = (await self._stores.setbacks.read(job.model, job.revision)).get(self._node_id)
        return own.error if own is not None and own.failed_at_ms >= job.created_at else job.last_error
