"""HTTP to replicas: lasting connections, bytes as they come, and an answer for every request, a failure included.

Callbacks and no tasks, because this runs once for every chunk of every stream. A `Sink` hears, in order: `on_answer`
once, `on_data` any number of times, one of them with `last`; or at any point `on_failure`, and then nothing more.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

import httptools

from corral.core.repeated_head import RepeatedHead

Headers = dict[bytes, bytes]


class FailureKind(Enum):
    UNREACHABLE = "unreachable"
    """Nothing was sent."""
    BROKEN = "broken"
    """It may have worked on the request."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    text: str


class Sink(Protocol):
    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        """The head, and what of the body came with it. Names as they came; of a header that came twice, the last.

        The very same mapping comes again with an answer that differs in its content length only; what that header
        says counts only while more is to come."""
        ...

    def on_data(self, data: bytes, last: bool) -> None: ...

    def on_failure(self, failure: Failure) -> None: ...


class Call(Protocol):
    """One request on its way."""

    def cancel(self) -> None:
        """The replica sees the connection end. The sink hears nothing more."""
        ...

    def pause(self) -> None:
        """Read nothing more for now."""
        ...

    def resume(self) -> None: ...


class Link(Protocol):
    """The way to one replica."""

    def send(self, request: bytes, sink: Sink) -> Call: ...

    def close(self) -> None:
        """Idle connections end; calls in progress go on."""
        ...


class Upstream(Protocol):
    def open(self, address: str) -> Link: ...


CONNECT_WITHIN_S = 2.0
# Servers commonly close after 5 s: going first, we seldom write into a connection that is being closed.
IDLE_MOST_S = 4.0
# A connection that was idle for this long and ends without a word had been closed already: nobody read the request.
STALE_AFTER_S = 0.5
SWEEP_EVERY_S = 1.0
# A machine that vanished without a word is noticed within about ten seconds, however long its answer may take.
KEEPALIVE = (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))
HEAD_MOST_BYTES = 64 * 1024


class HttpUpstream:
    """Owns its connections and the tasks that open them: leaving the block ends all."""

    def __init__(self) -> None:
        self._links: set[HttpLink] = set()
        self._tasks = asyncio.TaskGroup()
        self._sweeping: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._sweeping = self._tasks.create_task(self._sweep(), name="upstream.sweep")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sweeping is not None
        self._sweeping.cancel()
        for task in self._opening:
            task.cancel()
        for link in list(self._links):
            link.end()
        await self._tasks.__aexit__(kind, error, trace)

    def open(self, address: str) -> "HttpLink":
        host, _, port = address.rpartition(":")
        link = HttpLink(host.strip("[]"), int(port), self._connect, self._links.discard)
        self._links.add(link)
        return link

    def _connect(self, link: "HttpLink", call: "HttpCall") -> None:
        task = self._tasks.create_task(link.connect(call), name="upstream.connect")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            for link in list(self._links):
                link.close_idle(before_s=loop.time() - IDLE_MOST_S)


class HttpLink:
    def __init__(
        self,
        host: str,
        port: int,
        connect: "Callable[[HttpLink, HttpCall], None]",
        on_done: "Callable[[HttpLink], None]",
    ) -> None:
        self._host = host
        self._port = port
        self._connect = connect
        self._on_done = on_done
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._closed = False
        self.repeated: RepeatedHead[Headers] = RepeatedHead()
        """The head of this replica's latest whole answer with status 200, on a connection that is kept."""
        self._loop = asyncio.get_running_loop()

    def send(self, request: bytes, sink: Sink) -> "HttpCall":
        call = HttpCall(request, sink)
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closing():
                connection.begin(call, reused_after_s=self._loop.time() - connection.idle_since_s)
                return call
        self._connect(self, call)
        return call

    async def connect(self, call: "HttpCall") -> None:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                _, connection = await self._loop.create_connection(lambda: _Connection(self), self._host, self._port)
        except TimeoutError:
            call.fail(FailureKind.UNREACHABLE, f"no connection within {CONNECT_WITHIN_S:g} s")
        except OSError as error:
            call.fail(FailureKind.UNREACHABLE, _why(error))
        else:
            if call.cancelled:
                self.give_back(connection)
            else:
                connection.begin(call, reused_after_s=None)

    def again(self, call: "HttpCall") -> None:
        if self._closed:
            call.fail(FailureKind.BROKEN, "the connection was closed")
        else:
            self._connect(self, call)

    def give_back(self, connection: "_Connection") -> None:
        if self._closed:
            connection.close()
        else:
            connection.idle_since_s = self._loop.time()
            self._idle.append(connection)

    def lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._maybe_done()

    def close_idle(self, *, before_s: float) -> None:
        while self._idle and self._idle[0].idle_since_s < before_s:
            self._idle.pop(0).close()

    def close(self) -> None:
        self._closed = True
        self.close_idle(before_s=float("inf"))
        self._maybe_done()

    def end(self) -> None:
        self.close()
        for connection in list(self._open):
            connection.abort()

    def _maybe_done(self) -> None:
        if self._closed and not self._open:
            self._on_done(self)


