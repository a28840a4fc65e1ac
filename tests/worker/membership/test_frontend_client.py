"""The worker's calls to frontends, against real sockets that answer in every way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from corral.bus.node_api import HeartbeatRequest
from corral.core.errors import Fenced, NotFound, OutcomeUnknown, Unavailable
from corral.system.http_call import NoAnswer, http_call
from corral.worker.membership.frontend_client import FrontendClient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that reads one request, sends these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        pytest.param(OK, 200, b"[]", id="a-length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\n\r\n",
            200,
            b"[]",
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, b"", id="nothing"),
    ],
)
async def test_an_answer_is_read_however_it_is_framed(answer: bytes, status: int, body: bytes) -> None:
    async with answering(answer) as url:
        found = await http_call("GET", f"{url}/x", headers={}, within_s=30)
    assert (found.status, found.body) == (status, body)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[]", b"SSH-2.0-OpenSSH_9.2\r\n", OK[:10]]
)
async def test_half_an_answer_is_none(answer: bytes) -> None:
    async with answering(answer) as url:
        with pytest.raises(NoAnswer):
            await http_call("GET", f"{url}/x", headers={}, within_s=30)


async def test_silence_ends_in_time() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        with pytest.raises(NoAnswer, match="within"):
            await http_call("GET", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", headers={}, within_s=0.2)


async def test_no_header_can_bring_another_line() -> None:
    with pytest.raises(ValueError, match="line break"):
        await http_call("GET", "http://127.0.0.1:1/", headers={"Authorization": "a\r\nX: y"}, within_s=1)


@pytest.mark.parametrize(("status", "kind"), [(409, Fenced), (404, NotFound), (500, Unavailable), (503, Unavailable)])
async def test_what_a_frontend_says_becomes_the_error_it_means(status: int, kind: type[Exception]) -> None:
    body = b'{"error": "its own words"}'
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with answering(head + body) as url:
        with pytest.raises(kind, match="its own words"):
            await FrontendClient(url, http_call).heartbeat("n", HeartbeatRequest(), bearer="b")


async def test_the_next_frontend_is_asked_when_one_is_gone_or_breaks_off() -> None:
    async with answering(b"") as broken, answering(OK) as well:
        client = FrontendClient("http://127.0.0.1:1", http_call)
        client.learn([broken, well])
        assert await client.count_in_flight("n", bearer="b", instance="i") == 0
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await client.count_in_flight("n", bearer="b", instance="i")
