"""Requests of one load to its node: retried until the node answers, is lost, or shows no activity for too long."""

import asyncio

import structlog

from corral.bus.messages import CancelRequest, encode
from corral.bus.subjects import CANCEL, node_subject
from corral.controller.loads.ports import LoadServices
from corral.controller.loads.tracker import LoadTracker
from corral.core.errors import CorralError, NotFound, OutcomeUnknown, Unavailable
from corral.core.nodes.node import Node, NodeStatus

log = structlog.get_logger()

ASK_WITHIN_S = 60.0
ASK_AGAIN_S = 1.0
CANCEL_WITHIN_S = 5.0


class LoadJobFailed(Unavailable):
    """The load failed on this node. Another node may succeed."""

    code = "model_load_failed"


class NodeLost(Unavailable):
    """The node of the load went offline or was removed. The load is placed again."""

    code = "node_lost"


class NodeRpc:
    def __init__(self, services: LoadServices, tracker: LoadTracker) -> None:
        self._services, self._tracker = services, tracker

    async def request(self, node: Node, verb: str, data: bytes) -> bytes:
        """Raises LoadJobFailed when the node shows no activity for the window of the current step."""
        self._tracker.note_activity()
        while True:
            try:
                return await self._services.bus.request(node_subject(node.id, verb), data, within_s=ASK_WITHIN_S)
            except (OutcomeUnknown, Unavailable) as error:
                problem: CorralError = error
            await self._check_node(node)
            if self._tracker.is_stalled:
                step, quiet_s = self._tracker.progress.state.value, self._tracker.quiet_s
                raise LoadJobFailed(f"{node.name} reported no activity for {quiet_s:.0f} s while {step}: {problem}")
            await asyncio.sleep(ASK_AGAIN_S)

    async def _check_node(self, node: Node) -> None:
        try:
            now = await self._services.stores.nodes.read_one(node.id)
        except NotFound:
            raise NodeLost(f"{node.name} was removed") from None
        except CorralError as error:
            log.warning("load.node_not_checked", node=node.name, error=str(error))
            return
        if now.status in (NodeStatus.OFFLINE, NodeStatus.PENDING):
            raise NodeLost(f"{node.name} is {now.status.value}")

    async def cancel(self, op_id: str, *, keep: bool = False) -> None:
        """Stop the work on the node. `keep`: files that it has downloaded so far stay there."""
        if self._tracker.node_id is None:
            return
        try:
            subject, request = node_subject(self._tracker.node_id, CANCEL), CancelRequest(op_id=op_id, keep=keep)
            await self._services.bus.request(subject, encode(request), within_s=CANCEL_WITHIN_S)
        except CorralError as error:
            log.debug("load.cancel_failed", op=op_id, error=str(error))
