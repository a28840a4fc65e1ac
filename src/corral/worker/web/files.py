"""`/v1/files`: LocalAI's file transfer protocol, with errors as plain text."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from io import FileIO

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from corral.core.errors import CorralError, InvalidInput, NotFound
from corral.core.processes.uploads import AlreadyThere, OtherFile, OtherOffset, check_sha256, parse_content_range
from corral.worker.files.areas import Area, split_key
from corral.worker.files.temporary_files import EPHEMERAL, OUTPUT_PREFIX
from corral.worker.files.upload_body import LARGEST_BODY_BYTES, NoSpace
from corral.worker.files.uploads import Uploads, read_stored

PIECE_BYTES = 1 << 20
DISCARD_MOST_BYTES = 64 << 20
DISCARD_WITHIN_S = 5.0

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class FileAreas:
    models: Area
    data: Area
    staging: Area
    unique: Callable[[], str]
    quota_bytes: int | None = None
    """The limit of all three areas together."""

    def left_bytes(self) -> int | None:
        """Blocking. None without a quota. Incomplete uploads count with their current size."""
        if self.quota_bytes is None:
            return None
        used = sum(area.used_bytes() for area in (self.models, self.data, self.staging))
        return max(0, self.quota_bytes - used)

    def find(self, key: str) -> tuple[Area, str]:
        """The area of a key, and the key inside it."""
        head, slash, rest = key.partition("/")
        if slash and head in ("models", "data"):
            return (self.models if head == "models" else self.data), rest
        return self.staging, key


def file_routes(areas: FileAreas) -> list[Route]:
    server = _Files(areas, Uploads(areas.left_bytes))
    return [
        Route("/v1/files/temp", _with_plain_errors(server.make_temp), methods=["POST"]),
        Route("/v1/files/{key:path}", _with_plain_errors(server.head), methods=["HEAD"]),
        Route("/v1/files/{key:path}", _with_plain_errors(server.get), methods=["GET"]),
        Route("/v1/files/{key:path}", _with_plain_errors(server.put), methods=["PUT"]),
        Route("/v1/files/{key:path}", _with_plain_errors(server.delete), methods=["DELETE"]),
        Route("/v1/files-list/{key:path}", _with_plain_errors(server.list), methods=["GET"]),
    ]


def _with_plain_errors(endpoint: Endpoint) -> Endpoint:
    """Converts errors to plain text, with the status codes that LocalAI's client expects."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except NotFound as error:
            return PlainTextResponse(str(error), status_code=404)
        except InvalidInput as error:
            return PlainTextResponse(str(error), status_code=400)
        except NoSpace as error:
            await _discard_body(request)
            return PlainTextResponse(str(error), status_code=507)
        except CorralError as error:
            return PlainTextResponse(str(error), status_code=500)
        except ClientDisconnect:
            return PlainTextResponse("the client disconnected", status_code=400)
        except OSError as error:
            return PlainTextResponse(f"cannot access the file: {error.strerror}", status_code=500)

    return answer


async def _discard_body(request: Request) -> None:
    """Reads and discards a bounded part of the body: a client that is still sending would otherwise see a closed
    connection instead of the response."""
    left = DISCARD_MOST_BYTES
    with contextlib.suppress(ClientDisconnect, TimeoutError, RuntimeError):
        async with asyncio.timeout(DISCARD_WITHIN_S):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return


@dataclass(frozen=True, slots=True)
class _Files:
    areas: FileAreas
    uploads: Uploads

    async def head(self, request: Request) -> Response:
        area, key = self.areas.find(request.path_params["key"])
        stored = await asyncio.to_thread(read_stored, area, key, with_hash=True)
        if stored.size is None:
            raise NotFound("no such file")
        headers = {
            "X-File-Size": str(stored.size),
            "Content-Length": str(stored.size),
            "X-Local-Path": _header(area, key),
            "Accept-Ranges": "bytes",
        }
        if stored.target is not None:
            headers["X-Target-SHA256"] = stored.target
        elif stored.sha256 is not None:
            headers["X-Content-SHA256"] = stored.sha256
        return Response(headers=headers)

    async def get(self, request: Request) -> Response:
        area, key = self.areas.find(request.path_params["key"])
        file = await asyncio.to_thread(area.open, key, os.O_RDONLY)
        size = os.fstat(file.fileno()).st_size
        return StreamingResponse(
            _pieces(file, size), media_type="application/octet-stream", headers={"Content-Length": str(size)}
        )

    async def put(self, request: Request) -> Response:
        area, key = self.areas.find(request.path_params["key"])
        header = request.headers.get("content-range")
        content_range = parse_content_range(header) if header is not None else None
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdigit() else None
        if size is not None and size > LARGEST_BODY_BYTES:
            return PlainTextResponse("the body is larger than 50 GiB; split the file", status_code=413)
        sha256 = check_sha256(request.headers.get("x-content-sha256"))
        outcome = await self.uploads.put(
            area, key, request.stream(), content_range=content_range, sha256=sha256, length=size
        )
        match outcome:
            case AlreadyThere():
                await _discard_body(request)
                return JSONResponse({"local_path": str(area.path(key))})
            case OtherFile():
                return PlainTextResponse(
                    "a different file exists under this name; restart the upload at offset 0", status_code=409
                )
            case OtherOffset(size=have):
                total = content_range.total if content_range is not None else have
                headers = {"X-File-Size": str(have), "Content-Range": f"bytes */{total}"}
                return PlainTextResponse(f"the file has {have} bytes", status_code=416, headers=headers)
            case received if not received.complete:
                headers = {"Range": f"bytes=0-{received.size - 1}", "X-File-Size": str(received.size)}
                return Response(status_code=308, headers=headers)
            case _:
                return JSONResponse({"local_path": str(area.path(key))})

    async def delete(self, request: Request) -> Response:
        """Deletes files of one request. Other files are deleted only by commands on the bus."""
        area, key = self.areas.find(request.path_params["key"])
        if area is not self.areas.staging or split_key(key)[0] != EPHEMERAL or len(split_key(key)) < 3:
            raise InvalidInput(f"only single files below {EPHEMERAL}/ can be deleted")
        if not await asyncio.to_thread(area.remove, key):
            raise NotFound("no such file")
        return Response(status_code=204)

    async def make_temp(self, _request: Request) -> Response:
        area, name = self.areas.staging, f"{OUTPUT_PREFIX}{self.areas.unique()}.tmp"
        (await asyncio.to_thread(area.open, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)).close()
        return JSONResponse({"local_path": str(area.path(name))})

    async def list(self, request: Request) -> Response:
        area, key = self.areas.find(request.path_params["key"])
        return JSONResponse({"files": await asyncio.to_thread(area.read_names, key) or None})


def _header(area: Area, key: str) -> str:
    """Headers are Latin-1; other characters are replaced. The response to PUT contains the exact path."""
    return str(area.path(key)).encode("latin-1", errors="replace").decode("latin-1")


async def _pieces(file: FileIO, size: int) -> AsyncIterator[bytes]:
    with file:
        left = size
        while left > 0:
            piece = await asyncio.to_thread(file.read, min(PIECE_BYTES, left))
            if not piece:
                return
            left -= len(piece)
            yield piece
