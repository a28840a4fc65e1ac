"""What a client may send, hold open or leave unread, on both sides of the server: the gateway's and the app's."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from corral.system.http_clients import mark_authenticated
from corral.system.http_limits import HttpLimits, connections_within, network_of
from corral.system.http_server import serve_http
from harness.gateway import running_gateway
from harness.machine_speed import Yardstick
from harness.streams import connect
from harness.waiting import until

SHORT = HttpLimits(
    head_within_s=0.5, idle_s=0.5, body_silence_s=0.5, stall_s=0.5, discard_within_s=0.5, connections=500,
    connections_per_address=500,
)  # fmt: skip
PATIENT = replace(SHORT, discard_within_s=600)
"""What is left of a refused request is read for longer than any test takes."""
ROOMY = HttpLimits(connections=500, connections_per_address=500)
"""Nothing runs out, however slow the machine is."""
GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n"


@dataclass
class Served:
    """An app without a gateway, as a worker has it."""

    port: int
    heads: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    left: int = 0
    asked: int = 0
    """Requests whose heads have arrived."""

    async def hello(self, request: Request) -> Response:
        self.heads.append(dict(request.headers))
        return PlainTextResponse("hello")

    async def read(self, request: Request) -> Response:
        try:
            self.bodies.append(await request.body())
        except ClientDisconnect:
            self.left += 1
            raise
        return PlainTextResponse("read")

    async def huge(self, _request: Request) -> Response:
        return PlainTextResponse("x" * (64 << 20))

    async def stream(self, _request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield b"x" * (1 << 20)

        return StreamingResponse(pieces())


@asynccontextmanager
async def serving(limits: HttpLimits = SHORT) -> AsyncIterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    served = Served(listener.getsockname()[1])
    routes = [
        Route("/hello", served.hello),
        Route("/read", served.read, methods=["POST"]),
        Route("/huge", served.huge),
        Route("/stream", served.stream),
    ]
    app = Starlette(routes=routes)

    async def with_keys(scope: Scope, receive: Receive, send: Send) -> None:
        if (b"authorization", b"good") in scope["headers"]:
            mark_authenticated(scope)
        served.asked += 1
        await app(scope, receive, send)

    task = asyncio.ensure_future(serve_http(with_keys, listener, limits=limits))
    try:
        yield served
    finally:
        task.cancel()
        await asyncio.wait({task})


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    """A reset ends it as well: a server that closes while the client still sends cannot prevent one."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            answer += data
    return answer


async def everything(port: int, data: bytes = b"", *, address: str = "127.0.0.1") -> bytes:
    """What the server says until it closes the connection."""
    reader, writer = await connect(port, local_addr=(address, 0))
    try:
        async with asyncio.timeout(30):
            writer.write(data)
            with contextlib.suppress(ConnectionError):  # an answer may have been given all the same
                await writer.drain()
            return await read_to_the_end(reader)
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def keep_asking(port: int, until_done: Awaitable[object]) -> float:
    """The longest wait for an answer while something goes on."""
    going_on = asyncio.ensure_future(until_done)
    longest_s = 0.0
    while not going_on.done():
        began_s = time.monotonic()
        assert status(await everything(port, GET + b"Connection: close\r\n\r\n")) == 200
        longest_s = max(longest_s, time.monotonic() - began_s)
    await going_on
    return longest_s


@pytest.mark.parametrize(
    "opening",
    [
        pytest.param(GET + b"A: ", id="a-value"),
        pytest.param(GET + b"A", id="a-name"),
        pytest.param(b"GET /", id="a-path"),
        pytest.param(b"POST /read HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", id="a-trailer"),
        pytest.param(b"POST /read HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;", id="a-chunk-extension"),
    ],
)
async def test_an_endless_line_is_refused_after_64_kilobytes(opening: bytes) -> None:
    async with serving(replace(SHORT, head_within_s=30, body_silence_s=30)) as served:
        reader, writer = await connect(served.port)
        writer.write(opening)
        sent = 0
        async with asyncio.timeout(30):
            try:
                while sent < 8 << 20 and not writer.is_closing():
                    writer.write(b"x" * 4096)
                    await writer.drain()
                    sent += 4096
                    await asyncio.sleep(0)
                answer = await reader.read()
            except ConnectionError:
                answer = b""
        writer.close()
        assert not answer or status(answer) in (400, 431), answer
        assert status(await everything(served.port, GET + b"Connection: close\r\n\r\n")) == 200


