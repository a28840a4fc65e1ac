"""A client's connection: what begins with `/v1/` is ours, everything else goes to the ASGI app, request by request."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import httptools
import structlog

from corral.core.errors import CorralError
from corral.formats.http_heads import RepeatedHead
from corral.frontend.gateway.answers import Refusal, refusal_of, simple_answer
from corral.frontend.gateway.authenticate import FORWARDING, ask_who
from corral.frontend.gateway.endpoints import PREFIX
from corral.frontend.gateway.error_responses import crashed
from corral.frontend.gateway.exchange import ProxiedRequest
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.targets import Endpoint
from corral.frontend.gateway.trace import Note
from corral.system.http_clients import Connected, end_answers
from corral.system.http_server import AsgiSide

if TYPE_CHECKING:
    from corral.frontend.gateway.gateway import Gateway

log = structlog.get_logger()

METHOD_MOST_BYTES = 8
# What may come while an answer is under way: part of the next request, from clients that do not wait.
AHEAD_MOST_BYTES = 64 * 1024
# Parts of a body that came in one piece. More are joined: each costs several times what it holds.
PARTS_MOST = 64
# Of a time that the next tick fills in: to the half second is enough for how long nothing was asked.
NOT_YET = 0.0
# Heads with one of these are read anew each time: the parser does more for them than collect.
_SPECIAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_USUAL = (b"POST /v1/", b"GET /v1/")


def is_ours(data: bytes) -> bool | None:
    """Whether a request that begins like this is the lane's; None while too little has come to tell."""
    space = data.find(b" ", 0, METHOD_MOST_BYTES + 1)
    if space < 0:
        return None if len(data) <= METHOD_MOST_BYTES else False
    path = data[space + 1 : space + 1 + len(PREFIX)]
    if path == PREFIX:
        return True
    return None if PREFIX.startswith(path) else False


def _has_whole_head(data: bytes) -> bool:
    return b"\n\r\n" in data or b"\n\n" in data


def _write_to_nobody(data: bytes) -> None:
    """The client is gone."""


class _Hooks:
    """What the parser calls. As much as can be is left to dict and list themselves: their calls cost no frame."""

    __slots__ = ("on_body", "on_chunk_header", "on_header", "on_headers_complete", "on_message_complete", "on_url")

    def __init__(self, connection: "GatewayConnection") -> None:
        self.on_url = connection.urls.append
        self.on_header = connection.on_header if connection.behind_proxies else connection.headers.__setitem__
        self.on_body = connection.parts.append
        self.on_headers_complete = connection.in_head.clear
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete


