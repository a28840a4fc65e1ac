"""The worker's command handlers on the bus, one per subject."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corral.artifacts.errors import disk_errors
from corral.bus import subjects
from corral.bus.client import Bus, BusMessage
from corral.bus.subjects import node_inbox, node_reply_space, node_subject
from corral.core.errors import CorralError, Unavailable
from corral.system.shortage import is_resource_shortage
from corral.worker.commands import backends, files, models, node
from corral.worker.commands.context import CommandContext

Handler = Callable[[CommandContext, BusMessage], Awaitable[bytes | None]]
Failed = Callable[[CorralError], bytes]

# Long commands wait for locks and downloads, not for the CPU: the limit only bounds the number of pending commands.
MANY = 256
SOME = 32


@dataclass(frozen=True, slots=True)
class Command:
    subject: str
    handler: Handler
    failed: Failed | None = None
    """Converts an error into the reply of this subject; None if the subject has no reply."""
    concurrency: int = SOME


COMMANDS = (
    Command(subjects.BACKEND_INSTALL, backends.install, backends.install_failed, MANY),
    Command(subjects.BACKEND_UPGRADE, backends.upgrade, backends.change_failed, MANY),
    Command(subjects.BACKEND_DELETE, backends.delete, backends.change_failed, MANY),
    Command(subjects.BACKEND_ROLLBACK, backends.rollback, backends.change_failed, MANY),
    Command(subjects.BACKEND_SMOKE_TEST, backends.smoke_test, backends.smoke_test_failed),
    Command(subjects.BACKEND_LIST, backends.list_installed, backends.list_failed),
    Command(subjects.BACKEND_STOP, backends.stop, None, MANY),
    Command(subjects.CANCEL, backends.cancel, backends.cancel_failed),
    Command(subjects.MODEL_STOP, models.stop, models.stop_failed, MANY),
    Command(subjects.MODEL_UNLOAD, models.unload, models.failed),
    Command(subjects.MODEL_DELETE, models.delete, models.failed),
    Command(subjects.MODEL_FETCH, models.fetch, models.fetch_failed, MANY),
    Command(subjects.MODELS_RUNNING, models.running, models.running_failed),
    Command(subjects.REPORT_NOW, node.report, models.failed),
    Command(subjects.LOGS, node.logs, node.logs_failed),
)
# Served only with shared storage: a frontend interprets "no responders" as "no storage". Subscribed first, so that they
# are available whenever the worker is reachable.
FILE_COMMANDS = (
    Command(subjects.FILES_ENSURE, files.ensure, files.failed),
    Command(subjects.FILES_STAGE, files.stage, files.failed),
    Command(subjects.FILES_TEMP, files.temp, files.failed),
    Command(subjects.FILES_LISTDIR, files.listdir, files.listdir_failed),
)


def reply_guard(node_id: str, *, frontend_is_localai: bool) -> Callable[[str], bool]:
    """Accepts only reply subjects of clients of this node, not those of other nodes."""
    own = (node_reply_space(node_id).removesuffix(">"), node_inbox(node_id) + ".")
    return (lambda reply: reply.startswith("_INBOX.")) if frontend_is_localai else (lambda reply: reply.startswith(own))


async def serve_commands(
    bus: Bus, context: CommandContext, *, stop: Callable[[], None], frontend_is_localai: bool
) -> None:
    node_id = context.who.node
    may_reply = reply_guard(node_id, frontend_is_localai=frontend_is_localai)

    async def stop_worker(_message: BusMessage) -> None:
        stop()

    for command in (*(FILE_COMMANDS if context.storage is not None else ()), *COMMANDS):
        await bus.serve(
            node_subject(node_id, command.subject),
            _bound(command, context),
            concurrency=command.concurrency,
            answers=command.failed,
            may_reply=may_reply,
        )
    await bus.serve(node_subject(node_id, subjects.STOP), stop_worker, concurrency=1, may_reply=may_reply)


def _bound(command: Command, context: CommandContext) -> Callable[[BusMessage], Awaitable[bytes | None]]:
    async def handle(message: BusMessage) -> bytes | None:
        try:
            return await command.handler(context, message)
        except (MemoryError, RuntimeError, OSError) as error:
            if is_resource_shortage(error):
                raise Unavailable(
                    f"this machine is out of memory, threads or open files ({str(error) or type(error).__name__})."
                    " Stop a process on it, or try again later"
                ) from error
            with disk_errors(f"running {command.subject}"):
                raise

    return handle
