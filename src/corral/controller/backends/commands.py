"""From an intent to the message a worker gets: the same for the first attempt and for every retry."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

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

ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    success: bool
    error: str = ""
    code: str = ""


def build_command(intent: Intent, peers: Sequence[BlobPeer] = ()) -> tuple[str, bytes]:
    """The subject's verb and the body."""
    match intent.verb:
        case Verb.INSTALL:
            return BACKEND_INSTALL, encode(_install(intent, peers, strategy=None, force=intent.spec.force))
        case Verb.UPGRADE:
            return BACKEND_UPGRADE, encode(_install(intent, peers, strategy=ROLLING, force=False))
        case Verb.DELETE:
            extras = CommandExtras(
                generation=intent.generation, build=intent.spec.name or None, op_id=intent.operation_id
            )
            return BACKEND_DELETE, encode(DeleteRequest(backend=intent.backend, corral=extras))
        case Verb.ROLLBACK:
            request = RollbackRequest(
                backend=intent.backend,
                to=intent.spec.digest or None,
                generation=intent.generation,
                build=intent.spec.name or None,
                op_id=intent.operation_id,
            )
            return BACKEND_ROLLBACK, encode(request)


def build_fallback(intent: Intent) -> tuple[str, bytes] | None:
    """For workers older than the subject: an upgrade was an install with force."""
    if intent.verb is not Verb.UPGRADE:
        return None
    return BACKEND_INSTALL, encode(_install(intent, (), strategy=None, force=True))


def _install(intent: Intent, peers: Sequence[BlobPeer], *, strategy: str | None, force: bool) -> InstallRequest:
    spec = intent.spec
    return InstallRequest(
        backend=spec.reference if not spec.uri else intent.backend,
        backend_galleries=spec.galleries,
        uri=spec.uri,
        name=spec.name,
        alias=spec.alias,
        force=force,
        op_id=intent.operation_id,
        corral=CommandExtras(
            generation=intent.generation,
            strategy=strategy,
            digest=spec.digest or None,
            uris=list(spec.uris) or None,
            version=spec.version or None,
            sha256=spec.sha256 or None,
            manifest=msgspec.json.decode(spec.manifest) if spec.manifest else None,
            peers=list(peers) or None,
        ),
    )


def read_answer(intent: Intent, data: bytes) -> WorkerAnswer:
    reply: InstallReply | ChangeReply
    reply = decode(data, InstallReply) if intent.verb is Verb.INSTALL else decode(data, ChangeReply)
    return WorkerAnswer(reply.success, reply.error, reply.code or "")
