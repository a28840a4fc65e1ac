"""Corral's own questions about the node: its report, and what a process wrote."""

import asyncio
from datetime import UTC, datetime

from corral.bus.client import BusMessage
from corral.bus.messages import LogRecord, LogsReply, LogsRequest, decode, encode
from corral.core.errors import CorralError
from corral.core.log_lines import LogLine
from corral.core.processes import ProcessKey
from corral.worker.commands.workbench import Workbench

MOST_LINES = 1000


async def report(bench: Workbench, _message: BusMessage) -> bytes:
    return encode(bench.reporter.build(bench.who, with_secrets=True))


async def logs(bench: Workbench, message: BusMessage) -> bytes:
    request = decode(message.data, LogsRequest)
    log = bench.supervisor.logs.of(ProcessKey(request.process_key))
    lines = await asyncio.to_thread(log.tail, max(1, min(request.lines, MOST_LINES)))
    return encode(LogsReply(lines=[log_record(line) for line in lines]))


def logs_failed(error: CorralError) -> bytes:
    return encode(LogsReply(lines=None, error=str(error)))


def log_record(line: LogLine) -> LogRecord:
    at = datetime.fromtimestamp(line.at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return LogRecord(timestamp=at.replace("+00:00", "Z"), stream=line.stream, text=line.text)
