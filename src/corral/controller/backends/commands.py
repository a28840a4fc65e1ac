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
class Answer:
    success: bool
    error: str = ""
    code: str = ""


def build_command(intent: Intent, peers: Sequence[BlobPeer] = ()) -> tuple[str, bytes]:
    """The subject's verb and the body."""
    match intent.verb:
        case Verb.INSTALL:
            return BACKEND_INSTALL, encode(_install(intent, peers, strategy=None, force=intent.wish.force))
        case Verb.UPGRADE:
            return BACKEND_UPGRADE, encode(_install(intent, peers, strategy=ROLLING, force=False))
        case Verb.DELETE:
            extras = CommandExtras(
                generation=intent.generation, build=intent.wish.name or None, op_id=intent.operation_id
            )
            return BACKEND_DELETE, encode(DeleteRequest(backend=intent.backend, corral=extras))
        case Verb.ROLLBACK:
            request = RollbackRequest(
                backend=intent.backend,
                to=intent.wish.digest or None,
                generation=intent.generation,
                build=intent.wish.name or None,
                op_id=intent.operation_id,
            )
            return BACKEND_ROLLBACK, encode(request)


def build_fallback(intent: Intent) -> tuple[str, bytes] | None:
    """For workers older than the subject: an upgrade was an install with force."""
    if intent.verb is not Verb.UPGRADE:
        return None
    return BACKEND_INSTALL, encode(_install(intent, (), strategy=None, force=True))


def _install(intent: Intent, peers: Sequence[BlobPeer], *, strategy: str | None, force: bool) -> InstallRequest:
    wish = intent.wish
    return InstallRequest(
        backend=wish.element if not wish.uri else intent.backend,
        backend_galleries=wish.galleries,
        uri=wish.uri,
        name=wish.name,
        alias=wish.alias,
        force=force,
        op_id=intent.operation_id,
        corral=CommandExtras(
            generation=intent.generation,
            strategy=strategy,
            digest=wish.digest or None,
            uris=list(wish.uris) or None,
            version=wish.version or None,
            sha256=wish.sha256 or None,
            manifest=msgspec.json.decode(wish.manifest) if wish.manifest else None,
            peers=list(peers) or None,
        ),
    )


def read_answer(intent: Intent, data: bytes) -> Answer:
    reply: InstallReply | ChangeReply
    reply = decode(data, InstallReply) if intent.verb is Verb.INSTALL else decode(data, ChangeReply)
    return Answer(reply.success, reply.error, reply.code or "")
