"""Handlers of Corral's own node queries: the node report and process logs."""

import asyncio

from corral.bus.client import BusMessage
from corral.bus.messages import LogsReply, LogsRequest, decode, encode
from corral.core.errors import CorralError
from corral.core.processes.process import ProcessKey
from corral.worker.commands.context import CommandContext
from corral.worker.processes.logs import log_record

MOST_LINES = 1000


async def report(context: CommandContext, _message: BusMessage) -> bytes:
    return encode(context.reporter.build(context.who, with_secrets=True))


async def logs(context: CommandContext, message: BusMessage) -> bytes:
    request = decode(message.data, LogsRequest)
    log = context.supervisor.logs.of(ProcessKey(request.process_key))
    lines = await asyncio.to_thread(log.tail, max(1, min(request.lines, MOST_LINES)))
    return encode(LogsReply(lines=[log_record(line) for line in lines]))


def logs_failed(error: CorralError) -> bytes:
    return encode(LogsReply(lines=None, error=str(error)))
