"""A stream that comes faster than it can be passed on, from a real socket, on the loop that frontends run on."""

import asyncio

import pytest

from corral.frontend.gateway.upstream.calls import ChunkRelay, Failure, Headers, UpstreamCall
from corral.frontend.gateway.upstream.connection import LATE_MAX_BYTES
from corral.frontend.gateway.upstream.upstream import HttpUpstream

uvloop = pytest.importorskip("uvloop")

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# Such that each of the loop's reads ends with a whole chunk.
CHUNK = b"3f9\r\n" + b"x" * 0x3F9 + b"\r\n"
READ_BYTES = 250 * len(CHUNK)
FLOOD = CHUNK * 250 * 40


class Passing:
    """Relays the chunks, and keeps how much was written at once."""

    def __init__(self) -> None:
        self.call: UpstreamCall | None = None
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.sizes: list[int] = []
        self.relay = ChunkRelay(lambda data: self.sizes.append(len(data)))

    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        assert self.call is not None
        self.call.relay_chunks(self.relay)
        self.begun.set()

    def on_data(self, data: bytes, last: bool) -> None:
        self.relay.flush()
        self.sizes.append(len(data))
        if last:
            self.ended.set()

    def on_failure(self, failure: Failure) -> None:
        raise AssertionError(failure.text)

    def on_crash(self, error: Exception) -> None:
        raise error


async def pass_a_flood_on() -> list[int]:
    passing, gone = Passing(), asyncio.Event()

    async def flood(incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        await incoming.readuntil(b"\r\n\r\n")
        outgoing.write(HEAD + CHUNK)
        await passing.begun.wait()
        outgoing.write(FLOOD + b"0\r\n\r\n")
        await incoming.read()
        outgoing.close()
        await outgoing.wait_closed()
        gone.set()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with asyncio.timeout(60):
        async with HttpUpstream() as upstream:
            link = upstream.open(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            passing.call = link.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", passing)
            await passing.ended.wait()
        await gone.wait()
    server.close()
    await server.wait_closed()
    return passing.sizes


def test_what_is_late_is_bounded_however_much_comes_in_one_pass() -> None:
    sizes = uvloop.run(pass_a_flood_on())
    assert sum(sizes) >= len(FLOOD) * 0.99
    assert max(sizes) <= max(READ_BYTES, LATE_MAX_BYTES) + READ_BYTES
