"""Handlers of `backend.*`: install, upgrade, list, stop, delete; and of Corral's own rollback and cancel."""

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
    SmokeTestReply,
    SmokeTestRequest,
    StartedProcess,
    decode,
    encode,
)
from corral.core.errors import CorralError, InvalidInput
from corral.worker.backends.backends import StoppedBackends, process_generation_of
from corral.worker.backends.progress import ProgressTopic, publish_progress
from corral.worker.commands.context import CommandContext
from corral.worker.processes.fitted import fitted_of
from corral.worker.processes.supervisor import RunningProcess


async def install(context: CommandContext, message: BusMessage) -> bytes:
    """With a model: installs if missing, starts a process and returns its address. Without: only installs."""
    request = decode(message.data, InstallRequest)
    # Fast path: a running process needs no further checks.
    if _is_plain(request) and (running := context.replicas.find(request)) is not None:
        return encode(_started(context, running))
    async with publish_progress(_topic(context, request), context.bus.publish) as feed:
        request = _named(request)
        if request.model_id:
            running = await context.replicas.ensure(request, feed=feed)
            start = request.corral.start if request.corral is not None else None
            if start is not None and start.lease_s is not None:
                await context.begin_lease(running.spec.key, start.lease_s)
            return encode(_started(context, running))
        version = await context.backends.install(request, StoppedBackends(), listener=feed.show if feed else None)
        return encode(InstallReply(success=True, corral=_installed(context, version)))


def install_failed(error: CorralError) -> bytes:
    return encode(InstallReply(success=False, error=str(error), code=error.code))


async def upgrade(context: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, InstallRequest)
    stopped = StoppedBackends()
    try:
        async with publish_progress(_topic(context, request), context.bus.publish) as feed:
            version = await context.backends.upgrade(_named(request), stopped, listener=feed.show if feed else None)
    except CorralError as error:
        return encode(_change_failed(error, stopped))
    return encode(_changed(context, stopped, version))


async def delete(context: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, DeleteRequest)
    stopped = StoppedBackends()
    try:
        await context.backends.delete(request, stopped)
    except CorralError as error:
        return encode(_change_failed(error, stopped))
    return encode(_changed(context, stopped, None))


async def rollback(context: CommandContext, message: BusMessage) -> bytes:
    version = await context.backends.rollback(decode(message.data, RollbackRequest))
    return encode(_changed(context, StoppedBackends(), version))


async def smoke_test(context: CommandContext, message: BusMessage) -> bytes:
    tested = await context.smoke_tests.run(decode(message.data, SmokeTestRequest))
    return encode(SmokeTestReply(success=True, tried=tested.tried, detail=tested.detail))


def smoke_test_failed(error: CorralError) -> bytes:
    return encode(SmokeTestReply(success=False, error=str(error), code=error.code))


def change_failed(error: CorralError) -> bytes:
    return encode(_change_failed(error, StoppedBackends()))


async def list_installed(context: CommandContext, _message: BusMessage) -> bytes:
    return encode(ListReply(backends=await context.backends.read_list() or None))


def list_failed(error: CorralError) -> bytes:
    return encode(ListReply(backends=None, error=str(error)))


async def stop(context: CommandContext, message: BusMessage) -> None:
    """Stops processes by backend, model or process key; all of them without a name. Keeps files, sends no reply."""
    request = decode(message.data, BackendStopRequest)
    name = request.backend
    users = {view.key for view in context.backends.users(name)} if name else set()
    keys = [
        view.key
        for view in context.supervisor.list()
        if not name or view.key in users or name in (view.key, view.spec.labels.get("model"))
    ]
    await context.backends.stop(keys, StoppedBackends(), reason="requested by a frontend", unload=not request.force)


async def cancel(context: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, CancelRequest)
    if not request.op_id and not request.backend:
        raise InvalidInput("a cancel needs the id of an operation or the name of a backend")
    cancelled = context.backends.cancel(op_id=request.op_id, backend=request.backend, keep=request.keep)
    if request.op_id:
        cancelled += context.models.jobs.cancel(op_id=request.op_id, keep=request.keep)
    return encode(CancelReply(cancelled=cancelled, in_progress=context.backends.count_changes(request.op_id)))


def cancel_failed(error: CorralError) -> bytes:
    return encode(CancelReply(cancelled=0, error=str(error)))


def _named(request: InstallRequest) -> InstallRequest:
    if not request.backend and not request.name:
        raise InvalidInput("the request has no backend name")
    if request.replica_index < 0:
        raise InvalidInput(f"replica_index is {request.replica_index}; it must not be negative")
    return request if request.backend else msgspec.structs.replace(request, backend=request.name)


def _is_plain(request: InstallRequest) -> bool:
    """Whether the reply is the only effect for a running process: no generation to record, no progress to publish."""
    return bool(request.model_id and request.backend) and process_generation_of(request) is None and not request.op_id


def _topic(context: CommandContext, request: InstallRequest) -> ProgressTopic:
    return ProgressTopic(context.who.node, request.backend or request.name, request.op_id)


def _started(context: CommandContext, running: RunningProcess) -> InstallReply:
    spec = running.spec
    return InstallReply(
        success=True,
        address=f"{context.who.advertise}:{running.port}",
        corral=StartedProcess(
            backend=spec.backend,
            digest=spec.version_digest,
            generation=context.backends.generation(spec.backend),
            protocol=spec.labels.get("protocol"),
            endpoints=tuple(spec.labels.get("endpoints", "").split()),
            continuation=spec.labels.get("continuation", ""),
            process_key=spec.key,
            pid=running.pid,
            token=running.token,
            fitted=fitted_of(spec),
        ),
    )


def _installed(context: CommandContext, version: InstalledVersion) -> StartedProcess:
    return StartedProcess(
        backend=version.name,
        digest=version.digest,
        version=version.metadata.version,
        generation=context.backends.generation(version.name),
        protocol=version.manifest.protocol,
    )


def _changed(context: CommandContext, stopped: StoppedBackends, version: InstalledVersion | None) -> ChangeReply:
    return ChangeReply(
        success=True,
        stopped_process_keys=stopped.keys,
        reports_stopped_processes=True,
        corral=_installed(context, version) if version is not None else None,
    )


def _change_failed(error: CorralError, stopped: StoppedBackends) -> ChangeReply:
    return ChangeReply(
        success=False,
        error=str(error),
        stopped_process_keys=stopped.keys,
        reports_stopped_processes=True,
        code=error.code,
    )
