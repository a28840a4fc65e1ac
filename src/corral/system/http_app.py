"""A client's connection to an ASGI app: uvicorn's, with bounds on what a client can send, hold open or leave unread.

The app is called as soon as a head is complete, so that it can refuse a request before its body has come. What then
still comes of it is read and thrown away, within bounds, so that the sender reads the answer.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from corral.system.http_clients import Clients, Connected, end_answers
from corral.system.http_limits import HttpLimits

TakeBack = Callable[[asyncio.Transport, bytes], None]
IsNext = Callable[[bytes], bool]


class _Refused(Exception):
    """Raised inside the parser's callbacks, where it ends the parsing."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class AppServer(Protocol):
    """What connections share."""

    options: dict[str, Any]
    """Uvicorn's arguments for a connection."""
    limits: HttpLimits
    clients: Clients


class _WebSocket:
    """What is left of the connection here once uvicorn's WebSocket reads it: its place."""

    def __init__(self, clients: Clients, client: Connected) -> None:
        self._clients, self._client = clients, client

    def is_idle(self) -> bool:
        return False

    def stranger_since_s(self) -> float | None:
        return None  # it was asked for its credential when it was opened, and closed if that was not good

    def tick(self, now_s: float) -> None:
        if self._client.transport.is_closing():
            self._clients.leave(self._client)


