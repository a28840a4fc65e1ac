"""The command that a worker gets for an intent, the same at the first attempt and at every retry."""

from collections.abc import Sequence
from dataclasses import dataclass

from corral.bus.messages import (
    BlobPeer,
    ChangeReply,
    CommandExtras,
    DeleteRequest,
    InstallReply,
    InstallRequest,
    RollbackRequest,
    decode,
    encode,
)
from corral.bus.subjects import BACKEND_DELETE, BACKEND_INSTALL, BACKEND_ROLLBACK, BACKEND_UPGRADE
from corral.core.backends.intents import Intent, Verb
from corral.core.errors import InvalidInput

ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    success: bool
    error: str = ""
    code: str = ""


def build_command(intent: Intent, peers: Sequence[BlobPeer] = ()) -> tuple[str, bytes]:
    """The subject's last part, and the body."""
    match intent.verb:
        case Verb.INSTALL:
            return BACKEND_INSTALL, encode(_install(intent, peers, strategy=None, force=intent.spec.force))
        case Verb.UPGRADE:
            return BACKEND_UPGRADE, encode(_install(intent, peers, strategy=ROLLING, force=False))
        case Verb.DELETE:
            extras = CommandExtras(generation=intent.generation, build=intent.spec.build, op_id=intent.operation_id)
            return BACKEND_DELETE, encode(DeleteRequest(backend=intent.backend, corral=extras))
        case Verb.ROLLBACK:
            request = RollbackRequest(
                backend=intent.backend,
                to=intent.spec.build.digest or None,
                generation=intent.generation,
                build=intent.spec.build.name or None,
                op_id=intent.operation_id,
            )
            return BACKEND_ROLLBACK, encode(request)
        case Verb.PIN | Verb.FOLLOW:
            raise InvalidInput(f"{intent.verb} is a verb of operations; intents upgrade or install")


def build_fallback(intent: Intent) -> tuple[str, bytes] | None:
    """For workers without the upgrade subject: an install with force. None for the other verbs."""
    if intent.verb is not Verb.UPGRADE:
        return None
    return BACKEND_INSTALL, encode(_install(intent, (), strategy=None, force=True))


def _install(intent: Intent, peers: Sequence[BlobPeer], *, strategy: str | None, force: bool) -> InstallRequest:
    spec = intent.spec
    return InstallRequest(
        backend=spec.reference if not spec.uri else intent.backend,
        backend_galleries=spec.galleries,
        uri=spec.uri,
        name=spec.build.name,
        alias=spec.build.alias,
        force=force,
        op_id=intent.operation_id,
        corral=CommandExtras(
            generation=intent.generation,
            strategy=strategy,
            build=spec.build,
            peers=list(peers) or None,
        ),
    )


def read_answer(intent: Intent, data: bytes) -> WorkerAnswer:
    reply: InstallReply | ChangeReply
    reply = decode(data, InstallReply) if intent.verb is Verb.INSTALL else decode(data, ChangeReply)
    return WorkerAnswer(reply.success, reply.error, reply.code or "")
