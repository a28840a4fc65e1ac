"""`/v1/files`: LocalAI's file transfer, answered as its clients expect, errors as plain text."""

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
HEARD_OUT_BYTES = 64 << 20
HEARD_OUT_S = 5.0

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class FileAreas:
    models: Area
    data: Area
    staging: Area
    unique: Callable[[], str]
    quota_bytes: int | None = None
    """What may lie in all three together."""

    def left_bytes(self) -> int | None:
        """Blocking. None without a quota. What is begun and not finished counts as far as it has come."""
        if self.quota_bytes is None:
            return None
        used = sum(area.used_bytes() for area in (self.models, self.data, self.staging))
        return max(0, self.quota_bytes - used)

    def find(self, key: str) -> tuple[Area, str]:
        """The area a key belongs to, and the key inside it."""
        head, slash, rest = key.partition("/")
        if slash and head in ("models", "data"):
            return (self.models if head == "models" else self.data), rest
        return self.staging, key


def file_routes(areas: FileAreas) -> list[Route]:
    server = _Files(areas, Uploads(areas.left_bytes))
    return [
        Route("/v1/files/temp", _told(server.make_temp), methods=["POST"]),
        Route("/v1/files/{key:path}", _told(server.head), methods=["HEAD"]),
        Route("/v1/files/{key:path}", _told(server.get), methods=["GET"]),
        Route("/v1/files/{key:path}", _told(server.put), methods=["PUT"]),
        Route("/v1/files/{key:path}", _told(server.delete), methods=["DELETE"]),
        Route("/v1/files-list/{key:path}", _told(server.list), methods=["GET"]),
    ]


def _told(endpoint: Endpoint) -> Endpoint:
    """Errors in plain words, with the status LocalAI's client looks at."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except NotFound as error:
            return PlainTextResponse(str(error), status_code=404)
        except InvalidInput as error:
            return PlainTextResponse(str(error), status_code=400)
        except NoSpace as error:
            await _hear_out(request)
            return PlainTextResponse(str(error), status_code=507)
        except CorralError as error:
            return PlainTextResponse(str(error), status_code=500)
        except ClientDisconnect:
            return PlainTextResponse("the sender disconnected", status_code=400)
        except OSError as error:
            return PlainTextResponse(f"the file could not be used: {error.strerror}", status_code=500)

    return answer


async def _hear_out(request: Request) -> None:
    """Whoever is still sending would meet a closed connection instead of our answer. Bounded, and thrown away."""
    left = HEARD_OUT_BYTES
    with contextlib.suppress(ClientDisconnect, TimeoutError, RuntimeError):
        async with asyncio.timeout(HEARD_OUT_S):
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
            raise NotFound("there is no such file")
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
        given = request.headers.get("content-range")
        wanted = parse_content_range(given) if given is not None else None
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdigit() else None
        if size is not None and size > LARGEST_BODY_BYTES:
            return PlainTextResponse("the body is larger than 50 GiB", status_code=413)
        sha256 = check_sha256(request.headers.get("x-content-sha256"))
        outcome = await self.uploads.put(area, key, request.stream(), wanted=wanted, sha256=sha256, length=size)
        match outcome:
            case AlreadyThere():
                await _hear_out(request)
                return JSONResponse({"local_path": str(area.path(key))})
            case OtherFile():
                return PlainTextResponse("a different file exists there; restart the upload", status_code=409)
            case OtherOffset(size=have):
                total = wanted.total if wanted is not None else have
                headers = {"X-File-Size": str(have), "Content-Range": f"bytes */{total}"}
                return PlainTextResponse(f"the file has {have} bytes", status_code=416, headers=headers)
            case received if not received.complete:
                headers = {"Range": f"bytes=0-{received.size - 1}", "X-File-Size": str(received.size)}
                return Response(status_code=308, headers=headers)
            case _:
                return JSONResponse({"local_path": str(area.path(key))})

    async def delete(self, request: Request) -> Response:
        """Of what belongs to one request; everything else goes by order of the fleet."""
        area, key = self.areas.find(request.path_params["key"])
        if area is not self.areas.staging or split_key(key)[0] != EPHEMERAL or len(split_key(key)) < 3:
            raise InvalidInput(f"only files below {EPHEMERAL}/ can be deleted here, one at a time")
        if not await asyncio.to_thread(area.remove, key):
            raise NotFound("there is no such file")
        return Response(status_code=204)

    async def make_temp(self, _request: Request) -> Response:
        area, name = self.areas.staging, f"{OUTPUT_PREFIX}{self.areas.unique()}.tmp"
        (await asyncio.to_thread(area.open, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)).close()
        return JSONResponse({"local_path": str(area.path(name))})

    async def list(self, request: Request) -> Response:
        area, key = self.areas.find(request.path_params["key"])
        return JSONResponse({"files": await asyncio.to_thread(area.read_names, key) or None})


def _header(area: Area, key: str) -> str:
    """Headers are Latin-1; a path that is not is told by the body of the PUT."""
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
