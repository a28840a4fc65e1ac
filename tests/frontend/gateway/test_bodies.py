"""Clients are authenticated before their body is read."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limits import GatewayLimits
from harness.gateway import KEY, Replica, RunningGateway, running_gateway
from harness.streams import connect
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
GOOD = b"Authorization: Bearer " + KEY.encode() + b"\r\n"
WRONG = b"Authorization: Bearer wrong\r\n"
LARGE = b"Content-Length: 30000000\r\n\r\n"
JSON = b'{"model":"m"}'


async def begin(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await connect(port)
    writer.write(data)
    return reader, writer


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
        return int(head.split(b" ")[1]), await reader.readexactly(length)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(LARGE, id="no-key"),
        pytest.param(WRONG + LARGE, id="wrong-key"),
        pytest.param(WRONG + b"Transfer-Encoding: chunked\r\n\r\n", id="chunked"),
        pytest.param(WRONG + b"Expect: 100-continue\r\n" + LARGE, id="asks-first"),
        pytest.param(WRONG + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LARGE, id="offers-an-upgrade"),
        pytest.param(WRONG + LARGE + b"x" * 50_000, id="has-begun"),
    ],
)
async def test_a_wrong_key_is_refused_as_soon_as_the_head_is_there(gateway: RunningGateway, head: bytes) -> None:
    reader, writer = await begin(gateway.port, CHAT + head)
    status, body = await read_answer(reader)
    assert (status, b"invalid_api_key" in body) == (401, True)
    assert gateway.gateway.buffered_bytes == 0
    writer.close()


async def test_large_bodies_of_unauthenticated_clients_are_not_kept(gateway: RunningGateway) -> None:
    most = 0

    async def send() -> None:
        _, writer = await begin(gateway.port, CHAT + WRONG + LARGE)
        try:
            for _ in range(64):
                writer.write(b"x" * 65_536)
                await asyncio.wait_for(writer.drain(), 10)
        except (ConnectionError, TimeoutError):
            return
        finally:
            writer.close()

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, gateway.gateway.buffered_bytes)
            await asyncio.sleep(0.001)

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(send() for _ in range(20)))
    watching.cancel()
    assert most <= 20 * 300_000


async def test_a_slow_key_lookup_delays_the_body(
    gateway: RunningGateway, replica: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that only the store knows: made a moment ago on another frontend."""
    one = await replica("one")
    gateway.serve("m", one)
    looked = asyncio.Event()

    async def authenticate(*_: object) -> ClientKey:
        await looked.wait()
        return ClientKey("key-9", "new")

    monkeypatch.setattr(gateway.keys, "authenticate", authenticate)
    body = b'{"model":"m","x":"' + b"y" * 3_000_000 + b'"}'
    head = b"Authorization: Bearer new\r\nContent-Length: %d\r\n\r\n" % len(body)
    reader, writer = await begin(gateway.port, CHAT + head + body)
    await asyncio.sleep(0.2)
    assert gateway.gateway.buffered_bytes < 1_000_000
    looked.set()
    assert (await read_answer(reader))[0] == 200
    assert one.seen[0].body == body
    writer.close()


async def test_a_client_that_disconnects_during_the_key_lookup_leaves_nothing_behind(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def authenticate(*_: object) -> ClientKey | None:
        asked.set()
        await asyncio.sleep(0.3)
        return None

    monkeypatch.setattr(gateway.keys, "authenticate", authenticate)
    _, writer = await begin(gateway.port, CHAT + WRONG + LARGE + b"x" * 10_000)
    await asyncio.wait_for(asked.wait(), 10)
    writer.transport.abort()
    await until(lambda: not gateway.gateway.connections and gateway.gateway.buffered_bytes == 0, "nothing is left")


@pytest.mark.parametrize("trailer", [GOOD, b"Content-Type: multipart/form-data\r\n" + GOOD])
async def test_a_key_behind_the_body_is_no_key(gateway: RunningGateway, replica: Start, trailer: bytes) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    framed = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n%b\r\n" % (len(JSON), JSON, trailer)
    reader, writer = await begin(gateway.port, CHAT + framed)
    assert (await read_answer(reader))[0] == 401
    assert not one.seen
    writer.close()
    # With the key in its place the same request is good.
    reader, writer = await begin(gateway.port, CHAT + GOOD + framed)
    assert (await read_answer(reader))[0] == 200
    assert one.seen[0].headers["content-type"] == "application/json"
    writer.close()


async def test_a_body_in_tiny_chunks_costs_what_it_holds(replica: Start) -> None:
    async with running_gateway(limits=GatewayLimits(body_bytes=8 << 20)) as gateway:
        one = await replica("one")
        gateway.serve("m", one)
        text = b'{"model":"m","x":"' + b"yz" * 200_000 + b'"}'
        chunks = b"".join(b"2\r\n%b\r\n" % text[at : at + 2] for at in range(0, len(text), 2))
        reader, writer = await begin(gateway.port, CHAT + GOOD + b"Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(chunks), 30_000):
            writer.write(chunks[at : at + 30_000])
            await writer.drain()
        [connection] = gateway.gateway.connections
        await until(lambda: len(connection.parts) > 0, "some of it has come")
        assert len(connection.parts) < 5_000
        writer.write(b"0\r\n\r\n")
        assert (await read_answer(reader))[0] == 200
        assert one.seen[0].body == text
        writer.close()


@pytest.mark.parametrize("start", [b"0\r\nA: ", b"5;"])
async def test_endless_framing_is_rejected(gateway: RunningGateway, start: bytes) -> None:
    reader, writer = await begin(gateway.port, CHAT + GOOD + b"Transfer-Encoding: chunked\r\n\r\n" + start)
    await asyncio.sleep(0.05)
    for _ in range(20):
        writer.write(b"x" * 10_000)
        await asyncio.sleep(0.01)
    assert (await read_answer(reader))[0] in (400, 431)
    writer.close()


async def test_a_large_body_with_a_good_key_is_read_whole(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    for _ in range(3):
        answer = await client.post(CHAT.split(b" ")[1].decode(), json={"model": "m", "x": "y" * 2_000_000})
        assert answer.status_code == 200
    assert len(one.seen) == 3
    assert gateway.gateway.buffered_bytes == 0


async def test_thousands_of_pipelined_requests_are_rejected(gateway: RunningGateway) -> None:
    reader, writer = await begin(gateway.port, (b"GET /v1/models HTTP/1.1\r\n" + GOOD + b"\r\n") * 3000)
    status, body = await read_answer(reader)
    assert (status, b"too many pipelined requests" in body) == (429, True)
    writer.close()
