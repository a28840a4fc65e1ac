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
from corral.core.backends.build import plain_name
from corral.core.backends.intents import Intent, Verb
from corral.core.errors import InvalidInput

ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    success: bool
    error: str = ""
    code: str = ""
    stopped: tuple[str, ...] = ()
    """Process keys of processes that a LocalAI worker has ended, also if the change failed afterwards."""


def build_command(intent: Intent, peers: Sequence[BlobPeer] = (), *, localai: bool = False) -> tuple[str, bytes]:
    """The subject's last part, and the body. `localai`: the node runs a LocalAI worker."""
    if localai:
        return _build_for_localai(intent)
    match intent.verb:
        case Verb.INSTALL:
            return BACKEND_INSTALL, encode(_install(intent, peers, strategy=None, force=intent.spec.force))
        case Verb.UPGRADE:
            return BACKEND_UPGRADE, encode(_install(intent, peers, strategy=ROLLING, force=intent.spec.force))
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
            raise _not_an_intent(intent)


def _not_an_intent(intent: Intent) -> InvalidInput:
    return InvalidInput(f"{intent.verb} is a verb of operations; intents upgrade or install")


def build_fallback(intent: Intent) -> tuple[str, bytes] | None:
    """For LocalAI workers from before 2026-05-08, which have no upgrade subject: an install with force. None for the
    other verbs."""
    if intent.verb is not Verb.UPGRADE:
        return None
    return BACKEND_INSTALL, encode(_plain_install(intent, force=True))


def _build_for_localai(intent: Intent) -> tuple[str, bytes]:
    """Without Corral's part: a LocalAI worker looks names up and keeps no generations."""
    match intent.verb:
        case Verb.INSTALL:
            return BACKEND_INSTALL, encode(_plain_install(intent, force=intent.spec.force))
        case Verb.UPGRADE:
            return BACKEND_UPGRADE, encode(_plain_install(intent, force=False))
        case Verb.DELETE:
            return BACKEND_DELETE, encode(DeleteRequest(backend=intent.backend))
        case Verb.ROLLBACK:
            raise InvalidInput("a LocalAI worker does not keep earlier versions, so it cannot be rolled back")
        case Verb.PIN | Verb.FOLLOW:
            raise _not_an_intent(intent)


def _plain_install(intent: Intent, *, force: bool) -> InstallRequest:
    """The name is sent without its gallery: a LocalAI worker would make it part of the backend's name. The list of
    galleries has only the one that was named."""
    spec = intent.spec
    return InstallRequest(
        backend=plain_name(spec.reference) if not spec.uri else intent.backend,
        backend_galleries=spec.galleries,
        uri=spec.uri,
        name=spec.build.name if spec.uri else "",
        alias=spec.build.alias if spec.uri else "",
        force=force,
        op_id=intent.operation_id,
    )


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
    if intent.verb is Verb.INSTALL:
        installed = decode(data, InstallReply)
        return WorkerAnswer(installed.success, installed.error, installed.code or "")
    changed = decode(data, ChangeReply)
    stopped = tuple(changed.stopped_process_keys) if changed.reports_stopped_processes else ()
    return WorkerAnswer(changed.success, changed.error, changed.code or "", stopped)
