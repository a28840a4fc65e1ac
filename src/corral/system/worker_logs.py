"""What processes on a worker's machine write, over the worker's own HTTP server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from corral.core.errors import Unavailable
from corral.system.worker_files import FileServer

READ_WITHIN_S = 15.0
LINE_MOST_BYTES = 16 << 20


class WorkerLogs:
    """`find` tells where the server of a node is, and what opens it."""

    def __init__(self, find: Callable[[str], Awaitable[FileServer]]) -> None:
        self._find = find

    async def read_keys(self, node_id: str) -> Any:
        return await self._read(node_id, "/v1/backend-logs")

    async def read(self, node_id: str, key: str) -> Any:
        return await self._read(node_id, f"/v1/backend-logs/{quote(key, safe='')}")

    async def follow(self, node_id: str, key: str) -> AsyncIterator[str]:
        """The worker's messages: first the lines there are, then each as it is written."""
        server = await self._find(node_id)
        url = f"ws{server.url.removeprefix('http')}/v1/backend-logs/{quote(key, safe='')}/ws"
        headers = {"Authorization": f"Bearer {server.token}"}
        try:
            async with connect(
                url, additional_headers=headers, open_timeout=READ_WITHIN_S, max_size=LINE_MOST_BYTES, proxy=None
            ) as socket:
                async for message in socket:
                    yield message if isinstance(message, str) else message.decode("utf-8", "replace")
        except (OSError, TimeoutError, WebSocketException) as error:
            raise _unreachable(server, error) from error

    async def _read(self, node_id: str, path: str) -> Any:
        server = await self._find(node_id)
        try:
            async with httpx.AsyncClient(timeout=READ_WITHIN_S, trust_env=False) as client:
                answer = await client.get(server.url + path, headers={"Authorization": f"Bearer {server.token}"})
                answer.raise_for_status()
                return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _unreachable(server, error) from error


def _unreachable(server: FileServer, error: Exception) -> Unavailable:
    return Unavailable(
        f"the worker at {server.url} did not tell its logs: {str(error) or type(error).__name__};"
        " they are also in its data directory, under logs"
    )
