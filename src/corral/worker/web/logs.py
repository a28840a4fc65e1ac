"""`/v1/backend-logs`: logs of processes, and a live stream of them over a WebSocket."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.core.processes.log_lines import LogLine
from corral.core.processes.process import ProcessKey
from corral.worker.processes.first_of import first_of
from corral.worker.processes.logs import KEPT_LINES, LogPosition, ProcessLog, ProcessLogs, log_record

LOOK_EVERY_S = 1.0
BEGINNING = LogPosition(0, 0)


def log_routes(logs: ProcessLogs) -> list[BaseRoute]:
    server = _Logs(logs)
    return [
        Route("/v1/backend-logs", server.read_keys, methods=["GET"]),
        WebSocketRoute("/v1/backend-logs/{key:path}/ws", server.follow),
        Route("/v1/backend-logs/{key:path}", server.read, methods=["GET"]),
    ]


@dataclass(frozen=True, slots=True)
class _Logs:
    logs: ProcessLogs

    async def read_keys(self, _request: Request) -> Response:
        return _json(sorted(await asyncio.to_thread(self.logs.keys)))

    async def read(self, request: Request) -> Response:
        keys = await asyncio.to_thread(self._keys, request.path_params["key"])
        lines: list[LogLine] = []
        for key in keys:
            lines += await asyncio.to_thread(self.logs.of(key).tail)
        lines.sort(key=lambda line: line.at_ms)
        return _json([log_record(line) for line in lines])

    async def follow(self, socket: WebSocket) -> None:
        """A client slower than the process misses lines; the process is not slowed down."""
        keys = await asyncio.to_thread(self._keys, socket.path_params["key"])
        await socket.accept()
        taken = [(log, *await asyncio.to_thread(log.snapshot)) for log in map(self.logs.of, keys)]
        lines = sorted((line for _, seen, _ in taken for line in seen), key=lambda line: line.at_ms)
        first = {"type": "initial", "lines": [log_record(line) for line in lines[-KEPT_LINES:]]}
        places = {key: place for key, (_, _, place) in zip(keys, taken, strict=True)}
        try:
            await socket.send_text(msgspec.json.encode(first).decode())
            await first_of(_until_closed(socket), self._send_all(socket, places))
        except WebSocketDisconnect:
            return

    async def _send_all(self, socket: WebSocket, places: Mapping[ProcessKey, LogPosition]) -> None:
        """Also streams replicas that start later, from their first line."""
        requested = socket.path_params["key"]
        followed: set[ProcessKey] = set()
        async with asyncio.TaskGroup() as tasks:
            keys: Iterable[ProcessKey] = places
            while True:
                for key in keys:
                    if key not in followed:
                        followed.add(key)
                        tasks.create_task(_send_on(socket, self.logs.of(key), places.get(key, BEGINNING)))
                await asyncio.sleep(LOOK_EVERY_S)
                keys = await asyncio.to_thread(self._keys, requested)

    def _keys(self, requested: str) -> list[ProcessKey]:
        """The process with this key, or all replicas of the model with this id."""
        if "#" in requested:
            return [ProcessKey(requested)]
        return [key for key in self.logs.keys() if key.rpartition("#")[0] == requested]  # noqa: SIM118  not a dict


async def _send_on(socket: WebSocket, log: ProcessLog, place: LogPosition) -> None:
    """`_until_closed` detects that the client has disconnected."""
    with suppress(WebSocketDisconnect):
        async for lines in log.follow(place):
            for line in lines:
                await socket.send_text(msgspec.json.encode({"type": "line", "line": log_record(line)}).decode())


async def _until_closed(socket: WebSocket) -> None:
    while True:
        await socket.receive_text()


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
