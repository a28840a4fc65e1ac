"""`files.*`: staging through shared S3 storage."""

from corral.bus.client import BusMessage
from corral.bus.messages import FileReply, FileRequest, ListDirReply, decode, encode
from corral.core.errors import CorralError, Unavailable
from corral.worker.commands.context import CommandContext
from corral.worker.files.object_storage import SharedStorage


async def ensure(bench: CommandContext, message: BusMessage) -> bytes:
    path = await _storage(bench).ensure(decode(message.data, FileRequest).key)
    return encode(FileReply(local_path=str(path)))


async def stage(bench: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, FileRequest)
    await _storage(bench).stage(request.local_path, request.key)
    return encode(FileReply(key=request.key))


async def temp(bench: CommandContext, _message: BusMessage) -> bytes:
    return encode(FileReply(local_path=str(await _storage(bench).make_temp())))


async def listdir(bench: CommandContext, message: BusMessage) -> bytes:
    files = await _storage(bench).list(decode(message.data, FileRequest).key_prefix)
    return encode(ListDirReply(files=files or None))


def failed(error: CorralError) -> bytes:
    return encode(FileReply(error=str(error)))


def listdir_failed(error: CorralError) -> bytes:
    return encode(ListDirReply(files=None, error=str(error)))


def _storage(bench: CommandContext) -> SharedStorage:
    if bench.storage is None:
        raise Unavailable("this worker shares no storage; give it one with --storage-url")
    return bench.storage
