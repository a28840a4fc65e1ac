"""Data after the end of an answer reaches no client, and the connection is not used again."""

from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from harness.gateway import Answering, Replica, RunningGateway

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
ONE = b'{"who": "one"}'
TWO = b'{"who": "two, of somebody else"}'


def whole(body: bytes, *more: bytes, kind: bytes = b"application/json") -> bytes:
    lines = (b"HTTP/1.1 200 OK", b"Content-Type: " + kind, b"Content-Length: %d" % len(body), *more, b"", b"")
    return b"\r\n".join(lines) + body


def chunked(body: bytes, trailer: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailer)


@pytest.mark.parametrize(
    "surplus",
    [
        pytest.param(whole(TWO), id="another-answer"),
        pytest.param(whole(TWO, b"Retry-After: 7", kind=b"text/html"), id="another-kind"),
        pytest.param(whole(TWO) * 3, id="three-more"),
        pytest.param(whole(TWO)[:-3], id="half-an-answer"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="an-interim-answer"),
        pytest.param(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="an-upgrade"),
        pytest.param(b"\x00garbage", id="garbage"),
    ],
)
@pytest.mark.parametrize("first", [whole(ONE), chunked(ONE), whole(ONE, b"Connection: close")], ids="wcl")
async def test_data_after_an_answer_is_discarded(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, first: bytes, surplus: bytes
) -> None:
    one = await replica("one")
    gateway.serve("m", one)

    async def say_more(answering: Answering) -> None:
        await answering.send(first + surplus)

    one.script = say_more
    for number in range(3):
        answer = await client.post(CHAT, json={"model": "m"})
        assert (answer.status_code, answer.content) == (200, ONE)
        assert answer.headers["content-type"] == "application/json"
        assert "retry-after" not in answer.headers
        assert one.connections == number + 1


async def test_data_after_a_stream_is_discarded(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event("first")
        await answering.send(b"e\r\ndata: second\n\n\r\n0\r\n\r\n" + whole(TWO))

    one.script = stream
    for _ in range(2):
        answer = await client.post(CHAT, json={"model": "m", "stream": True})
        assert answer.text == "data: first\n\ndata: second\n\n"


async def test_trailers_of_an_answer_are_no_headers(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)

    async def answer_with_trailer(answering: Answering) -> None:
        await answering.send(chunked(ONE, b"Content-Type: text/html\r\nRetry-After: 7\r\n"))

    one.script = answer_with_trailer
    answer = await client.post(CHAT, json={"model": "m"})
    assert (answer.content, answer.headers["content-type"]) == (ONE, "application/json")
    assert "retry-after" not in answer.headers


async def test_an_answer_in_another_protocol_and_endless_trailers_fail_the_request_alone(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, other = await replica("one"), await replica("two")
    gateway.serve("m", one)
    gateway.serve("other", other)

    async def upgrade(answering: Answering) -> None:
        await answering.send(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes")

    async def trail(answering: Answering) -> None:
        await answering.send(chunked(ONE)[:-2])
        for number in range(20_000):
            await answering.send(b"X-%d: %b\r\n" % (number, b"x" * 100))

    for script in (upgrade, trail):
        one.script = script
        assert (await client.post(CHAT, json={"model": "m"})).status_code == 502
        assert (await client.post(CHAT, json={"model": "other"})).status_code == 200
