"""Handlers of `files.*`: staging through shared S3 storage."""

from corral.bus.client import BusMessage
from corral.bus.messages import FileReply, FileRequest, ListDirReply, decode, encode
from corral.core.errors import CorralError, Unavailable
from corral.worker.commands.context import CommandContext
from corral.worker.files.object_storage import SharedStorage


async def ensure(context: CommandContext, message: BusMessage) -> bytes:
    path = await _storage(context).ensure(decode(message.data, FileRequest).key)
    return encode(FileReply(local_path=str(path)))


async def stage(context: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, FileRequest)
    await _storage(context).stage(request.local_path, request.key)
    return encode(FileReply(key=request.key))


async def temp(context: CommandContext, _message: BusMessage) -> bytes:
    return encode(FileReply(local_path=str(await _storage(context).make_temp())))


async def listdir(context: CommandContext, message: BusMessage) -> bytes:
    files = await _storage(context).list(decode(message.data, FileRequest).key_prefix)
    return encode(ListDirReply(files=files or None))


def failed(error: CorralError) -> bytes:
    return encode(FileReply(error=str(error)))


def listdir_failed(error: CorralError) -> bytes:
    return encode(ListDirReply(files=None, error=str(error)))


def _storage(context: CommandContext) -> SharedStorage:
    if context.storage is None:
        raise Unavailable("this worker has no shared storage; set --storage-url")
    return context.storage
