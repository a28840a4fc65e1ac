"""A client's connection. Requests of client protocols are the gateway's; all others go to the ASGI app, one by one."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import httptools
import structlog

from corral.core.errors import CorralError
from corral.core.sizes import format_bytes
from corral.formats.http_heads import RepeatedHead
from corral.frontend.gateway.authenticate import FORWARDING, authenticate
from corral.frontend.gateway.client_protocol import ClientProtocol
from corral.frontend.gateway.cors import PreflightRequest
from corral.frontend.gateway.credentials import authorization_of
from corral.frontend.gateway.endpoints import Endpoint
from corral.frontend.gateway.error_responses import ErrorResponse, error_response_of, internal_error
from corral.frontend.gateway.protocols.dispatch import is_for_gateway, protocol_of
from corral.frontend.gateway.proxied_request import ProxiedRequest
from corral.frontend.gateway.reply import encode_response
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.request_trace import RequestRecord
from corral.frontend.gateway.stored_responses import StoredResponseRequest, names_stored_response
from corral.system.http_clients import ClientSlot, end_responses
from corral.system.http_server import AsgiServer

if TYPE_CHECKING:
    from corral.frontend.gateway.gateway import Gateway

log = structlog.get_logger()

# How much of the next request may arrive before the current one is answered.
AHEAD_MAX_BYTES = 64 * 1024
# Parts of a body that may stay separate. More are joined: each costs several times its size in memory.
PARTS_MAX = 64
# A time that the next tick sets. Idle times need no more than half a second's precision.
NOT_YET = 0.0
# A head with one of these is always parsed: the parser does more for them than to collect them.
_SPECIAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_USUAL = (b"POST /v1/", b"GET /v1/")


def _has_complete_head(data: bytes) -> bool:
    return b"\n\r\n" in data or b"\n\n" in data


def _discard_write(data: bytes) -> None:
    """Used while there is no transport: the client is gone."""


class _Hooks:
    """The parser's callbacks. Where possible they are methods of dict and list, which need no Python frame."""

    __slots__ = ("on_body", "on_chunk_header", "on_header", "on_headers_complete", "on_message_complete", "on_url")

    def __init__(self, connection: "GatewayConnection") -> None:
        self.on_url = connection.urls.append
        self.on_header = connection.on_header if connection.behind_proxies else connection.headers.__setitem__
        self.on_body = connection.parts.append
        self.on_headers_complete = connection.in_head.clear
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete


