"""The asynchronous HTTP client against sockets that answer in every way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from corral.system.http_call import HEAD_BYTES, NoAnswer, NoConnection, http_call, open_http
from harness.ports import free_port


@asynccontextmanager
async def answering(answer: bytes, *, stays_open: bool = False) -> AsyncIterator[str]:
    """A server that reads one request, sends these bytes and closes, or keeps the connection open."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if stays_open:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ended.set()


@pytest.mark.parametrize(
    ("method", "answer", "status", "body"),
    [
        pytest.param("GET", b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end", id="ends-with-the-connection"),
        pytest.param("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", 200, b"", id="head-has-no-body"),
        pytest.param("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="no-content"),
        pytest.param(
            "PUT",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
            201,
            b"ok",
            id="an-interim-response-is-skipped",
        ),
    ],
)
async def test_a_response_is_read_to_its_end(method: str, answer: bytes, status: int, body: bytes) -> None:
    async with answering(answer) as url:
        found = await http_call(method, f"{url}/x", headers={}, within_s=30)
    assert (found.status, found.body) == (status, body)


async def test_headers_are_found_by_lower_case_names() -> None:
    async with answering(b'HTTP/1.1 200 OK\r\nETag: "7"\r\nContent-Length: 0\r\n\r\n') as url:
        found = await http_call("GET", url, headers={}, within_s=30)
    assert found.headers["etag"] == '"7"'


async def test_a_response_beyond_the_limit_is_rejected() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(3 << 20)) as url:
        with pytest.raises(NoAnswer, match="larger than 2 MiB"):
            await http_call("GET", url, headers={}, within_s=30, most_bytes=2 << 20)


async def test_endless_headers_are_rejected() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 * HEAD_BYTES)) as url:
        with pytest.raises(NoAnswer):
            await http_call("GET", url, headers={}, within_s=30)


async def test_a_stream_yields_what_arrived_and_then_reports_the_broken_connection() -> None:
    async with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst") as url,
        open_http("GET", url, headers={}, stall_s=30) as response,
    ):
        assert (response.status, await response.read()) == (200, b"first")
        with pytest.raises(NoAnswer, match="before the response was complete"):
            await response.read()


async def test_a_stream_ends_when_nothing_arrives() -> None:
    async with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst", stays_open=True) as url,
        open_http("GET", url, headers={}, stall_s=0.2) as response,
    ):
        await response.read()
        with pytest.raises(NoAnswer, match=r"no data arrived within 0\.2 s"):
            await response.read()


async def test_a_refused_connection_is_no_connection() -> None:
    with pytest.raises(NoConnection):
        async with open_http("GET", f"http://127.0.0.1:{free_port()}/", headers={}, stall_s=5):
            pass
