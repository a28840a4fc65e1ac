"""What serves from an old version of a backend goes over to the new one: the replica controller does it, here it is
waited for."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from corral.controller.switch import ReplicaSwitch, VersionFailed
from corral.core.errors import CorralError, TimedOut
from corral.core.nodes import NodeId
from corral.core.replicas import Replica, ReplicaState
from corral.core.rollout import ReplicaChange
from corral.store.load_job_rows import LoadJob
from corral.store.stores import Stores

log = structlog.get_logger()

LOOK_EVERY_S = 0.5
WITHIN_S = 900.0


class ReplicaSwitcher:
    def __init__(self, stores: Stores, *, poke: Callable[[], None], others: ReplicaSwitch) -> None:
        """`others` is for processes that are no replica of ours, such as a LocalAI frontend's."""
        self._stores, self._poke, self._others = stores, poke, others

    async def switch(self, node_id: NodeId, changes: Sequence[ReplicaChange], *, operation_id: str) -> None:
        """Returns when a successor serves for each. Raises VersionFailed with the cause when one does not start. A
        store that does not answer for a while says nothing of the version: it is asked again."""
        ours = {replica.process_key for replica in await self._stores.replicas.read_of_node(node_id)}
        strangers = [change for change in changes if change.process.process_key not in ours]
        if strangers:
            await self._others.switch(node_id, strangers, operation_id=operation_id)
        digests = {change.process.process_key: change.digest for change in changes}
        earlier = {job.id for job in await self._stores.load_jobs.read_all()}
        self._poke()
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    if await self._is_switched(node_id, digests, earlier):
                        return
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise TimedOut(f"replicas still run from the old version after {WITHIN_S:.0f} s") from None

    async def _is_switched(self, node_id: NodeId, digests: dict[str, str], earlier: set[str]) -> bool:
        try:
            outdated = await self._outdated(node_id, digests)
            if outdated:
                await self._check_failures(outdated, earlier)
        except CorralError as error:
            if not error.retryable:
                raise
            log.warning("switch.not_looked_at", node=node_id, error=str(error))
            return False
        return not outdated

    async def _outdated(self, node_id: NodeId, digests: dict[str, str]) -> list[Replica]:
        return [
            replica
            for replica in await self._stores.replicas.read_of_node(node_id)
            if replica.state in (ReplicaState.READY, ReplicaState.DRAINING)
            and replica.backend_digest not in ("", digests.get(replica.process_key, replica.backend_digest))
        ]

    async def _check_failures(self, outdated: Sequence[Replica], earlier: set[str]) -> None:
        """`earlier`: loads begun before the version was changed, whose failure says nothing of this one."""
        replaced = {replica.id for replica in outdated}
        jobs = await self._stores.load_jobs.read_all()
        failed = [job for job in jobs if job.replaces in replaced and not job.active]
        for job in failed:
            if job.id not in earlier:
                raise VersionFailed(await self._cause(job, next(one for one in outdated if one.id == job.replaces)))
        if failed:
            await self._stores.load_jobs.forget_successors(outdated)
            earlier.difference_update(job.id for job in failed)
            self._poke()

    async def _cause(self, job: LoadJob, replica: Replica) -> str:
        """What happened on the replica's own node; what happened on others, where it was not tried."""
        own = (await self._stores.setbacks.read(job.model, job.revision)).get(replica.node_id)
        return own.error if own is not None and own.failed_at_ms >= job.created_at else job.last_error