class AppConnection(HttpToolsProtocol):
    """With a lane beside the app, it looks between two requests whether the next one is the lane's."""

    connected: Connected | None = None
    is_next: IsNext | None = None
    """Whether a request that begins with these bytes is the lane's."""
    take_back: TakeBack | None = None
    _between = True
    _in_head = False
    _in_body = False
    _moved = False
    """Whether the latest piece completed a head or a message, or held a part of a body."""
    _unparsed_bytes = 0
    """Of a body that the parser does not read, because its head offers an upgrade: what is missing."""
    _framing_bytes = 0
    """What came since something last moved."""
    _deaf = False
    """What still comes is thrown away: the connection ends with the answer under way, or has been refused."""
    _is_refused = False
    _refusal: _Refused | None = None
    _discarded_bytes = 0
    _unsent_bytes = 0
    _closing_s: float | None = None

    def __init__(self, server: AppServer) -> None:
        super().__init__(**server.options)
        self._limits = server.limits
        self._clients = server.clients
        self._now_s = server.clients.now_s
        self._since_s = self._heard_s = self._taken_s = self._asked_s = self._now_s()

    # The transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.connected is None:
            self.connected = self._clients.admit(self, transport)
        else:
            self.connected.endpoint = self

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.connected is not None:
            self._clients.leave(self.connected)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._now_s()
        if self._deaf:
            self._discard(len(data))
            return
        if self._between and self._is_answered():
            if self.is_next is not None and self.take_back is not None and self.is_next(data):
                self._unset_keepalive_if_required()
                self.connections.discard(self)
                self.take_back(self.transport, data)
                return
            self._since_s = self._heard_s
        elif self._in_body and self._is_answered():
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self._limits.discard_bytes:
                self.transport.close()
                return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Not more at once than may come without anything moving: a long piece must not hide an endless head."""
        limit = self._limits.head_bytes
        while data and not self._deaf and not self.transport.is_closing():
            room = limit - self._framing_bytes
            piece = data if self._in_body or len(data) <= room else data[:room]
            data = data[len(piece) :]
            self._moved = False
            data = self._parse(piece) + data
            if self._moved:
                self._framing_bytes = 0
                continue
            self._framing_bytes += len(piece)
            if self._framing_bytes >= limit and not self._deaf:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's headers are too large")

    def _parse(self, piece: bytes) -> bytes:
        """Returns what is still to be parsed."""
        if self._unparsed_bytes:
            body, rest = piece[: self._unparsed_bytes], piece[self._unparsed_bytes :]
            self._unparsed_bytes -= len(body)
            self.on_body(body)
            if not self._unparsed_bytes:
                self.on_message_complete()
            return rest
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserError:
            self.send_400_response("invalid HTTP request")
        except httptools.HttpParserUpgrade as upgrade:
            if not self._should_upgrade():
                # An offer to speak something else, which we do not take. The parser stopped at it, for good.
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                return piece[upgrade.args[0] :]
            self.handle_websocket_upgrade()
        return b""

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _discard(self, count: int) -> None:
        self._discarded_bytes += count
        if self._discarded_bytes > self._limits.discard_bytes:
            self.transport.close()

    # The parser's side

    def on_message_begin(self) -> None:
        self._between = False
        self._in_head = True
        super().on_message_begin()
        self.scope["state"]["client"] = self.connected

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer, which nobody in front of us has looked at
        if len(self.headers) >= self._limits.headers:
            text = f"the request has more than {self._limits.headers} headers"
            raise self._refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise self._refused(
                HTTPStatus.TOO_MANY_REQUESTS, "too many requests were sent before the first was answered"
            )
        self._unparsed_bytes = self._bytes_behind_offer()
        self._in_head = False
        self._in_body = self._moved = True
        self._discarded_bytes = 0
        if self._is_answered():
            self._asked_s = self._heard_s
        super().on_headers_complete()

    def _bytes_behind_offer(self) -> int:
        """The body's length where the head offers an upgrade that we do not take: the parser stops before the body."""
        if not self.parser.should_upgrade() or self._should_upgrade():
            return 0
        headers = dict(self.headers)
        if b"transfer-encoding" in headers:
            text = "a request that offers an upgrade must tell its length: send Content-Length, or do not offer it"
            raise self._refused(HTTPStatus.BAD_REQUEST, text)
        return int(headers.get(b"content-length", b"0"))

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._unparsed_bytes:
            return
        self._between = self._moved = True
        self._in_body = False
        self._since_s = self._heard_s
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since_s = self._asked_s = self._now_s()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        self._deaf = True
        client = self.connected
        assert client is not None
        client.endpoint = _WebSocket(self._clients, client)
        super().handle_websocket_upgrade()

    # Refusals

    def _refused(self, status: HTTPStatus, text: str) -> _Refused:
        self._refusal = _Refused(status, text)
        return self._refusal

    def send_400_response(self, msg: str) -> None:
        """The parser gave up, or one of its callbacks did."""
        refusal = self._refusal or _Refused(HTTPStatus.BAD_REQUEST, "this is not HTTP as we know it")
        self._refuse(refusal.status, str(refusal))

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        self._deaf = True
        self._since_s = self._now_s()
        if not self._is_answered():
            assert cycle is not None
            if not self._in_body and not self.pipeline:
                cycle.keep_alive = False  # bad bytes behind a good request, which gets its answer
                return
            # A body that cannot be read: the app need not wait for the rest.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        self._is_refused = True
        content = text.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, status.phrase.encode(), len(content), content)
        )
        end_answers(self.transport)

    # Deadlines

    def _is_unknown(self) -> bool:
        return self.connected is None or not self.connected.is_known

    def is_idle(self) -> bool:
        """What somebody unknown has not sent whole is as good as nothing."""
        if self._is_refused or self._is_answered():
            return self._between or self._is_unknown()
        return self._in_body and self._is_unknown()

    def stranger_since_s(self) -> float | None:
        return self._asked_s if self._is_unknown() else None

    def tick(self, now_s: float) -> None:
        limits, transport = self._limits, self.transport
        unsent = transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent_bytes:
            self._taken_s = now_s
        self._unsent_bytes = unsent
        waited_s = now_s - self._since_s
        if transport.is_closing():
            self._closing_s = self._closing_s or now_s
            if now_s - self._closing_s > limits.discard_within_s:
                transport.abort()
        elif now_s - self._taken_s > limits.stall_s:
            transport.abort()
        elif not self._is_refused and not self._is_answered():
            waits_for_body = self._in_body and not self.flow.read_paused
            if (waits_for_body and now_s - self._heard_s > limits.body_silence_s) or (
                self.cycle.response_started and self._is_unknown() and now_s - self._asked_s > limits.stranger_answer_s
            ):
                transport.abort()
        elif self._deaf or self._in_body:
            if waited_s > limits.discard_within_s:
                transport.close()
        elif self._between:
            if waited_s > limits.idle_s:
                transport.close()
        elif waited_s > limits.head_within_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request's headers did not arrive in time")
