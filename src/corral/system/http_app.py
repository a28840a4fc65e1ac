"""A client's connection to an ASGI app: uvicorn's, with limits on what a client can send, hold open or leave unread.

The app is called as soon as a head is complete, so that it can reject a request before its body arrives. The rest of
the body is then read and discarded, within limits, so that the client reads the answer.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from corral.system.http_clients import ClientSlot, ClientSlots, end_responses
from corral.system.http_limits import HttpLimits

TakeBack = Callable[[asyncio.Transport, bytes], None]
IsNext = Callable[[bytes], bool]


class _Rejected(Exception):
    """Raised inside the parser's callbacks to end the parsing."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class AppServer(Protocol):
    """What all connections of a server share."""

    options: dict[str, Any]
    """Uvicorn's arguments for a connection."""
    limits: HttpLimits
    clients: ClientSlots


class _WebSocket:
    """The slot of a connection that uvicorn's WebSocket protocol reads."""

    def __init__(self, clients: ClientSlots, client: ClientSlot) -> None:
        self._clients, self._client = clients, client

    def is_idle(self) -> bool:
        return False

    def unauthenticated_since_s(self) -> float | None:
        return None  # its credential was checked when it was opened

    def tick(self, now_s: float) -> None:
        if self._client.transport.is_closing():
            self._clients.leave(self._client)


class AppConnection(HttpToolsProtocol):
    """If there is a raw handler, the connection goes back to it when the next request is the raw handler's."""

    connected: ClientSlot | None = None
    is_next: IsNext | None = None
    """Whether a request that begins with these bytes is the raw handler's."""
    take_back: TakeBack | None = None
    _between = True
    _in_head = False
    _in_body = False
    _moved = False
    """Whether the latest piece completed a head or a message, or held part of a body."""
    _unparsed_bytes = 0
    """Missing bytes of a body that the parser does not read, because its head offers an upgrade."""
    _framing_bytes = 0
    """Bytes received since something last moved."""
    _ignores_input = False
    """Input is discarded: the connection ends with the current answer, or its request was rejected."""
    _is_rejected = False
    _rejection: _Rejected | None = None
    _discarded_bytes = 0
    _unsent_bytes = 0
    _closing_s: float | None = None

    def __init__(self, server: AppServer) -> None:
        super().__init__(**server.options)
        self._limits = server.limits
        self._clients = server.clients
        self._now_s = server.clients.now_s
        self._since_s = self._heard_s = self._taken_s = self._asked_s = self._now_s()

    # Called by the transport

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
        if self._ignores_input:
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
        """Parses at most the size of a head at once, so that a long piece cannot hide an endless head."""
        limit = self._limits.head_bytes
        while data and not self._ignores_input and not self.transport.is_closing():
            room = limit - self._framing_bytes
            piece = data if self._in_body or len(data) <= room else data[:room]
            data = data[len(piece) :]
            self._moved = False
            data = self._parse(piece) + data
            if self._moved:
                self._framing_bytes = 0
                continue
            self._framing_bytes += len(piece)
            if self._framing_bytes >= limit and not self._ignores_input:
                self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request headers are too large")

    def _parse(self, piece: bytes) -> bytes:
        """Returns the data that is still to be parsed."""
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
                # An offer to switch protocols, which is ignored. The parser cannot continue after it.
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

    # Called by the parser

    def on_message_begin(self) -> None:
        self._between = False
        self._in_head = True
        super().on_message_begin()
        self.scope["state"]["client"] = self.connected

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer, which no proxy has checked
        if len(self.headers) >= self._limits.headers:
            text = f"the request has more than {self._limits.headers} headers"
            raise self._rejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise self._rejected(HTTPStatus.TOO_MANY_REQUESTS, "too many pipelined requests")
        self._unparsed_bytes = self._bytes_behind_offer()
        self._in_head = False
        self._in_body = self._moved = True
        self._discarded_bytes = 0
        if self._is_answered():
            self._asked_s = self._heard_s
        super().on_headers_complete()

    def _bytes_behind_offer(self) -> int:
        """The length of a body that the parser does not read, because its head offers an upgrade that is ignored."""
        if not self.parser.should_upgrade() or self._should_upgrade():
            return 0
        headers = dict(self.headers)
        if b"transfer-encoding" in headers:
            text = "a request that offers an upgrade must have a Content-Length"
            raise self._rejected(HTTPStatus.BAD_REQUEST, text)
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
        self._ignores_input = True
        client = self.connected
        assert client is not None
        client.endpoint = _WebSocket(self._clients, client)
        super().handle_websocket_upgrade()

    # Rejections

    def _rejected(self, status: HTTPStatus, text: str) -> _Rejected:
        self._rejection = _Rejected(status, text)
        return self._rejection

    def send_400_response(self, msg: str) -> None:
        """The parser or one of its callbacks failed."""
        rejection = self._rejection or _Rejected(HTTPStatus.BAD_REQUEST, "invalid HTTP request")
        self._reject(rejection.status, str(rejection))

    def _reject(self, status: HTTPStatus, text: str) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        self._ignores_input = True
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
        self._is_rejected = True
        content = text.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, status.phrase.encode(), len(content), content)
        )
        end_responses(self.transport)

    # Deadlines

    def _is_unknown(self) -> bool:
        return self.connected is None or not self.connected.is_known

    def is_idle(self) -> bool:
        """An incomplete request of an unauthenticated client does not count as activity."""
        if self._is_rejected or self._is_answered():
            return self._between or self._is_unknown()
        return self._in_body and self._is_unknown()

    def unauthenticated_since_s(self) -> float | None:
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
        elif not self._is_rejected and not self._is_answered():
            waits_for_body = self._in_body and not self.flow.read_paused
            if (waits_for_body and now_s - self._heard_s > limits.body_silence_s) or (
                self.cycle.response_started
                and self._is_unknown()
                and now_s - self._asked_s > limits.unauthenticated_answer_s
            ):
                transport.abort()
        elif self._ignores_input or self._in_body:
            if waited_s > limits.discard_within_s:
                transport.close()
        elif self._between:
            if waited_s > limits.idle_s:
                transport.close()
        elif waited_s > limits.head_within_s:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, "the request headers did not arrive in time")