class HttpCall:
    __slots__ = ("cancelled", "connection", "paused", "request", "sink")

    def __init__(self, request: bytes, sink: Sink) -> None:
        self.request = request
        self.sink = sink
        self.connection: _Connection | None = None
        self.cancelled = False
        self.paused = False

    def cancel(self) -> None:
        self.cancelled = True
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()

    def pause(self) -> None:
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    def fail(self, kind: FailureKind, text: str) -> None:
        self.connection = None
        if not self.cancelled:
            self.cancelled = True
            self.sink.on_failure(Failure(kind, text))


class _Hooks:
    """What the parser calls. As much as can be is left to dict and list themselves: their calls cost no frame."""

    __slots__ = ("on_body", "on_header", "on_headers_complete", "on_message_begin", "on_message_complete")

    def __init__(self, connection: "_Connection") -> None:
        self.on_header = connection.headers.__setitem__
        self.on_body = connection.parts.append
        self.on_message_begin = connection.quiet.clear
        self.on_headers_complete = connection.in_head.clear
        self.on_message_complete = connection.on_message_complete


class _Connection(asyncio.Protocol):
    """One TCP connection, with one request at a time."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link
        self.headers: Headers = {}
        self.parts: list[bytes] = []
        self.quiet = [True]
        """Emptied by the first byte of a message."""
        self.in_head = [True]
        """Emptied by the end of a head."""
        self._parser = httptools.HttpResponseParser(_Hooks(self))
        self._transport: asyncio.Transport | None = None
        self._call: HttpCall | None = None
        self._reused_after_s: float | None = None
        self.idle_since_s = 0.0
        self._heard_bytes = 0
        self._told = False
        self._complete = False
        self._body = b""
        self._status = 0
        self._keeps = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        _keep_alive(transport.get_extra_info("socket"))

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def begin(self, call: HttpCall, *, reused_after_s: float | None) -> None:
        assert self._transport is not None
        self._call = call
        self._reused_after_s = reused_after_s
        call.connection = self
        self._heard_bytes = 0
        self._told = self._complete = False
        self._transport.write(call.request)
        if call.paused:
            self.pause()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        call = self._call
        if call is None or call.cancelled:
            # Speaks without being asked, or to nobody: what comes next on this connection could belong to anything.
            self.abort()
            return
        if not self._told and self.quiet:
            repeated = self._link.repeated
            body = repeated.body_of(data)
            if body is not None and repeated.value is not None:
                self._call = call.connection = None
                self._link.give_back(self)
                call.cancelled = True
                call.sink.on_answer(200, repeated.value, body, True)
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(f"it does not answer in HTTP ({error})")
            return
        if self._complete:
            self._finish(call, data)
        elif self._told:
            parts = self.parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            if body:
                call.sink.on_data(body, False)
        elif self.in_head:
            self._heard_bytes += len(data)
            if self._heard_bytes > HEAD_MOST_BYTES:
                self._break("its headers have no end")
        else:
            self._told = True
            body = b"".join(self.parts)
            self.parts.clear()
            call.sink.on_answer(self._parser.get_status_code(), self.headers, body, False)

    def on_message_complete(self) -> None:
        # Asked now: the parser forgets with the end of the message.
        status = self._parser.get_status_code()
        self.quiet.append(True)
        self.in_head.append(True)
        if status < 200:
            self.headers.clear()
            return
        self._status = status
        self._keeps = self._parser.should_keep_alive()
        parts = self.parts
        self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._complete = True

    def _finish(self, call: HttpCall, data: bytes) -> None:
        # Free before the sink is told: what it starts next may take this very connection.
        self._call = call.connection = None
        headers = self.headers
        # llama.cpp says that it keeps the connection and closes it all the same at the end of a stream.
        keeps = self._keeps and bool(self.quiet) and not _is_event_stream(headers)
        if self._told:
            headers.clear()
        else:
            headers = headers.copy()
            self.headers.clear()
            if keeps and self._status == 200:
                self._link.repeated.learn(data, headers)
        # Anything behind the end of the answer makes the connection unfit for another one.
        if keeps:
            self._link.give_back(self)
        else:
            self.close()
        call.cancelled = True
        if self._told:
            call.sink.on_data(self._body, True)
        else:
            call.sink.on_answer(self._status, headers, self._body, True)

    def _break(self, text: str) -> None:
        call, self._call = self._call, None
        self.abort()
        if call is not None:
            call.fail(FailureKind.BROKEN, text)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost(self)
        self._transport = None
        call, self._call = self._call, None
        if call is None or call.cancelled:
            return
        call.connection = None
        if self._told and not self._is_framed():
            call.cancelled = True
            call.sink.on_data(b"", True)
        elif self._is_stale():
            self._link.again(call)
        else:
            call.fail(FailureKind.BROKEN, _why(error) if error else "it closed the connection")

    def _is_framed(self) -> bool:
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name in self.headers)

    def _is_stale(self) -> bool:
        silent = not self._heard_bytes and not self._told and bool(self.quiet)
        return silent and self._reused_after_s is not None and self._reused_after_s >= STALE_AFTER_S


def _is_event_stream(headers: Headers) -> bool:
    kind = headers.get(b"Content-Type") or headers.get(b"content-type") or b""
    return kind.startswith(b"text/event-stream")


def _keep_alive(connection: socket.socket | None) -> None:
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _why(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
