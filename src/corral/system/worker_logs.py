"""Logs of the backend processes on a node, over the worker's HTTP server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from corral.core.errors import Unavailable
from corral.system.http_call import NoAnswer, NoConnection, http_call
from corral.system.json import decode_json
from corral.system.worker_files import FileServer

READ_WITHIN_S = 15.0
LINE_MOST_BYTES = 16 << 20
LOG_MOST_BYTES = 64 << 20


class WorkerLogs:
    """`find` returns the HTTP server of a node and its token."""

    def __init__(self, find: Callable[[str], Awaitable[FileServer]]) -> None:
        self._find = find

    async def read_keys(self, node_id: str) -> Any:
        return await self._read(node_id, "/v1/backend-logs")

    async def read(self, node_id: str, key: str) -> Any:
        return await self._read(node_id, f"/v1/backend-logs/{quote(key, safe='')}")

    async def follow(self, node_id: str, key: str) -> AsyncIterator[str]:
        """Yields the worker's messages: first the existing lines, then each new one."""
        server = await self._find(node_id)
        url = f"ws{server.url.removeprefix('http')}/v1/backend-logs/{quote(key, safe='')}/ws"
        try:
            async with connect(
                url, additional_headers=server.headers, open_timeout=READ_WITHIN_S, max_size=LINE_MOST_BYTES, proxy=None
            ) as socket:
                async for message in socket:
                    yield message if isinstance(message, str) else message.decode("utf-8", "replace")
        except (OSError, TimeoutError, WebSocketException) as error:
            raise _unreachable(server, error) from error

    async def _read(self, node_id: str, path: str) -> Any:
        server = await self._find(node_id)
        try:
            answer = await http_call(
                "GET",
                server.url + path,
                headers=server.headers,
                within_s=READ_WITHIN_S,
                most_bytes=LOG_MOST_BYTES,
            )
            if not 200 <= answer.status < 300:
                raise ValueError(f"status {answer.status}")
            return decode_json(answer.body, Any)
        except (NoConnection, NoAnswer, ValueError) as error:  # msgspec's DecodeError is a ValueError
            raise _unreachable(server, error) from error


def _unreachable(server: FileServer, error: Exception) -> Unavailable:
    return Unavailable(
        f"cannot read logs from the worker at {server.url}: {str(error) or type(error).__name__}."
        " The logs are also in the worker's data directory, under logs"
    )
