"""What the fleet may ask of this machine over the bus: one small handler per subject."""

from collections.abc import Callable

from corral.bus.client import Bus, BusMessage
from corral.bus.messages import ModelsRunningReply, encode
from corral.bus.subjects import MODELS_RUNNING, STOP, node_inbox, node_reply_space, node_subject
from corral.core.errors import CorralError


def reply_guard(node_id: str, *, frontend_is_localai: bool) -> Callable[[str], bool]:
    """Only to whoever may ask this node: a reply address in another node's space is not used."""
    own = (node_reply_space(node_id).removesuffix(">"), node_inbox(node_id) + ".")
    return (lambda reply: reply.startswith("_INBOX.")) if frontend_is_localai else (lambda reply: reply.startswith(own))


async def serve_commands(bus: Bus, node_id: str, *, stop: Callable[[], None], frontend_is_localai: bool) -> None:
    may_reply = reply_guard(node_id, frontend_is_localai=frontend_is_localai)

    async def models_running(_message: BusMessage) -> bytes:
        """Answers at once; no backend is running before the supervisor starts one."""
        return encode(ModelsRunningReply(models=[]))

    async def stop_worker(_message: BusMessage) -> None:
        stop()

    def models_running_failed(error: CorralError) -> bytes:
        return encode(ModelsRunningReply(models=[], error=str(error)))

    await bus.serve(
        node_subject(node_id, MODELS_RUNNING),
        models_running,
        concurrency=16,
        answers=models_running_failed,
        may_reply=may_reply,
    )
    await bus.serve(node_subject(node_id, STOP), stop_worker, concurrency=1, may_reply=may_reply)
