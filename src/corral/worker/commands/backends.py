"""`backend.*`: install, upgrade, list, stop, delete; and Corral's own rollback and cancel."""

import msgspec

from corral.artifacts import InstalledVersion
from corral.bus.client import BusMessage
from corral.bus.messages import (
    BackendStopRequest,
    CancelReply,
    CancelRequest,
    ChangeReply,
    DeleteRequest,
    InstallReply,
    InstallRequest,
    ListReply,
    RollbackRequest,
    StartedProcess,
    decode,
    encode,
)
from corral.core.errors import CorralError, InvalidInput
from corral.worker.backends.backends import StoppedBackends, process_generation_of
from corral.worker.backends.progress import ProgressTopic, publish_progress
from corral.worker.commands.context import CommandContext
from corral.worker.processes.supervisor import RunningProcess


async def install(bench: CommandContext, message: BusMessage) -> bytes:
    """With a model: install if missing, start, answer the address. Without: install and start nothing."""
    request = decode(message.data, InstallRequest)
    # A process that runs already is answered before anything else is looked at.
    if _is_plain(request) and (running := bench.replicas.find(request)) is not None:
        return encode(_started(bench, running))
    async with publish_progress(_topic(bench, request), bench.bus.publish) as feed:
        request = _named(request)
        if request.model_id:
            return encode(_started(bench, await bench.replicas.ensure(request, feed=feed)))
        version = await bench.backends.install(request, StoppedBackends(), listener=feed.show if feed else None)
        return encode(InstallReply(success=True, corral=_installed(bench, version)))


def install_failed(error: CorralError) -> bytes:
    return encode(InstallReply(success=False, error=str(error), code=error.code))


async def upgrade(bench: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, InstallRequest)
    stopped = StoppedBackends()
    try:
        async with publish_progress(_topic(bench, request), bench.bus.publish) as feed:
            version = await bench.backends.upgrade(_named(request), stopped, listener=feed.show if feed else None)
    except CorralError as error:
        return encode(_change_failed(error, stopped))
    return encode(_changed(bench, stopped, version))


async def delete(bench: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, DeleteRequest)
    stopped = StoppedBackends()
    try:
        await bench.backends.delete(request, stopped)
    except CorralError as error:
        return encode(_change_failed(error, stopped))
    return encode(_changed(bench, stopped, None))


async def rollback(bench: CommandContext, message: BusMessage) -> bytes:
    version = await bench.backends.rollback(decode(message.data, RollbackRequest))
    return encode(_changed(bench, StoppedBackends(), version))


def change_failed(error: CorralError) -> bytes:
    return encode(_change_failed(error, StoppedBackends()))


async def list_installed(bench: CommandContext, _message: BusMessage) -> bytes:
    return encode(ListReply(backends=await bench.backends.read_list() or None))


def list_failed(error: CorralError) -> bytes:
    return encode(ListReply(backends=None, error=str(error)))


async def stop(bench: CommandContext, message: BusMessage) -> None:
    """By backend, model or process key, whichever match; nothing named means everything. Files stay, nobody waits."""
    request = decode(message.data, BackendStopRequest)
    name = request.backend
    users = {view.key for view in bench.backends.users(name)} if name else set()
    keys = [
        view.key
        for view in bench.supervisor.list()
        if not name or view.key in users or name in (view.key, view.spec.labels.get("model"))
    ]
    await bench.backends.stop(keys, StoppedBackends(), reason="a frontend asked for it", unload=not request.force)


async def cancel(bench: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, CancelRequest)
    if not request.op_id and not request.backend:
        raise InvalidInput("a cancel names an operation or a backend")
    cancelled = bench.backends.cancel(op_id=request.op_id, backend=request.backend, keep=request.keep)
    if request.op_id:
        cancelled += bench.models.jobs.cancel(op_id=request.op_id, keep=request.keep)
    return encode(CancelReply(cancelled=cancelled, going_on=bench.backends.count_changes(request.op_id)))


def cancel_failed(error: CorralError) -> bytes:
    return encode(CancelReply(cancelled=0, error=str(error)))


def _named(request: InstallRequest) -> InstallRequest:
    if not request.backend and not request.name:
        raise InvalidInput("the request names no backend")
    if request.replica_index < 0:
        raise InvalidInput(f"there is no replica {request.replica_index}")
    return request if request.backend else msgspec.structs.replace(request, backend=request.name)


def _is_plain(request: InstallRequest) -> bool:
    """About a process, with nothing to be noted or told beside the answer: a generation is written down, and whoever
    follows an operation hears the end of it."""
    return bool(request.model_id and request.backend) and process_generation_of(request) is None and not request.op_id


def _topic(bench: CommandContext, request: InstallRequest) -> ProgressTopic:
    return ProgressTopic(bench.who.node, request.backend or request.name, request.op_id)


def _started(bench: CommandContext, running: RunningProcess) -> InstallReply:
    spec = running.spec
    return InstallReply(
        success=True,
        address=f"{bench.who.advertise}:{running.port}",
        corral=StartedProcess(
            backend=spec.backend,
            digest=spec.version_digest,
            generation=bench.backends.generation(spec.backend),
            protocol=spec.labels.get("protocol"),
            process_key=spec.key,
            pid=running.pid,
            token=running.token,
        ),
    )


def _installed(bench: CommandContext, version: InstalledVersion) -> StartedProcess:
    return StartedProcess(
        backend=version.name,
        digest=version.digest,
        version=version.metadata.version,
        generation=bench.backends.generation(version.name),
        protocol=version.manifest.protocol,
    )


def _changed(bench: CommandContext, stopped: StoppedBackends, version: InstalledVersion | None) -> ChangeReply:
    return ChangeReply(
        success=True,
        stopped_process_keys=stopped.keys,
        reports_stopped_processes=True,
        corral=_installed(bench, version) if version is not None else None,
    )


def _change_failed(error: CorralError, stopped: StoppedBackends) -> ChangeReply:
    return ChangeReply(
        success=False,
        error=str(error),
        stopped_process_keys=stopped.keys,
        reports_stopped_processes=True,
        code=error.code,
    )
