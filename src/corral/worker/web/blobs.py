"""Serves blobs that this worker is still fetching to the other nodes of its site, which verify them at the end."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from corral.artifacts.sources.site import WAIT_HEADER

__all__ = ["WAIT_HEADER", "GrowingBlob", "GrowingBlobs"]

WAIT_S = 2.0
ENOUGH_BYTES = 1 << 20
GATHER_S = 0.5
PART_BYTES = 4 << 20
CHUNK_BYTES = 128 * 1024
RESPONSES_MOST = 64
"""Sent at the same time; each holds one chunk in memory."""
SEND_WITHIN_S = 60.0
"""A node that reads no faster gives its place to the next one."""

Watch = Callable[[str, Callable[[], None]], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class GrowingBlobs:
    find_partial: Callable[[str], Path | None]
    find_whole: Callable[[str], Path | None]
    watch: Watch
    """Calls back, from any thread, when bytes of a blob arrive or its download ends."""
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(RESPONSES_MOST))


class GrowingBlob(Response):
    """The bytes from the requested offset on that are there, as soon as there are enough of them. 204: none came in
    time."""

    def __init__(self, blobs: GrowingBlobs, digest: str, asked_range: str) -> None:
        super().__init__()
        self._blobs, self._digest, self._range = blobs, digest, asked_range

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = self._range.removeprefix("bytes=").removesuffix("-")
        if not first.isascii() or not first.isdigit() or len(first) > 18:
            response: Response = PlainTextResponse("a range `bytes=N-` is required", status_code=400)
            await response(scope, receive, send)
            return
        found = await self._wait_for(int(first))
        if isinstance(found, Response):
            await found(scope, receive, send)
            return
        try:
            try:
                await asyncio.wait_for(self._blobs.places.acquire(), WAIT_S)
            except TimeoutError:
                await Response(status_code=204)(scope, receive, send)
                return
            try:
                async with asyncio.timeout(SEND_WITHIN_S):
                    await _part(found, int(first))(scope, receive, send)
            finally:
                self._blobs.places.release()
        finally:
            found.close()

    async def _wait_for(self, offset: int) -> Response | FileIO:
        """An open file that has bytes from there on, or the answer."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        began_s = loop.time()

        def changed() -> None:
            loop.call_soon_threadsafe(news.set)

        with self._blobs.watch(self._digest, changed):
            while True:
                news.clear()
                if (whole := self._blobs.find_whole(self._digest)) is not None:
                    return FileResponse(whole, media_type="application/octet-stream")
                partial = self._blobs.find_partial(self._digest)
                if partial is None and self._blobs.find_whole(self._digest) is None:
                    return PlainTextResponse("the download ended without this blob", status_code=404)
                waited_s = loop.time() - began_s
                least = ENOUGH_BYTES if waited_s < GATHER_S else 1
                if partial is not None and (opened := _open(partial, offset, least)) is not None:
                    return opened
                if waited_s >= WAIT_S:
                    return Response(status_code=204)
                try:
                    async with asyncio.timeout((GATHER_S if waited_s < GATHER_S else WAIT_S) - waited_s):
                        await news.wait()
                except TimeoutError:
                    continue


def _open(path: Path, offset: int, least: int) -> FileIO | None:
    """None if there is too little, or the file has just been finished or removed."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    if os.fstat(file.fileno()).st_size - offset >= least:
        return file
    file.close()
    return None


def _part(file: FileIO, offset: int) -> Response:
    descriptor = file.fileno()
    end = min(os.fstat(descriptor).st_size, offset + PART_BYTES)

    async def chunks() -> AsyncIterator[bytes]:
        at = offset
        while at < end and (chunk := await asyncio.to_thread(os.pread, descriptor, min(CHUNK_BYTES, end - at), at)):
            at += len(chunk)
            yield chunk

    headers = {"Content-Range": f"bytes {offset}-{end - 1}/*", "Content-Length": str(end - offset)}
    return StreamingResponse(chunks(), status_code=206, media_type="application/octet-stream", headers=headers)
