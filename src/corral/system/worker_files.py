"""Files of one request on a worker's machine, over the worker's file server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import quote

import msgspec
import structlog

from corral.core.errors import CorralError, OutcomeUnknown, TooLarge, Unavailable
from corral.core.sizes import format_bytes
from corral.system.http_call import NoAnswer, NoConnection, http_call, open_http
from corral.system.ids import Ids
from corral.system.json import decode_json

log = structlog.get_logger()

ANSWER_MOST_BYTES = 512 << 20
STALL_S = 60.0
DROP_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class FileServer:
    url: str
    token: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class _Stored(msgspec.Struct, frozen=True):
    local_path: str


class WorkerFiles:
    """`find` returns the file server of a node and its token."""

    def __init__(self, find: Callable[[str], Awaitable[FileServer]], *, ids: Ids) -> None:
        self._find = find
        self._ids = ids

    async def put(self, node_id: str, data: bytes, *, suffix: str) -> str:
        return await self._put(node_id, f"ephemeral/inputs/{self._ids.uuid()}{suffix}", data)

    async def make_output(self, node_id: str, *, suffix: str) -> str:
        """Creates an empty file, because the process that writes to it may not be allowed to create files."""
        return await self._put(node_id, f"ephemeral/outputs/{self._ids.uuid()}{suffix}", b"")

    async def fetch(self, node_id: str, path: str) -> bytes:
        server = await self._find(node_id)
        url = _url(server, f"ephemeral/outputs/{PurePosixPath(path).name}")
        parts: list[bytes] = []
        size = 0
        try:
            async with open_http("GET", url, headers=server.headers, stall_s=STALL_S) as response:
                _check(response.status, server)
                while part := await response.read():
                    size += len(part)
                    if size > ANSWER_MOST_BYTES:
                        raise TooLarge(f"the output is larger than {format_bytes(ANSWER_MOST_BYTES)}")
                    parts.append(part)
        except (NoConnection, NoAnswer) as error:
            raise _failure(server, error) from error
        return b"".join(parts)

    async def drop(self, node_id: str, path: str) -> None:
        """Deletes a file of a request. When that fails, the worker deletes it later."""
        key = "/".join(PurePosixPath(path).parts[-3:])
        try:
            server = await self._find(node_id)
            answer = await http_call("DELETE", _url(server, key), headers=server.headers, within_s=DROP_WITHIN_S)
        except (CorralError, NoConnection, NoAnswer) as error:
            log.info("files.not_dropped", node=node_id, error=str(error) or type(error).__name__)
        else:
            if answer.status not in (204, 404):
                log.info("files.not_dropped", node=node_id, error=f"the file server returned {answer.status}")

    async def _put(self, node_id: str, key: str, data: bytes) -> str:
        server = await self._find(node_id)
        try:
            async with open_http(
                "PUT", _url(server, key), body=data, headers=server.headers, stall_s=STALL_S
            ) as response:
                _check(response.status, server)
                content = await response.read_all()
        except (NoConnection, NoAnswer) as error:
            raise _failure(server, error) from error
        try:
            return decode_json(content, _Stored).local_path
        except msgspec.DecodeError as error:
            raise OutcomeUnknown(f"the file server at {server.url} sent an invalid response: {error}") from error


@dataclass(frozen=True, slots=True)
class RemoteFile:
    path: str
    """Absolute, on the worker's machine."""
    size: int | None
    """None for a directory."""


class _Listing(msgspec.Struct, frozen=True):
    files: list[str] | None = None


async def look_up(server: FileServer, key: str) -> RemoteFile | None:
    """A file or directory on the worker's machine; None if there is none, or its upload is incomplete."""
    found = await _look_up_file(server, key)
    if found is not None:
        return found
    # LocalAI's file servers describe no directory, only the files in it.
    names = await _list_directory(server, key)
    inner = await _look_up_file(server, f"{key}/{names[0]}") if names else None
    return RemoteFile(inner.path.removesuffix(f"/{names[0]}"), None) if inner is not None else None


async def _look_up_file(server: FileServer, key: str) -> RemoteFile | None:
    try:
        answer = await http_call("HEAD", _url(server, key), headers=server.headers, within_s=STALL_S)
    except (NoConnection, NoAnswer) as error:
        raise _failure(server, error) from error
    if answer.status in (400, 404):  # 400: a directory
        return None
    _check(answer.status, server)
    path, size = answer.headers.get("x-local-path", ""), answer.headers.get("x-file-size", "")
    is_complete = "x-target-sha256" not in answer.headers
    return RemoteFile(path, int(size)) if path and size.isdigit() and is_complete else None


async def _list_directory(server: FileServer, key: str) -> list[str]:
    url = f"{server.url}/v1/files-list/{quote(key)}"
    try:
        answer = await http_call("GET", url, headers=server.headers, within_s=STALL_S)
    except (NoConnection, NoAnswer) as error:
        raise _failure(server, error) from error
    if answer.status in (400, 404):
        return []
    _check(answer.status, server)
    try:
        return sorted(decode_json(answer.body, _Listing).files or [])
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the file server at {server.url} sent an invalid response: {error}") from error


def _url(server: FileServer, key: str) -> str:
    return f"{server.url}/v1/files/{quote(key)}"


def _check(status: int, server: FileServer) -> None:
    if status != 200:
        raise Unavailable(f"the file server of the model's node ({server.url}) returned {status}")


def _failure(server: FileServer, error: NoConnection | NoAnswer) -> Unavailable | OutcomeUnknown:
    text = f"the file server of the model's node ({server.url}) failed: {error}"
    return Unavailable(text) if isinstance(error, NoConnection) else OutcomeUnknown(text)