@pytest.mark.parametrize("line", [b"A: " + b"x" * 200_000 + b"\r\n", b"A: x\r\n" * 20_000], ids=["one", "many"])
async def test_too_large_a_head_is_refused_also_when_it_comes_at_once(line: bytes) -> None:
    async with serving(PATIENT) as served:
        assert status(await everything(served.port, GET + line + b"\r\n")) == 431
        assert not served.heads


async def test_a_head_just_below_the_limit_is_read() -> None:
    async with serving(ROOMY) as served:
        line = b"A: " + b"x" * (64 * 1024 - len(GET) - 200) + b"\r\n"
        assert status(await everything(served.port, GET + line + b"Connection: close\r\n\r\n")) == 200


async def test_an_endless_head_delays_nobody_else() -> None:
    async with serving(replace(SHORT, head_within_s=30)) as served:

        async def flood() -> None:
            answers = await asyncio.gather(
                *(everything(served.port, GET + b"A: " + b"x" * (4 << 20)) for _ in range(20)), return_exceptions=True
            )
            assert not [answer for answer in answers if isinstance(answer, TimeoutError)]

        with Yardstick() as yardstick:
            longest_s = await keep_asking(served.port, flood())
        assert longest_s < yardstick.allows_s(1.0)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        pytest.param(b"", {b""}, id="nothing"),
        pytest.param(b"GE", {b"", b"408"}, id="half-a-word"),
        pytest.param(GET + b"A: b\r\n", {b"408"}, id="half-a-head"),
        pytest.param(b"POST /read HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", {b""}, id="half-a-body"),
        pytest.param(b"GET /hello HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", {b"200"}, id="half-an-unread-body"),
        pytest.param(GET + b"\r\n", {b"200"}, id="nothing-after-an-answer"),
        pytest.param(GET + b"\r\n" + GET, {b"200"}, id="half-a-head-after-an-answer"),
    ],
)
async def test_who_falls_silent_is_let_go(start: bytes, said: set[bytes]) -> None:
    async with serving() as served:
        answer = await everything(served.port, start)
        assert answer[9:12] in said, answer


