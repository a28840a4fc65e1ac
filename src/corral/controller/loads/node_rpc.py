"""One load's questions to its node, asked with patience."""

import asyncio

import structlog

from corral.bus.messages import CancelRequest, encode
from corral.bus.subjects import CANCEL, MODEL_FETCH, node_subject
from corral.controller.loads.context import LoadContext, LoadJobFailed, NodeLost
from corral.controller.loads.progress import LoadTracker
from corral.core.errors import CorralError, NoResponders, NotFound, OutcomeUnknown, Unavailable
from corral.core.nodes.node import Node, NodeStatus

log = structlog.get_logger()

ASK_WITHIN_S = 60.0
ASK_AGAIN_S = 1.0
CALL_OFF_WITHIN_S = 5.0


class NodeRpc:
    def __init__(self, tools: LoadContext, headway: LoadTracker) -> None:
        self._tools, self._headway = tools, headway

    async def ask(self, node: Node, verb: str, data: bytes) -> bytes:
        """Silence is borne for the step's window since the last sign of life; then the work is called off."""
        self._headway.note_sign()
        while True:
            try:
                return await self._tools.bus.request(node_subject(node.id, verb), data, within_s=ASK_WITHIN_S)
            except NoResponders as error:
                if verb == MODEL_FETCH and not node.speaks_corral:
                    raise
                problem: CorralError = error
            except (OutcomeUnknown, Unavailable) as error:
                problem = error
            await self._check_node(node)
            if self._headway.is_stalled:
                step, quiet_s = self._headway.progress.state.value, self._headway.quiet_s
                raise LoadJobFailed(f"{node.name} gave no sign of life for {quiet_s:.0f} s while {step}: {problem}")
            await asyncio.sleep(ASK_AGAIN_S)

    async def _check_node(self, node: Node) -> None:
        try:
            now = await self._tools.stores.nodes.read_one(node.id)
        except NotFound:
            raise NodeLost(f"{node.name} was removed") from None
        except CorralError as error:
            log.warning("load.node_not_checked", node=node.name, error=str(error))
            return
        if now.status in (NodeStatus.OFFLINE, NodeStatus.PENDING):
            raise NodeLost(f"{node.name} is {now.status.value}")

    async def call_off(self, op_id: str, *, keep: bool = False) -> None:
        """Giving up stops the work, so that it does not finish for nobody. `keep`: what came so far stays there."""
        if self._headway.node_id is None:
            return
        try:
            subject, request = node_subject(self._headway.node_id, CANCEL), CancelRequest(op_id=op_id, keep=keep)
            await self._tools.bus.request(subject, encode(request), within_s=CALL_OFF_WITHIN_S)
        except CorralError as error:
            log.debug("load.cancel_not_heard", op=op_id, error=str(error))