class GatewayConnection(asyncio.Protocol):
    """States: between requests, reading one, answering one, discarding."""

    # There may be ten thousand of them that never ask anything.
    __slots__ = (
        "_ahead", "_asgi", "_asking", "_between", "_body_bytes", "_buffered_bytes", "_chunked_headers",
        "_closing_s", "_connected", "_discarding", "_exchange", "_framing_bytes", "_head_checked",
        "_is_first_piece", "_lane", "_limits", "_now_s", "_parser", "_parts_seen", "_paused_s", "_repeated",
        "_since_s", "_stopping", "_transport", "_unparsed", "_waiting", "headers", "in_head", "is_known",
        "is_slow", "parts", "urls", "write",
    )  # fmt: skip

    def __init__(self, lane: "Gateway", asgi: AsgiSide) -> None:
        self._lane = lane
        self._asgi = asgi
        self._limits = asgi.limits
        self._now_s = lane.clock.monotonic_s
        self._transport: asyncio.Transport | None = None
        self._connected: Connected | None = None
        self.is_known = False
        """It has shown a key that is good here."""
        self.write: Callable[[bytes], None] = _write_to_nobody
        """The transport's own, while there is one."""
        self._exchange: ProxiedRequest | None = None
        self.urls: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.in_head = [True]
        """Emptied by the end of a head."""
        self._waiting: list[ProxiedRequest] = []
        self._parser: httptools.HttpRequestParser | None = None
        """Made with the first request: many connections never send one."""
        self._framing_bytes = 0
        """What came since the head's first byte, or since the last byte of a body."""
        self._body_bytes = 0
        self._parts_seen = 0
        self._chunked_headers: dict[bytes, bytes] | None = None
        """Those of a chunked request's head: what comes behind its body are no headers."""
        self._asking: asyncio.Task[None] | None = None
        """Whether the sender of a body may send it."""
        self._buffered_bytes = 0
        self._between = True
        self._repeated: RepeatedHead[RequestHead] = RepeatedHead()
        self._is_first_piece = False
        self._head_checked = False
        self._unparsed: tuple[ProxiedRequest, int] | None = None
        """Whose body the parser does not read, and how much of it is missing."""
        self._discarding = 0
        self._stopping = False
        self._closing_s: float | None = None
        self._ahead = b""
        self._paused_s = 0.0
        self._since_s = self._now_s()
        self.is_slow = False

    # The transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.write = transport.write
        self._lane.connections.add(self)
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
        self.write = _write_to_nobody
        self._forget_body()
        if self._asking is not None:
            self._asking.cancel()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.cancel()

    def open_note(self) -> Note | None:
        return self._exchange.note() if self._exchange is not None else None

    def _leave(self) -> None:
        self._lane.connections.discard(self)
        self._asgi.leave(self)

    def data_received(self, data: bytes) -> None:
        if self._exchange is not None:
            self._keep_for_later(data)
            return
        if self._discarding:
            self._discard(len(data))
            return
        if self._between:
            body = self._repeated.body_of(data)
            if body is not None and not self._ahead and len(body) <= self._lane.limits.body_bytes:
                assert self._repeated.value is not None
                exchange = self._exchange = ProxiedRequest(self._lane, self, self._repeated.value, body)
                exchange.start()
                return
            has_begun = bool(self._ahead)
            if has_begun:
                data, self._ahead = self._ahead + data, b""
            ours = True if data.startswith(_USUAL) else is_ours(data)
            if not ours:
                if not has_begun:
                    self._since_s = self._now_s()
                if ours is None or (len(data) < self._limits.head_bytes and not _has_whole_head(data)):
                    self._ahead = data  # the app's connections cost more: they are for those who ask something
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
            log.exception("lane.request_crashed")
            self._refuse(crashed())
        except httptools.HttpParserError as error:
            self._refuse(Refusal(400, f"this is not HTTP as we know it: {error}", code="bad_request"))
        if self._waiting:
            if self._is_first_piece and len(self._waiting) == 1 and self._between:
                self._learn(data, self._waiting[0])
            self._start_next()
        elif not self._between and not self._discarding:
            self._is_first_piece = False
            self._check_sizes(len(data))

    def _parse(self, data: bytes) -> None:
        """Not more at once than a head may have: a long piece must not hide an endless head."""
        parser = self._parser
        assert parser is not None
        room = self._limits.head_bytes - self._framing_bytes
        first, rest = (data, b"") if len(data) <= room or not self.in_head else (data[:room], data[room:])
        try:
            parser.feed_data(first)
            if rest and self.in_head and not self._waiting:
                self._refuse_head()
            elif rest and not self._discarding:
                first, rest = rest, b""
                parser.feed_data(first)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(first[upgrade.args[0] :] + rest)

    def _learn(self, data: bytes, exchange: ProxiedRequest) -> None:
        if exchange.keep_alive and not _SPECIAL & exchange.head.headers.keys():
            self._repeated.learn(data, exchange.head)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """An offer to speak something else, which we do not take. The parser stops at it, before the body."""
        if self._exchange is not None or not self._waiting:
            self._stopping = True
            return
        exchange = self._waiting.pop()
        exchange.keep_alive = False
        length = exchange.head.headers.get(b"content-length", b"0")
        if b"transfer-encoding" in exchange.head.headers or len(length) > 15:
            self._refuse(Refusal(400, "a request that offers an upgrade must tell its length", code="bad_request"))
        elif int(length) > self._lane.limits.body_bytes:
            self._refuse_body()
        else:
            self._unparsed = (exchange, int(length))
            self._between = False
            self.in_head.clear()
            self._head_checked = True
            if int(length) > len(rest):
                self._check_caller(exchange.head.method, exchange.head.headers)
            if not self._discarding:
                self._gather(rest)

    def _gather(self, data: bytes) -> None:
        """The body that the parser left to us."""
        assert self._unparsed is not None
        exchange, missing = self._unparsed
        self.parts.append(data[:missing])
        missing -= len(self.parts[-1])
        self._unparsed = (exchange, missing)
        if not missing:
            exchange.body = b"".join(self.parts)
            self._unparsed = None
            self._start_anew()
            self._waiting.append(exchange)

    def _check_sizes(self, more_bytes: int) -> None:
        """After every piece of a request that is not whole yet; one piece is bounded by the transport."""
        if self.in_head:
            self._framing_bytes += more_bytes
            if self._framing_bytes >= self._limits.head_bytes:
                self._refuse_head()
            return
        lane = self._lane
        was_checked, self._head_checked = self._head_checked, True
        if not was_checked:
            self._check_head()
            if self._discarding:
                return
        self._body_bytes += more_bytes
        self._buffered_bytes += more_bytes
        lane.buffered_bytes += more_bytes
        self._framing_bytes = 0 if self._join_parts() or not was_checked else self._framing_bytes + more_bytes
        if self._framing_bytes >= self._limits.head_bytes:
            self._refuse_head()
        elif self._body_bytes > lane.limits.body_bytes + self._limits.head_bytes:
            self._refuse_body()
        elif lane.buffered_bytes > lane.limits.bodies_bytes:
            self._refuse(
                Refusal(
                    503, "too many large requests are being taken in; try again", code="overloaded", retry_after_s=2
                )
            )

    def _join_parts(self) -> bool:
        """Whether the latest piece held any. Each byte is copied once, however small the parts were."""
        seen, count = self._parts_seen, len(self.parts)
        if count - seen > PARTS_MOST:
            self.parts[seen:] = [b"".join(self.parts[seen:])]
        self._parts_seen = len(self.parts)
        return count > seen

    def _check_head(self) -> None:
        """Of a request whose body has not come yet: what speaks against taking it."""
        headers = {name.lower(): value for name, value in (self._chunked_headers or self.headers).items()}
        length = headers.get(b"content-length", b"0")
        if len(headers) > self._limits.headers:
            self._refuse_headers()
        elif len(length) > 15 or int(length) > self._lane.limits.body_bytes:
            self._refuse_body()
        else:
            assert self._parser is not None
            self._check_caller(self._parser.get_method(), headers)

    def _check_caller(self, method: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Nobody's body is read who may not send one."""
        if self._lane.keys.find(headers.get(b"authorization", b"")) is not None:
            self._let_send(headers)
        elif self._transport is not None:
            self._transport.pause_reading()
            self._asking = self._lane.spawn(self._ask_who(method, headers))

    async def _ask_who(self, method: bytes, headers: Mapping[bytes, bytes]) -> None:
        try:
            await ask_who(self._lane.keys, headers, method, self._lane.proxies, self.address())
        except Refusal as refusal:
            self._refuse(refusal)
        except CorralError as error:
            self._refuse(refusal_of(error))
        else:
            self._let_send(headers)
        finally:
            self._asking = None
            if self._transport is not None:
                self._transport.resume_reading()

    def _let_send(self, headers: Mapping[bytes, bytes]) -> None:
        self.is_known = True
        if headers.get(b"expect", b"").lower() == b"100-continue" and self._exchange is None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse_head(self) -> None:
        self._refuse(Refusal(431, "the request's headers are too large", code="headers_too_large"))

    def _refuse_headers(self) -> None:
        text = f"the request has more than {self._limits.headers} headers"
        self._refuse(Refusal(431, text, code="too_many_headers"))

    def _refuse_body(self) -> None:
        limit = self._lane.limits.body_bytes
        self._refuse(
            Refusal(413, f"the body is larger than {limit:,} bytes, the most that is taken here", code="body_too_large")
        )

    def _start_next(self) -> None:
        """One at a time, in order, also for clients that send several requests without waiting."""
        while self._exchange is None and self._waiting and self._transport is not None:
            self._exchange = self._waiting.pop(0)
            self._exchange.start()

    def _hand_over(self, data: bytes) -> None:
        self._transport = None
        self.write = _write_to_nobody
        self._leave()
        if self._connected is not None:
            self._asgi.take(self._connected, data, self._take_back)

    def _take_back(self, transport: asyncio.Transport, data: bytes) -> None:
        self._parser = None
        self._between = True
        transport.set_protocol(self)
        self.connection_made(transport)
        self.data_received(data)

    def _keep_for_later(self, data: bytes) -> None:
        self._ahead += data
        if len(self._ahead) > AHEAD_MOST_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def _discard(self, count: int) -> None:
        self._discarding += count
        if self._discarding > self._limits.discard_bytes and self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self.is_slow = True
        self._paused_s = self._now_s()
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        self.is_slow = False
        if self._exchange is not None:
            self._exchange.resume()

    # The parser's side

    @property
    def behind_proxies(self) -> bool:
        return self._lane.proxies.are_named

    def on_header(self, name: bytes, value: bytes) -> None:
        """Where what proxies say counts: a header that comes more than once is one list, in the order of its parts."""
        lower = name.lower()
        if lower in FORWARDING:
            before = self.headers.get(lower)
            name, value = lower, value if before is None else before + b"," + value
        self.headers[name] = value

    def on_chunk_header(self) -> None:
        if self._chunked_headers is None:
            self._chunked_headers = self.headers.copy()

    def on_message_complete(self) -> None:
        if self._discarding:
            if self._transport is not None:
                self._transport.close()
            return
        urls, parts, parser = self.urls, self.parts, self._parser
        assert parser is not None
        path = (urls[0] if len(urls) == 1 else b"".join(urls)).partition(b"?")[0]
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        headers = {name.lower(): value for name, value in (self._chunked_headers or self.headers).items()}
        self._start_anew()
        if len(headers) > self._limits.headers:
            self._refuse_headers()
        elif len(body) > self._lane.limits.body_bytes:
            self._refuse_body()
        elif len(self._waiting) >= self._limits.pipelined:
            text = "too many requests were sent before the first was answered"
            self._refuse(Refusal(429, text, code="too_many_at_once", retry_after_s=1))
        else:
            head = RequestHead(
                parser.get_method(), path, headers,
                http11=parser.get_http_version() != "1.0", keep_alive=parser.should_keep_alive(),
            )  # fmt: skip
            self._waiting.append(ProxiedRequest(self._lane, self, head, body))

    def _start_anew(self) -> None:
        """The next byte is another request's."""
        self.urls.clear()
        self.parts.clear()
        self.headers.clear()
        self._chunked_headers = None
        if not self.in_head:
            self.in_head.append(True)
        self._framing_bytes = self._body_bytes = self._parts_seen = 0
        self._between = True
        self._head_checked = False

    # The exchange's side

    def done(self, *, keep: bool) -> None:
        self._exchange = None
        self._since_s = NOT_YET
        transport = self._transport
        if transport is None:
            return
        if self._buffered_bytes and not self._waiting:
            self._forget_body()
        if not keep or self._stopping:
            transport.close()
        elif self._waiting or self._ahead:
            # Not from here: who ended the exchange may be in the middle of starting it.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._start_next()
        if self._exchange is None and self._ahead and self._transport is not None:
            self._transport.resume_reading()
            data, self._ahead = self._ahead, b""
            self.data_received(data)
        elif self._exchange is None and not self._between and not self._discarding:
            self._check_sizes(0)

    def cut(self) -> None:
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def address(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if peer else ""

    def _forget_body(self) -> None:
        self._lane.buffered_bytes -= self._buffered_bytes
        self._buffered_bytes = 0

    def _refuse(self, refusal: Refusal) -> None:
        """Before there is an exchange. The client may still be sending: let it finish, within bounds, or it never
        reads why."""
        if self._transport is None or self._discarding:
            return
        if self._exchange is not None:
            # Bad bytes behind a good request: it gets its answer, and then the connection ends.
            self._stopping = True
            return
        self._lane.meters.refusals.child(str(refusal.status), refusal.code or "").value += 1
        self._transport.write(simple_answer(refusal.status, refusal.headers(), refusal.body(), close=True))
        end_answers(self._transport)
        self._forget_body()
        self.parts.clear()
        self._waiting.clear()
        self._unparsed = None
        self._discarding = 1
        self._since_s = self._now_s()

    def is_idle(self) -> bool:
        """What somebody unknown has not sent whole is as good as nothing."""
        return self._exchange is None and self._asking is None and (self._between or not self.is_known)

    def stranger_since_s(self) -> float | None:
        return None if self.is_known else self._since_s

    def tick(self, now_s: float) -> None:
        """Looks at every deadline of this connection."""
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
        elif self._exchange is not None:
            if not self.is_slow:
                self._exchange.tick(now_s)
        elif self._discarding:
            if waited_s > limits.discard_within_s:
                transport.close()
        elif self._between:
            if waited_s > (limits.head_within_s if self._ahead else limits.idle_s):
                transport.close()
        elif waited_s > (limits.head_within_s if self.in_head else self._lane.limits.body_within_s):
            self._refuse(Refusal(408, "the request did not arrive in time", code="request_timeout"))

    def leave_silent(self, target: Endpoint, text: str, lifeless_s: float) -> None:
        if self._exchange is not None:
            self._exchange.leave_silent(target, text, lifeless_s)

    def shutdown(self) -> None:
        """The server stops: nothing new is taken on this connection."""
        self._stopping = True
        if self._exchange is None and self._transport is not None:
            self._transport.close()

    def end(self, refusal: Refusal) -> None:
        if self._exchange is not None:
            self._exchange.stop(refusal)
        if self._transport is not None:
            self._transport.close()
