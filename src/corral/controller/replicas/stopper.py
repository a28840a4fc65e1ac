"""Stops replicas: exactly the process of each row, again and again until its node confirms that it has ended."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.bus.messages import BackendStopRequest, ModelStopReply, ModelStopRequest, decode, encode
from corral.bus.subjects import BACKEND_STOP, MODEL_STOP, node_subject
from corral.controller.loads.ports import NodeBus
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.backoff import Backoff
from corral.core.errors import CorralError, NoResponders
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.replica import Replica
from corral.store.nodes.nodes import NodeStore
from corral.store.serving.replicas import ReplicaStore
from corral.system import Clock

log = structlog.get_logger()

EVERY_S = 1.0
STOP_WITHIN_S = 30.0
"""The worker kills a process that does not end within 20 s."""
RETRIES = Backoff(base_s=1.0, cap_s=256.0)
ENDED_WITHIN_S, ENDED_POLL_S = 15.0, 0.25


class ReplicaStopper:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        replicas: ReplicaStore,
        bus: NodeBus,
        *,
        nodes: NodeStore,
        refuses: Callable[[str], Awaitable[bool]],
        clock: Clock,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        """`refuses`: whether nobody listens at an address."""
        self.loop = Reconciler("stops", self._reconcile, runtime, every_s=EVERY_S)
        self._replicas, self._bus, self._on_change = replicas, bus, on_change
        self._nodes, self._refuses, self._clock = nodes, refuses, clock

    async def _reconcile(self, _run: ReconcileRun) -> None:
        await self.stop(await self._replicas.claim_stops())

    async def stop(self, replicas: list[Replica]) -> None:
        """Stop all of them at the same time."""
        if not replicas:
            return
        await asyncio.gather(*(self._stop(replica) for replica in replicas))
        await self._on_change()

    async def _stop(self, replica: Replica) -> None:
        expected = _listen_form(replica.address)
        request = ModelStopRequest(
            process_key=replica.process_key,
            model_name=replica.model,
            expected_address=expected,
            config_revision=replica.revision,
        )
        try:
            data = await self._bus.request(
                node_subject(replica.node_id, MODEL_STOP), encode(request), within_s=STOP_WITHIN_S
            )
            problem = find_stop_problem(decode(data, ModelStopReply), expected)
        except NoResponders as error:
            problem = await self._stop_on_localai(replica, error)
        except CorralError as error:
            problem = str(error)
        try:
            await self._record(replica, problem)
        except CorralError as error:  # it is claimed again, and the node gives the same answer
            log.warning("replica.stop_not_recorded", model=replica.model, node=replica.node_id, error=str(error))

    async def _stop_on_localai(self, replica: Replica, error: NoResponders) -> str:
        """LocalAI's workers confirm a stop since 2026-08-22. Older ones get an order that they do not answer; the
        process has ended when nobody listens at its address."""
        try:
            node = await self._nodes.read_one(replica.node_id)
            if node.speaks_corral or node.status not in (NodeStatus.HEALTHY, NodeStatus.DRAINING):
                return str(error)
            if not replica.process_key:
                return str(error)  # an order without a name would stop everything there
            if replica.address and await self._refuses(replica.address):
                return ""
            request = encode(BackendStopRequest(backend=replica.process_key))
            await self._bus.publish(node_subject(replica.node_id, BACKEND_STOP), request)
        except CorralError as problem:
            return str(problem)
        if not replica.address:
            return ""  # its load failed before the node told where it listens, so nothing can be checked
        until_s = self._clock.monotonic_s() + ENDED_WITHIN_S
        while not await self._refuses(replica.address):
            if self._clock.monotonic_s() > until_s:
                return "the LocalAI worker was told to stop it, and its process still runs"
            await asyncio.sleep(ENDED_POLL_S)
        return ""

    async def _record(self, replica: Replica, problem: str) -> None:
        if not problem:
            await self._replicas.stopped(replica)
            log.info("replica.stopped", model=replica.model, node=replica.node_id, slot=replica.slot)
        else:
            delay_s = RETRIES.delay_s(replica.stop_attempts + 1)
            await self._replicas.stop_failed(replica, problem, again_in_ms=int(delay_s * 1000))
            log.warning("replica.not_stopped", model=replica.model, node=replica.node_id, error=problem)


def _listen_form(address: str) -> str:
    """Workers compare with the address they listen on; LocalAI's accept no other form."""
    port = address.rpartition(":")[2]
    return f"127.0.0.1:{port}" if port else ""


def find_stop_problem(reply: ModelStopReply, expected: str) -> str:
    """Why the process of the row still runs; empty if it has ended. It has also ended where another process has its
    key: that one has another address. LocalAI's workers may say so only in the error text."""
    has_other_address = bool(expected) and reply.address not in ("", expected)
    is_another = reply.matched and (has_other_address or reply.error.startswith("address mismatch"))
    if reply.terminated or is_another:
        return ""
    return reply.error or "the node did not stop it"
