"""The S3 client against a server that fails in every way. tests/system/test_buckets.py uses a real server."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from corral.core.errors import Conflict, NotFound, Unavailable
from corral.system import SystemClock
from corral.system.ids import SystemIds
from corral.system.s3 import ATTEMPTS, PART_BYTES, ObjectInfo, S3Bucket, S3Settings

CONTENT = bytes(range(256)) * 400


class NoDelay(SystemIds):
    """Back-off between half of a step and the whole: tests take the shorter one."""

    def __init__(self) -> None:
        super().__init__()
        self.draw = lambda: 0.0


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedS3:
    """Answers each request with the bytes that `answer` returns, and closes."""

    answer: Callable[[Request], bytes]
    requests: list[Request] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        writer.write(self.answer(request))
        await writer.drain()
        writer.close()


@asynccontextmanager
async def running(answer: Callable[[Request], bytes]) -> AsyncIterator[tuple[S3Bucket, ScriptedS3]]:
    scripted = ScriptedS3(answer)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = S3Settings(endpoint=url, access_key="k", secret_key="s")
        yield S3Bucket(settings, "shared", clock=SystemClock(), ids=NoDelay()), scripted


def response(status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read(bucket: S3Bucket) -> bytes:
    return b"".join([piece async for piece in bucket.read("weights", ObjectInfo(len(CONTENT), '"1"', "today"))])


async def test_a_read_resumes_where_the_connection_broke() -> None:
    def answer(request: Request) -> bytes:
        offset = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        rest = CONTENT[offset:]
        return response(206 if offset else 200, rest[:30_000], length=len(rest))

    async with running(answer) as (bucket, server):
        assert await read(bucket) == CONTENT
    assert len(server.requests) == 4
    assert {request.headers["if-match"] for request in server.requests} == {'"1"'}


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        pytest.param(412, Unavailable, "changed while it was read", id="replaced-meanwhile"),
        pytest.param(404, NotFound, "has no object 'weights'", id="deleted-meanwhile"),
        pytest.param(403, Unavailable, "AccessDenied: no", id="forbidden"),
    ],
)
async def test_a_final_status_is_not_retried(status: int, error: type[Exception], words: str) -> None:
    body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    async with running(lambda _: response(status, body)) as (bucket, server):
        with pytest.raises(error, match=words):
            await read(bucket)
    assert len(server.requests) == 1


async def test_a_server_that_keeps_failing_ends_the_attempts() -> None:
    async with running(lambda _: response(503, b"busy")) as (bucket, server):
        with pytest.raises(Unavailable, match=rf"failed {ATTEMPTS} times in a row: status 503: busy"):
            await bucket.delete("weights")
    assert len(server.requests) == ATTEMPTS


async def test_a_transient_failure_is_retried_and_a_missing_object_counts_as_deleted() -> None:
    statuses = iter([500, 404])
    async with running(lambda _: response(next(statuses))) as (bucket, server):
        await bucket.delete("weights")
    assert [request.method for request in server.requests] == ["DELETE", "DELETE"]


def two_parts(path: Path) -> Path:
    path.write_bytes(os.urandom(PART_BYTES + 10))
    return path


def multipart(request: Request, *, complete: bytes) -> bytes:
    if request.method == "POST" and request.target.endswith("?uploads="):
        return response(200, b"<InitiateMultipartUploadResult><UploadId>u 1</UploadId></InitiateMultipartUploadResult>")
    if request.method == "PUT":
        return response(200, ETag=f'"{len(request.body)}"')
    return response(204) if request.method == "DELETE" else complete


async def test_a_large_file_is_sent_in_parts_under_its_exact_key(tmp_path: Path) -> None:
    path = two_parts(tmp_path / "weights")
    moved: list[int] = []
    complete = response(200, b"<CompleteMultipartUploadResult/>")
    async with running(lambda request: multipart(request, complete=complete)) as (bucket, server):
        with path.open("rb", buffering=0) as file:
            await bucket.put("a//b c", file, PART_BYTES + 10, on_bytes=moved.append)
    assert sorted(moved) == [10, PART_BYTES]
    assert {request.target.partition("?")[0] for request in server.requests} == {"/shared/a//b%20c"}
    assert f'<PartNumber>1</PartNumber><ETag>"{PART_BYTES}"</ETag>'.encode() in server.requests[-1].body


@pytest.mark.parametrize(
    ("complete", "error"),
    [
        pytest.param(response(200, b"<Error><Code>InternalError</Code></Error>"), "InternalError", id="error-with-200"),
        pytest.param(response(200, b"<!DOCTYPE x><x/>"), "invalid S3 response", id="declarations"),
        pytest.param(response(400, b"<Error><Code>InvalidPart</Code></Error>"), "InvalidPart", id="rejected"),
    ],
)
async def test_a_failed_upload_is_aborted(tmp_path: Path, complete: bytes, error: str) -> None:
    path = two_parts(tmp_path / "weights")
    async with running(lambda request: multipart(request, complete=complete)) as (bucket, server):
        with path.open("rb", buffering=0) as file, pytest.raises(Unavailable, match=error):
            await bucket.put("weights", file, PART_BYTES + 10)
    assert (server.requests[-1].method, server.requests[-1].target) == ("DELETE", "/shared/weights?uploadId=u%201")


@pytest.mark.parametrize("size", [10, PART_BYTES + 20])
async def test_a_file_that_became_shorter_is_not_stored(tmp_path: Path, size: int) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(size - 5))
    async with running(lambda request: multipart(request, complete=response(200))) as (bucket, server):
        with path.open("rb", buffering=0) as file, pytest.raises(Conflict, match="became shorter"):
            await bucket.put("weights", file, size)
    assert not any(request.method == "POST" and "uploadId" in request.target for request in server.requests)


async def test_a_completion_whose_reply_was_lost_counts_when_the_object_is_there(tmp_path: Path) -> None:
    path = two_parts(tmp_path / "weights")
    replies = iter([b"", response(404)])  # the first attempt succeeds silently, the second finds no upload

    def answer(request: Request) -> bytes:
        if request.method == "HEAD":
            return response(200, length=PART_BYTES + 10)
        if request.method == "POST" and "uploadId" in request.target:
            return next(replies)
        return multipart(request, complete=b"")

    async with running(answer) as (bucket, server):
        with path.open("rb", buffering=0) as file:
            await bucket.put("weights", file, PART_BYTES + 10)
    assert server.requests[-1].method == "HEAD"
