"""Handlers of `model.*` and `models.running`."""

import asyncio

from corral.bus.client import BusMessage
from corral.bus.messages import (
    DoneReply,
    ModelDeleteRequest,
    ModelFetchReply,
    ModelFetchRequest,
    ModelsRunningReply,
    ModelStopReply,
    ModelStopRequest,
    ModelUnloadRequest,
    RunningModel,
    decode,
    encode,
)
from corral.core.errors import Conflict, CorralError
from corral.core.processes.process import ProcessKey, ProcessView, Ready
from corral.worker.backends.progress import ProgressTopic, publish_progress
from corral.worker.commands.context import CommandContext
from corral.worker.processes.localai_grpc import free_model


async def running(context: CommandContext, _message: BusMessage) -> bytes:
    """From memory and the kernel: does not call backends, so an unresponsive backend cannot delay it."""
    models = [
        RunningModel(
            model_id=view.spec.labels.get("model", ""),
            replica_index=int(view.spec.labels.get("replica", "0")),
            address=f"127.0.0.1:{view.port}" if view.port is not None else None,
        )
        for view in context.replicas.live()
    ]
    return encode(ModelsRunningReply(models=models, epoch=context.epoch))


def running_failed(error: CorralError) -> bytes:
    return encode(ModelsRunningReply(models=[], error=str(error)))


async def stop(context: CommandContext, message: BusMessage) -> bytes:
    """Stops one process, only if its address matches: the key may belong to a successor."""
    request = decode(message.data, ModelStopRequest)
    key = ProcessKey(request.process_key)
    view = context.supervisor.get(key)
    if view is None:
        return encode(ModelStopReply(matched=False, freed=False, terminated=True, process_key=key))
    address = f"127.0.0.1:{view.port}" if view.port is not None else ""
    # Compares only the port: frontends know the process by the advertised host.
    expected_port = request.expected_address.rpartition(":")[2]
    if expected_port and view.port is not None and expected_port != str(view.port):
        mismatch = f"address mismatch: {key} is at {address}, not at {request.expected_address}"
        reply = ModelStopReply(
            matched=True, freed=False, terminated=False, process_key=key, address=address, error=mismatch
        )
        return encode(reply)
    unload = _ModelUnload()
    await context.supervisor.stop(key, reason="requested by a frontend", before=None if request.force else unload.run)
    # Before the reply: the frontend uses the freed capacity as soon as it receives the reply.
    await context.report_capacity()
    return encode(
        ModelStopReply(
            matched=True, freed=unload.freed, terminated=True, process_key=key, address=address, error=unload.problem
        )
    )


def stop_failed(error: CorralError) -> bytes:
    return encode(ModelStopReply(matched=True, freed=False, terminated=False, process_key="", error=str(error)))


class _ModelUnload:
    """Asks the backend to unload its model, and stores the outcome."""

    def __init__(self) -> None:
        self.freed = False
        self.problem = ""

    async def run(self, view: ProcessView) -> None:
        try:
            await free_model(view)
        except CorralError as error:
            self.problem = str(error)
        else:
            self.freed = view.spec.readiness.kind == "grpc"


async def unload(context: CommandContext, message: BusMessage) -> bytes:
    """Asks every process of the model to unload it. The processes continue; it is no failure if they cannot unload."""
    request = decode(message.data, ModelUnloadRequest)
    port = request.address.rpartition(":")[2]
    ready = [
        view
        for view in context.supervisor.list()
        if isinstance(view.state, Ready)
        and view.spec.labels.get("model") == request.model_name
        and port in ("", str(view.port))
    ]
    await asyncio.gather(*(_ModelUnload().run(view) for view in ready))
    return encode(DoneReply(success=True))


async def delete(context: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, ModelDeleteRequest)
    if request.epoch is not None and request.epoch != context.epoch:
        raise Conflict("the delete was sent to an earlier worker process of this node; try again")
    await context.models.delete(request.model_name, generation=request.generation)
    return encode(DoneReply(success=True))


async def fetch(context: CommandContext, message: BusMessage) -> bytes:
    """Downloads weights to this disk; the reply lists which of the model's paths exist."""
    request = decode(message.data, ModelFetchRequest)
    topic = ProgressTopic(context.who.node, request.model, request.op_id)
    async with publish_progress(topic, context.bus.publish) as feed:
        files = await context.models.fetch(request, listener=feed.show if feed else None)
    return encode(ModelFetchReply(success=True, files=files, found=await context.models.find(request.paths)))


def fetch_failed(error: CorralError) -> bytes:
    return encode(ModelFetchReply(success=False, error=str(error), code=error.code))


def failed(error: CorralError) -> bytes:
    return encode(DoneReply(success=False, error=str(error)))
