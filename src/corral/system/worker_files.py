"""Files of a request on a worker's machine, over the worker's own file server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from urllib.parse import quote

import httpx
import structlog

from corral.core.errors import CorralError, OutcomeUnknown, TooLarge, Unavailable
from corral.core.sizes import format_bytes
from corral.system.ids import Ids

log = structlog.get_logger()

ANSWER_MOST_BYTES = 512 << 20
STEP_WITHIN_S = 60.0
DROP_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class FileServer:
    url: str
    token: str = field(repr=False)


class WorkerFiles:
    """`find` tells where the file server of a node is, and what opens it."""

    def __init__(self, find: Callable[[str], Awaitable[FileServer]], *, ids: Ids) -> None:
        self._find = find
        self._ids = ids

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        # Most frontends never need it, and making it takes a tenth of a second.
        return httpx.AsyncClient(timeout=STEP_WITHIN_S, trust_env=False)

    async def put(self, node_id: str, data: bytes, *, suffix: str) -> str:
        key = f"ephemeral/inputs/{self._ids.uuid()}{suffix}"
        answer = await self._send(node_id, "PUT", f"/v1/files/{quote(key)}", data)
        return str(answer.json()["local_path"])

    async def make_output(self, node_id: str, *, suffix: str) -> str:
        """An empty file there: whoever writes to it need not be the one who may make files."""
        key = f"ephemeral/outputs/{self._ids.uuid()}{suffix}"
        answer = await self._send(node_id, "PUT", f"/v1/files/{quote(key)}", b"")
        return str(answer.json()["local_path"])

    async def fetch(self, node_id: str, path: str) -> bytes:
        key = f"ephemeral/outputs/{PurePosixPath(path).name}"
        server = await self._find(node_id)
        parts: list[bytes] = []
        size = 0
        try:
            async with self._client.stream(
                "GET", f"{server.url}/v1/files/{quote(key)}", headers=_headers(server)
            ) as answer:
                _check(answer, server)
                async for part in answer.aiter_bytes():
                    size += len(part)
                    if size > ANSWER_MOST_BYTES:
                        raise TooLarge(f"the answer is larger than {format_bytes(ANSWER_MOST_BYTES)}")
                    parts.append(part)
        except httpx.HTTPError as error:
            raise _failure(server, error) from error
        return b"".join(parts)

    async def drop(self, node_id: str, path: str) -> None:
        """Where this cannot be done the worker does it, later."""
        key = "/".join(PurePosixPath(path).parts[-3:])
        try:
            server = await self._find(node_id)
            answer = await self._client.delete(
                f"{server.url}/v1/files/{quote(key)}", headers=_headers(server), timeout=DROP_WITHIN_S
            )
        except (CorralError, httpx.HTTPError) as error:
            log.info("files.not_dropped", node=node_id, error=str(error) or type(error).__name__)
        else:
            if answer.status_code not in (204, 404):
                log.info("files.not_dropped", node=node_id, error=f"it answered {answer.status_code}")

    async def close(self) -> None:
        if "_client" in vars(self):
            await self._client.aclose()

    async def _send(self, node_id: str, method: str, path: str, data: bytes) -> httpx.Response:
        server = await self._find(node_id)
        try:
            answer = await self._client.request(method, server.url + path, content=data, headers=_headers(server))
        except httpx.HTTPError as error:
            raise _failure(server, error) from error
        _check(answer, server)
        return answer


def _headers(server: FileServer) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"} if server.token else {}


def _check(answer: httpx.Response, server: FileServer) -> None:
    if answer.status_code != 200:
        raise Unavailable(f"the file server of the model's machine ({server.url}) answered {answer.status_code}")


def _failure(server: FileServer, error: httpx.HTTPError) -> Unavailable | OutcomeUnknown:
    text = f"the file server of the model's machine ({server.url}): {str(error) or type(error).__name__}"
    return Unavailable(text) if isinstance(error, httpx.ConnectError) else OutcomeUnknown(text)