class GatewayConnection(asyncio.Protocol):
    """Its states: between requests, receiving one, answering one, discarding input after an error."""

    # There may be ten thousand connections that never send a request.
    __slots__ = (
        "_ahead",
        "_asgi",
        "_authenticating",
        "_between",
        "_body_bytes",
        "_buffered_bytes",
        "_chunked_headers",
        "_closing_s",
        "_connected",
        "_discarded_bytes",
        "_framing_bytes",
        "_gateway",
        "_head_checked",
        "_is_first_piece",
        "_limits",
        "_now_s",
        "_parser",
        "_parts_seen",
        "_paused_s",
        "_repeated",
        "_request",
        "_since_s",
        "_stopping",
        "_transport",
        "_unparsed",
        "_waiting",
        "headers",
        "in_head",
        "is_known",
        "is_slow",
        "parts",
        "urls",
        "write",
    )  # fmt: skip

    def __init__(self, gateway: "Gateway", asgi: AsgiServer) -> None:
        self._gateway = gateway
        self._asgi = asgi
        self._limits = asgi.limits
        self._now_s = gateway.clock.monotonic_s
        self._transport: asyncio.Transport | None = None
        self._connected: ClientSlot | None = None
        self.is_known = False
        """Whether the client has presented a valid key."""
        self.write: Callable[[bytes], None] = _discard_write
        """The transport's own method, while there is a transport."""
        self._request: ProxiedRequest | None = None
        self.urls: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.in_head = [True]
        """Empty after the end of the head."""
        self._waiting: list[ProxiedRequest] = []
        self._parser: httptools.HttpRequestParser | None = None
        """Created with the first request: many connections never send one."""
        self._framing_bytes = 0
        """Bytes received since the head began, or since the last byte of the body."""
        self._body_bytes = 0
        self._parts_seen = 0
        self._chunked_headers: dict[bytes, bytes] | None = None
        """The headers of a chunked request, without the trailers that follow its body."""
        self._authenticating: asyncio.Task[None] | None = None
        """Authenticates the sender before its body is read."""
        self._buffered_bytes = 0
        self._between = True
        self._repeated: RepeatedHead[RequestHead] = RepeatedHead()
        self._is_first_piece = False
        self._head_checked = False
        self._unparsed: tuple[ProxiedRequest, int] | None = None
        """A request whose body the parser does not read, and how many bytes of it are missing."""
        self._discarded_bytes = 0
        self._stopping = False
        self._closing_s: float | None = None
        self._ahead = b""
        self._paused_s = 0.0
        self._since_s = self._now_s()
        self.is_slow = False

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.write = transport.write
        self._gateway.connections.add(self)
        self._asgi.enter(self)
        if self._connected is None:
            self._connected = self._asgi.clients.admit(self, transport)
        else:
            self._connected.endpoint = self

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        if self._connected is not None:
            self._asgi.clients.leave(self._connected)
        self._transport = None
        self.write = _discard_write
        self._forget_body()
        if self._authenticating is not None:
            self._authenticating.cancel()
        request, self._request = self._request, None
        if request is not None:
            request.guard(request.cancel)

    @property
    def has_request(self) -> bool:
        return self._request is not None

    def open_record(self) -> RequestRecord | None:
        return self._request.record() if self._request is not None else None

    def _leave(self) -> None:
        self._gateway.connections.discard(self)
        self._asgi.leave(self)

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            self._buffer_ahead(data)
            return
        if self._discarded_bytes:
            self._discard(len(data))
            return
        if self._between:
            body = self._repeated.body_of(data)
            if body is not None and not self._ahead and len(body) <= self._gateway.limits.body_bytes:
                assert self._repeated.value is not None
                request = self._request = ProxiedRequest(self._gateway, self, self._repeated.value, body)
                try:
                    request.start()
                except Exception as error:  # noqa: BLE001  the request logs it
                    request.on_crash(error)
                return
            has_begun = bool(self._ahead)
            if has_begun:
                data, self._ahead = self._ahead + data, b""
            is_mine = True if data.startswith(_USUAL) else is_for_gateway(data)
            if not is_mine:
                if not has_begun:
                    self._since_s = self._now_s()
                if is_mine is None or (len(data) < self._limits.head_bytes and not _has_complete_head(data)):
                    self._ahead = data  # the app's connections cost more: wait for a complete head
                else:
                    self._hand_over(data)
                return
            self._since_s = self._now_s()
            self._between = False
            self._is_first_piece = True
            if self._parser is None:
                self._parser = httptools.HttpRequestParser(_Hooks(self))
        try:
            if self._unparsed is None:
                self._parse(data)
            else:
                self._gather(data)
        except httptools.HttpParserCallbackError:
            log.exception("gateway.request_crashed")
            self._reject(internal_error())
        except httptools.HttpParserError as error:
            self._reject(ErrorResponse(400, f"invalid HTTP request: {error}", code="bad_request"))
        if self._waiting:
            if self._is_first_piece and len(self._waiting) == 1 and self._between:
                self._learn_head(data, self._waiting[0])
            self._start_next()
        elif not self._between and not self._discarded_bytes:
            self._is_first_piece = False
            self._check_sizes(len(data))

    def _parse(self, data: bytes) -> None:
        """Parses at most the size of a head at once, so that a long piece cannot hide an endless head."""
        parser = self._parser
        assert parser is not None
        room = self._limits.head_bytes - self._framing_bytes
        first, rest = (data, b"") if len(data) <= room or not self.in_head else (data[:room], data[room:])
        try:
            parser.feed_data(first)
            if rest and self.in_head and not self._waiting:
                self._reject_head()
            elif rest and not self._discarded_bytes:
                first, rest = rest, b""
                parser.feed_data(first)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(first[upgrade.args[0] :] + rest)

    def _learn_head(self, data: bytes, request: ProxiedRequest) -> None:
        is_usual = type(request) is ProxiedRequest  # others are made only by `_request_kind`
        if is_usual and request.keep_alive and not _SPECIAL & request.head.headers.keys():
            self._repeated.learn(data, request.head)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Ignores an offer to switch protocols. The parser stops at it, before the body."""
        if self._request is not None or not self._waiting:
            self._stopping = True
            return
        request = self._waiting.pop()
        request.keep_alive = False
        length = request.head.headers.get(b"content-length", b"0")
        if b"transfer-encoding" in request.head.headers or len(length) > 15:
            self._reject(
                ErrorResponse(400, "a request that offers an upgrade must have a Content-Length", code="bad_request"),
                request.head.protocol,
            )
        elif int(length) > self._gateway.limits.body_bytes:
            self._reject_body(request.head.protocol)
        else:
            self._unparsed = (request, int(length))
            self._between = False
            self.in_head.clear()
            self._head_checked = True
            if int(length) > len(rest):
                self._check_client(request.head.method, request.head.headers)
            if not self._discarded_bytes:
                self._gather(rest)

    def _gather(self, data: bytes) -> None:
        """Collects a body that the parser did not read."""
        assert self._unparsed is not None
        request, missing = self._unparsed
        self.parts.append(data[:missing])
        missing -= len(self.parts[-1])
        self._unparsed = (request, missing)
        if not missing:
            request.body = b"".join(self.parts)
            self._unparsed = None
            self._reset()
            self._waiting.append(request)

    def _check_sizes(self, more_bytes: int) -> None:
        """Checks the limits after every piece of an incomplete request. The transport bounds the size of one piece."""
        if self.in_head:
            self._framing_bytes += more_bytes
            if self._framing_bytes >= self._limits.head_bytes:
                self._reject_head()
            return
        gateway = self._gateway
        was_checked, self._head_checked = self._head_checked, True
        if not was_checked:
            self._check_head()
            if self._discarded_bytes:
                return
        self._body_bytes += more_bytes
        self._buffered_bytes += more_bytes
        gateway.buffered_bytes += more_bytes
        self._framing_bytes = 0 if self._join_parts() or not was_checked else self._framing_bytes + more_bytes
        if self._framing_bytes >= self._limits.head_bytes:
            self._reject_head()
        elif self._body_bytes > gateway.limits.body_bytes + self._limits.head_bytes:
            self._reject_body()
        elif gateway.buffered_bytes > gateway.limits.bodies_bytes:
            self._reject(
                ErrorResponse(
                    503, "too many large requests are being received; retry later", code="overloaded", retry_after_s=2
                )
            )

    def _join_parts(self) -> bool:
        """Whether the latest piece held part of the body. Each byte is copied once, however small the parts are."""
        seen, count = self._parts_seen, len(self.parts)
        if count - seen > PARTS_MAX:
            self.parts[seen:] = [b"".join(self.parts[seen:])]
        self._parts_seen = len(self.parts)
        return count > seen

    def _check_head(self) -> None:
        """Rejects a request, if its head allows that, before its body is received."""
        headers = {name.lower(): value for name, value in (self._chunked_headers or self.headers).items()}
        length = headers.get(b"content-length", b"0")
        if len(headers) > self._limits.headers:
            self._reject_header_count()
        elif len(length) > 15 or int(length) > self._gateway.limits.body_bytes:
            self._reject_body()
        else:
            assert self._parser is not None
            self._check_client(self._parser.get_method(), headers)

    def _check_client(self, method: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Authenticates a client before its body is read."""
        if self._gateway.keys.find(authorization_of(headers)) is not None:
            self._accept_body(headers)
        elif self._transport is not None:
            self._transport.pause_reading()
            self._authenticating = self._gateway.spawn(self._authenticate(method, headers))

    async def _authenticate(self, method: bytes, headers: Mapping[bytes, bytes]) -> None:
        try:
            await authenticate(self._gateway.keys, headers, method, self._gateway.proxies, self.address())
        except ErrorResponse as response:
            self._reject(response)
        except CorralError as error:
            self._reject(error_response_of(error))
        else:
            self._accept_body(headers)
        finally:
            self._authenticating = None
            if self._transport is not None:
                self._transport.resume_reading()

    def _accept_body(self, headers: Mapping[bytes, bytes]) -> None:
        self.is_known = True
        if headers.get(b"expect", b"").lower() == b"100-continue" and self._request is None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _reject_head(self) -> None:
        self._reject(ErrorResponse(431, "the request headers are too large", code="headers_too_large"))

    def _reject_header_count(self, protocol: ClientProtocol | None = None) -> None:
        text = f"the request has more than {self._limits.headers} headers"
        self._reject(ErrorResponse(431, text, code="too_many_headers"), protocol)

    def _reject_body(self, protocol: ClientProtocol | None = None) -> None:
        limit = self._gateway.limits.body_bytes
        text = f"the request body is larger than the limit of {format_bytes(limit)}"
        self._reject(ErrorResponse(413, text, code="body_too_large"), protocol)

    def _start_next(self) -> None:
        """Starts one request at a time, in order, even if the client pipelines them."""
        while self._request is None and self._waiting and self._transport is not None:
            request = self._request = self._waiting.pop(0)
            try:
                request.start()
            except Exception as error:  # noqa: BLE001  the request logs it
                request.on_crash(error)

    def _hand_over(self, data: bytes) -> None:
        self._transport = None
        self.write = _discard_write
        self._leave()
        if self._connected is not None:
            self._asgi.take(self._connected, data, self._take_back)

    def _take_back(self, transport: asyncio.Transport, data: bytes) -> None:
        self._parser = None
        self._between = True
        transport.set_protocol(self)
        self.connection_made(transport)
        self.data_received(data)

    def _buffer_ahead(self, data: bytes) -> None:
        self._ahead += data
        if len(self._ahead) > AHEAD_MAX_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def _discard(self, count: int) -> None:
        self._discarded_bytes += count
        if self._discarded_bytes > self._limits.discard_bytes and self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self.is_slow = True
        self._paused_s = self._now_s()
        if self._request is not None:
            self._request.guard(self._request.pause)

    def resume_writing(self) -> None:
        self.is_slow = False
        if self._request is not None:
            self._request.guard(self._request.resume)

    # Called by the parser

    @property
    def behind_proxies(self) -> bool:
        return self._gateway.proxies.are_named

    def on_header(self, name: bytes, value: bytes) -> None:
        """Used behind trusted proxies: a forwarding header that comes more than once is one list, in order."""
        lower = name.lower()
        if lower in FORWARDING:
            before = self.headers.get(lower)
            name, value = lower, value if before is None else before + b"," + value
        self.headers[name] = value

    def on_chunk_header(self) -> None:
        if self._chunked_headers is None:
            self._chunked_headers = self.headers.copy()

    def on_message_complete(self) -> None:
        if self._discarded_bytes:
            if self._transport is not None:
                self._transport.close()
            return
        urls, parts, parser = self.urls, self.parts, self._parser
        assert parser is not None
        path = (urls[0] if len(urls) == 1 else b"".join(urls)).partition(b"?")[0]
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        headers = {name.lower(): value for name, value in (self._chunked_headers or self.headers).items()}
        protocol = protocol_of(path, headers)
        self._reset()
        if len(headers) > self._limits.headers:
            self._reject_header_count(protocol)
        elif len(body) > self._gateway.limits.body_bytes:
            self._reject_body(protocol)
        elif len(self._waiting) >= self._limits.pipelined:
            text = "too many pipelined requests"
            self._reject(ErrorResponse(429, text, code="too_many_at_once", retry_after_s=1), protocol)
        else:
            head = RequestHead(
                protocol, parser.get_method(), path, headers,
                http11=parser.get_http_version() != "1.0", keep_alive=parser.should_keep_alive(),
            )  # fmt: skip
            self._waiting.append(self._request_kind(head)(self._gateway, self, head, body))

    def _request_kind(self, head: RequestHead) -> type[ProxiedRequest]:
        if head.method == b"OPTIONS" and self._gateway.limits.cors_origin:
            return PreflightRequest
        return StoredResponseRequest if names_stored_response(head.method, head.path) else ProxiedRequest

    def _reset(self) -> None:
        """Prepares for the next request."""
        self.urls.clear()
        self.parts.clear()
        self.headers.clear()
        self._chunked_headers = None
        if not self.in_head:
            self.in_head.append(True)
        self._framing_bytes = self._body_bytes = self._parts_seen = 0
        self._between = True
        self._head_checked = False

    # Called by the request

    def done(self, *, keep: bool) -> None:
        self._request = None
        self._since_s = NOT_YET
        transport = self._transport
        if transport is None:
            return
        if self._buffered_bytes and not self._waiting:
            self._forget_body()
        if not keep or self._stopping:
            transport.close()
        elif self._waiting or self._ahead:
            # Not from here: this may be called while the request is being started.
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._start_next()
        if self._request is None and self._ahead and self._transport is not None:
            self._transport.resume_reading()
            data, self._ahead = self._ahead, b""
            self.data_received(data)
        elif self._request is None and not self._between and not self._discarded_bytes:
            self._check_sizes(0)

    def abort(self) -> None:
        self._request = None
        if self._transport is not None:
            self._transport.abort()

    def address(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if peer else ""

    def _forget_body(self) -> None:
        self._gateway.buffered_bytes -= self._buffered_bytes
        self._buffered_bytes = 0

    def _reject(self, response: ErrorResponse, protocol: ClientProtocol | None = None) -> None:
        """`protocol`: of a request that was parsed to its end; otherwise that of the one that is being received.

        Answers with an error before there is a request to proxy. The client may still be sending. Its input is read
        and discarded, within limits, because otherwise it might never read the answer."""
        if self._transport is None or self._discarded_bytes:
            return
        if self._request is not None:
            # Invalid data after a valid request: that request is answered, and then the connection ends.
            self._stopping = True
            return
        self._gateway.metrics.rejections.child(str(response.status), response.code or "").value += 1
        body = (protocol or self._current_protocol()).error_body(response)
        lines = (*response.headers(), self._gateway.cors_lines)
        self._transport.write(encode_response(response.status, lines, body, close=True))
        end_responses(self._transport)
        self._forget_body()
        self.parts.clear()
        self._waiting.clear()
        self._unparsed = None
        self._discarded_bytes = 1
        self._since_s = self._now_s()

    def _current_protocol(self) -> ClientProtocol:
        path = b"".join(self.urls).partition(b"?")[0]
        return protocol_of(path, {name.lower(): value for name, value in self.headers.items()})

    def is_idle(self) -> bool:
        """An incomplete request of an unauthenticated client does not count as activity."""
        return self._request is None and self._authenticating is None and (self._between or not self.is_known)

    def unauthenticated_since_s(self) -> float | None:
        return None if self.is_known else self._since_s

    def tick(self, now_s: float) -> None:
        """Checks the deadlines of this connection."""
        limits, transport = self._limits, self._transport
        if transport is None:
            return
        if self.is_known and self._connected is not None:
            self._connected.is_known = True
        if self._since_s == NOT_YET:
            self._since_s = now_s
        waited_s = now_s - self._since_s
        if transport.is_closing():
            self._closing_s = self._closing_s or now_s
            if now_s - self._closing_s > limits.stall_s:
                transport.abort()
        elif self.is_slow and now_s - self._paused_s > limits.stall_s:
            transport.abort()
        elif self._request is not None:
            if not self.is_slow:
                self._request.guard(self._request.tick, now_s)
        elif self._discarded_bytes:
            if waited_s > limits.discard_within_s:
                transport.close()
        elif self._between:
            if waited_s > (limits.head_within_s if self._ahead else limits.idle_s):
                transport.close()
        elif waited_s > (limits.head_within_s if self.in_head else self._gateway.limits.body_within_s):
            self._reject(ErrorResponse(408, "the request did not arrive in time", code="request_timeout"))

    def abandon(self, endpoint: Endpoint, text: str, unresponsive_s: float) -> None:
        if self._request is not None:
            self._request.guard(self._request.abandon, endpoint, text, unresponsive_s)

    def shutdown(self) -> None:
        """The server stops: this connection accepts no further request."""
        self._stopping = True
        if self._request is None and self._transport is not None:
            self._transport.close()

    def end(self, response: ErrorResponse) -> None:
        if self._request is not None:
            self._request.guard(self._request.stop, response)
        if self._transport is not None:
            self._transport.close()