async def answer_to_a_byte_now_and_then(port: int, head: bytes) -> bytes:
    """With a bare socket: a stream whose write fails forgets what has arrived. `head` is sent at once: before that
    nobody can tell whose request it is, and a slow machine would leave it unanswered."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        answer = asyncio.ensure_future(receive_to_the_end(connection))
        async with asyncio.timeout(60):
            connection.send(head)
            while not answer.done():
                with contextlib.suppress(ConnectionError):  # the server has gone; its answer is on its way
                    connection.send(b"x")
                await asyncio.sleep(0.05)
        return await answer


async def receive_to_the_end(connection: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionError):
        while data := await asyncio.get_running_loop().sock_recv(connection, 65536):
            answer += data
    return answer


async def test_who_sends_a_byte_now_and_then_is_let_go_too() -> None:
    async with serving(PATIENT) as served:
        assert status(await answer_to_a_byte_now_and_then(served.port, GET)) == 408


async def test_who_sends_a_byte_now_and_then_to_the_gateway_is_closed_too() -> None:
    async with running_gateway(http=PATIENT) as gateway:
        assert status(await answer_to_a_byte_now_and_then(gateway.port, b"GET /v1/models HTTP/1.1\r\n")) == 408


async def test_who_reads_nothing_is_let_go() -> None:
    async with serving() as served:
        connection = socket.create_connection(("127.0.0.1", served.port))
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(connection, b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")

        def is_held() -> bool:
            sockets = psutil.Process().net_connections("tcp")
            return any(one.laddr.port == served.port and one.raddr for one in sockets)

        await until(is_held, "it is connected")
        await until(lambda: not is_held(), "the server has let it go")
        connection.close()


async def test_fields_behind_a_chunked_body_are_no_headers() -> None:
    async with serving(ROOMY) as served:
        trailer = b"0\r\nAuthorization: good\r\nX-Late: 1\r\n\r\n"
        chunked = b"POST /read HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + trailer
        reader, writer = await connect(served.port)
        writer.write(chunked + GET + b"Connection: close\r\n\r\n")
        answers = await asyncio.wait_for(reader.read(), 10)
        assert answers.count(b"200 OK") == 2
        assert served.bodies == [b"ok"]
        assert "x-late" not in served.heads[0]
        writer.close()


OFFER = (
    b"POST /read HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
)


async def test_the_body_of_an_offered_upgrade_is_not_taken_for_a_request() -> None:
    async with serving() as served:
        reader, writer = await connect(served.port)
        writer.write(OFFER + b"Content-Length: 40\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(GET + b"\r\n")
        await asyncio.wait_for(reader.read(), 10)
        assert not served.heads
        writer.close()


@pytest.mark.parametrize("cut", [0, 3, 5, -7], ids=["head-first", "half-a-body", "whole-body", "within-the-head"])
async def test_the_app_gets_the_body_of_a_request_that_offers_an_upgrade(cut: int) -> None:
    async with serving(ROOMY) as served:
        reader, writer = await connect(served.port)
        head = OFFER + b"Content-Length: 5\r\n\r\n"
        sent = head + b"hello" + GET + b"Connection: close\r\n\r\n"
        for piece in (sent[: len(head) + cut], sent[len(head) + cut :]):
            writer.write(piece)
            await asyncio.sleep(0.1)
        answers = await asyncio.wait_for(reader.read(), 10)
        assert served.bodies == [b"hello"]
        assert (answers.count(b"200 OK"), len(served.heads)) == (2, 1), answers
        writer.close()


async def test_offers_of_an_upgrade_without_a_body_are_answered_as_if_not_made() -> None:
    async with serving(ROOMY) as served:
        offer = GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        answers = await everything(served.port, offer * 3 + GET + b"Connection: close\r\n\r\n")
        assert answers.count(b"200 OK") == 4


async def test_an_offered_upgrade_with_a_body_of_unknown_length_is_refused_with_the_reason() -> None:
    async with serving(ROOMY) as served:
        answer = await everything(served.port, OFFER + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        assert (status(answer), b"must have a Content-Length" in answer) == (400, True)
        assert not served.bodies


async def test_a_client_that_expects_continue_gets_it() -> None:
    async with serving(ROOMY) as served:
        reader, writer = await connect(served.port)
        writer.write(b"POST /read HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert status(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)) == 200
        writer.close()


async def test_requests_sent_without_waiting_are_answered_in_order_up_to_a_limit() -> None:
    async with serving() as served:
        some = await everything(served.port, (GET + b"\r\n") * 20 + GET + b"Connection: close\r\n\r\n")
        assert some.count(b"200 OK") == 21
        many = await everything(served.port, (GET + b"\r\n") * 5_000)
        assert many.count(b"200 OK") <= SHORT.pipelined + 1
        assert len(served.heads) <= 21 + SHORT.pipelined + 1


# Connections


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def silent(port: int, address: str = "127.0.0.1", data: bytes = b"") -> Connection:
    connection = Connection(*await connect(port, local_addr=(address, 0)))
    connection.writer.write(data)
    return connection


async def is_closed(connection: Connection) -> bool:
    try:
        async with asyncio.timeout(0.01):
            return not await connection.reader.read(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


LONG = HttpLimits(connections=20, connections_per_address=10)
KNOWN = GET + b"Authorization: good\r\n\r\n"


async def test_beyond_the_limit_of_an_address_its_longest_silent_connections_go() -> None:
    async with serving(LONG) as served:
        others = [await silent(served.port, "127.0.0.9") for _ in range(5)]
        ours = [await silent(served.port, data=GET[:20]) for _ in range(30)]
        await until_closed(ours, 20)
        assert [await is_closed(one) for one in ours] == [True] * 20 + [False] * 10
        assert not any([await is_closed(one) for one in others])
        assert status(await everything(served.port, GET + b"Connection: close\r\n\r\n")) == 200


async def until_closed(connections: list[Connection], count: int) -> None:
    for _ in range(500):
        if sum([await is_closed(one) for one in connections]) >= count:
            return
    raise AssertionError(f"{count} connections were not closed")


async def test_beyond_the_limit_of_all_nobody_goes_who_showed_a_good_credential() -> None:
    async with serving(LONG) as served:
        known = [await silent(served.port, "127.0.0.2", KNOWN) for _ in range(5)]
        for one in known:
            assert status(await asyncio.wait_for(one.reader.readuntil(b"hello"), 10)) == 200
        flood = [await silent(served.port, f"127.0.0.{10 + number}") for number in range(60)]
        await until_closed(flood, 45)
        assert not any([await is_closed(one) for one in known])
        # Still served, on the connection it has and on a new one.
        known[0].writer.write(KNOWN)
        assert status(await asyncio.wait_for(known[0].reader.readuntil(b"hello"), 10)) == 200
        assert status(await everything(served.port, GET + b"Connection: close\r\n\r\n", address="127.0.0.3")) == 200


async def test_with_every_slot_busy_a_new_client_is_told_to_retry_later() -> None:
    limits = replace(LONG, connections=3)
    async with serving(limits) as served:
        start = b"POST /read HTTP/1.1\r\nAuthorization: good\r\nContent-Length: 10\r\n\r\n"
        busy = [await silent(served.port, data=start) for _ in range(3)]
        await until(lambda: served.asked == 3, "all three are being answered")
        refused = await everything(served.port)
        assert (status(refused), b"retry-after" in refused) == (503, True)
        for one in busy:
            one.writer.write(b"0123456789")
            assert status(await asyncio.wait_for(one.reader.readuntil(b"\r\n\r\nread"), 10)) == 200


FEW = replace(LONG, connections=6)


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(b"POST /read HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", id="half-a-body"),
        pytest.param(OFFER + b"Content-Length: 10\r\n\r\nhalf", id="half-a-body-behind-an-offer"),
        pytest.param(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n", id="an-unread-answer"),
        pytest.param(b"GET /huge HTTP/1.1\r\nConnection: close\r\n\r\n", id="an-unread-last-answer"),
    ],
)
async def test_what_strangers_do_not_finish_gives_way_to_a_newcomer(held: bytes) -> None:
    async with serving(FEW) as served:
        connections = [await never_reading(served.port, held) for _ in range(6)]
        await until(lambda: served.asked == 6, "all six are being answered")
        for _ in range(3):
            assert status(await everything(served.port, GET + b"Connection: close\r\n\r\n")) == 200
        for connection in connections:
            connection.close()


async def never_reading(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(connection, data)
    return connection


async def test_an_answer_to_a_known_client_does_not_give_way() -> None:
    async with serving(FEW) as served:
        request = b"GET /stream HTTP/1.1\r\nAuthorization: good\r\n\r\n"
        connections = [await never_reading(served.port, request) for _ in range(6)]
        await until(lambda: served.asked == 6, "all six are being answered")
        assert status(await everything(served.port)) == 503
        for connection in connections:
            connection.close()


async def test_an_answer_that_is_read_slowly_ends_where_nobody_knows_the_reader() -> None:
    async with serving(replace(SHORT, stall_s=30, unauthenticated_answer_s=0.5)) as served:
        known = await never_reading(served.port, b"GET /stream HTTP/1.1\r\nAuthorization: good\r\n\r\n")
        await until(lambda: served.asked == 1, "the known client is being answered")
        stranger = await never_reading(served.port, b"GET /stream HTTP/1.1\r\n\r\n")
        while await read_some(stranger):
            assert await read_some(known)
            await asyncio.sleep(0.1)
        assert await read_some(known)
        for connection in (known, stranger):
            connection.close()


async def read_some(connection: socket.socket) -> int:
    """A little of an answer: all of it would take minutes. Nothing when the connection has ended."""
    try:
        async with asyncio.timeout(30):
            return len(await asyncio.get_running_loop().sock_recv(connection, 64 << 10))
    except ConnectionError:
        return 0


async def test_connections_are_counted_across_both_sides_of_a_frontend() -> None:
    async with running_gateway(http=LONG) as gateway:
        halves = (b"", b"GET /v1/mod", b"GET /v2/mod", b"GET /other HTTP/1.1\r\nA: b")
        connections = [await silent(gateway.port, data=halves[number % 4]) for number in range(40)]
        await until_closed(connections, 30)
        assert sum([await is_closed(one) for one in connections]) == 30
        answer = await everything(gateway.port, b"GET /other HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert answer.endswith(b"the app")


async def test_places_are_given_back() -> None:
    async with serving(LONG) as served:
        for _ in range(50):
            answer = await everything(served.port, GET + b"Connection: close\r\n\r\n")
            assert status(answer) == 200


def test_places_leave_descriptors_for_everything_else() -> None:
    assert [connections_within(count) for count in (1024, 20_000, 65_536)] == [448, 9936, 32_704]


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") == "2001:db8::/64"
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
