"""Ends replicas that are to go: exactly the process meant, again and again until its node says it is gone."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.bus.messages import ModelStopReply, ModelStopRequest, decode, encode
from corral.bus.subjects import MODEL_STOP, node_subject
from corral.controller.loads.ports import NodeBus
from corral.core.errors import CorralError
from corral.core.replicas.replica import Replica
from corral.store.serving.replicas import ReplicaStore
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
# A process that will not go may take 20 s to be ended by force.
STOP_WITHIN_S = 30.0
AGAIN_CAP_S = 300.0


class ReplicaStopper:
    def __init__(self, replicas: ReplicaStore, bus: NodeBus, *, changed: Callable[[], Awaitable[None]]) -> None:
        self._replicas, self._bus, self._changed = replicas, bus, changed
        self._poked = asyncio.Event()

    def notify(self) -> None:
        self._poked.set()

    async def run(self) -> None:
        while True:
            await self.turn()
            await wait_or_timeout(self._poked, within_s=LOOK_EVERY_S)

    async def turn(self) -> None:
        due = await self._replicas.claim_stops()
        await self.stop(due)

    async def stop(self, replicas: list[Replica]) -> None:
        """All at once; one that does not answer delays no other."""
        if not replicas:
            return
        await asyncio.gather(*(self._stop(replica) for replica in replicas))
        await self._changed()

    async def _stop(self, replica: Replica) -> None:
        request = ModelStopRequest(
            process_key=replica.process_key,
            model_name=replica.model,
            expected_address=_listen_form(replica.address),
            config_revision=replica.revision,
        )
        try:
            data = await self._bus.request(
                node_subject(replica.node_id, MODEL_STOP), encode(request), within_s=STOP_WITHIN_S
            )
            reply = decode(data, ModelStopReply)
            problem = "" if reply.terminated else reply.error or "the node did not end it"
        except CorralError as error:
            problem = str(error)
        try:
            await self._note(replica, problem)
        except CorralError as error:  # its turn comes again, and the node answers the same
            log.warning("replica.stop_not_noted", model=replica.model, node=replica.node_id, error=str(error))

    async def _note(self, replica: Replica, problem: str) -> None:
        if not problem:
            await self._replicas.stopped(replica)
            log.info("replica.stopped", model=replica.model, node=replica.node_id, slot=replica.slot)
        elif _is_another(problem):
            # Whoever has the key now is not the process this row stands for: that one is gone.
            await self._replicas.stopped(replica)
        else:
            delay_s = min(AGAIN_CAP_S, 2.0 ** min(replica.stop_attempts, 8))
            await self._replicas.stop_failed(replica, problem, again_in_ms=int(delay_s * 1000))
            log.warning("replica.not_stopped", model=replica.model, node=replica.node_id, error=problem)


def _listen_form(address: str) -> str:
    """Workers compare with the form they listen on; LocalAI's know no other."""
    port = address.rpartition(":")[2]
    return f"127.0.0.1:{port}" if port else ""


def _is_another(problem: str) -> bool:
    return problem.startswith("address mismatch")
