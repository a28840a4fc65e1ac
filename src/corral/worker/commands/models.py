"""`model.*` and `models.running`."""

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


async def running(bench: CommandContext, _message: BusMessage) -> bytes:
    """From memory and the kernel: no backend is asked, so none can keep us waiting."""
    models = [
        RunningModel(
            model_id=view.spec.labels.get("model", ""),
            replica_index=int(view.spec.labels.get("replica", "0")),
            address=f"127.0.0.1:{view.port}" if view.port is not None else None,
        )
        for view in bench.replicas.live()
    ]
    return encode(ModelsRunningReply(models=models, epoch=bench.epoch))


def running_failed(error: CorralError) -> bytes:
    return encode(ModelsRunningReply(models=[], error=str(error)))


async def stop(bench: CommandContext, message: BusMessage) -> bytes:
    """Exactly one process, and only if it is the one meant: whoever has the key now may be a successor."""
    request = decode(message.data, ModelStopRequest)
    key = ProcessKey(request.process_key)
    view = bench.supervisor.get(key)
    if view is None:
        return encode(ModelStopReply(matched=False, freed=False, terminated=True, process_key=key))
    address = f"127.0.0.1:{view.port}" if view.port is not None else ""
    # Only the port: frontends know the process by the advertised host, we by our own.
    expected_port = request.expected_address.rpartition(":")[2]
    if expected_port and view.port is not None and expected_port != str(view.port):
        mismatch = f"address mismatch: {key} is at {address}, not at {request.expected_address}"
        reply = ModelStopReply(
            matched=True, freed=False, terminated=False, process_key=key, address=address, error=mismatch
        )
        return encode(reply)
    goodbye = _Goodbye()
    await bench.supervisor.stop(key, reason="a frontend asked for it", before=None if request.force else goodbye.say)
    # Before the answer: who is told that it is gone looks at once whether something fits into its place.
    await bench.tell_room()
    return encode(
        ModelStopReply(
            matched=True, freed=goodbye.freed, terminated=True, process_key=key, address=address, error=goodbye.problem
        )
    )


def stop_failed(error: CorralError) -> bytes:
    return encode(ModelStopReply(matched=True, freed=False, terminated=False, process_key="", error=str(error)))


class _Goodbye:
    """Asks the backend to unload, and remembers what it said."""

    def __init__(self) -> None:
        self.freed = False
        self.problem = ""

    async def say(self, view: ProcessView) -> None:
        try:
            await free_model(view)
        except CorralError as error:
            self.problem = str(error)
        else:
            self.freed = view.spec.readiness.kind == "grpc"


async def unload(bench: CommandContext, message: BusMessage) -> bytes:
    """Frees every process of the model. The processes stay; that they may not be able to free is no failure."""
    request = decode(message.data, ModelUnloadRequest)
    port = request.address.rpartition(":")[2]
    wanted = [
        view
        for view in bench.supervisor.list()
        if isinstance(view.state, Ready)
        and view.spec.labels.get("model") == request.model_name
        and port in ("", str(view.port))
    ]
    await asyncio.gather(*(_Goodbye().say(view) for view in wanted))
    return encode(DoneReply(success=True))


async def delete(bench: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, ModelDeleteRequest)
    if request.epoch is not None and request.epoch != bench.epoch:
        raise Conflict("this deletion was meant for the worker that ran here before; ask again")
    await bench.models.delete(request.model_name, generation=request.generation)
    return encode(DoneReply(success=True))


async def fetch(bench: CommandContext, message: BusMessage) -> bytes:
    """Weights to this disk, from wherever they are; then which of the model's paths there are."""
    request = decode(message.data, ModelFetchRequest)
    topic = ProgressTopic(bench.who.node, request.model, request.op_id)
    async with publish_progress(topic, bench.bus.publish) as feed:
        files = await bench.models.fetch(request, listener=feed.show if feed else None)
    return encode(ModelFetchReply(success=True, files=files, found=await bench.models.find(request.paths)))


def fetch_failed(error: CorralError) -> bytes:
    return encode(ModelFetchReply(success=False, error=str(error), code=error.code))


def failed(error: CorralError) -> bytes:
    return encode(DoneReply(success=False, error=str(error)))
