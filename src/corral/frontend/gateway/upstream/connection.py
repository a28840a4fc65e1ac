"""One TCP connection to a replica, with one request at a time."""

import asyncio
import os
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING

import httptools

from corral.formats.http_chunks import are_whole_chunks
from corral.frontend.gateway.upstream.calls import (
    KEPT_MAX_BYTES,
    ChunkRelay,
    Failure,
    FailureKind,
    Headers,
    ResponseSink,
)

if TYPE_CHECKING:
    from corral.frontend.gateway.upstream.upstream import HttpLink

# A connection that was idle for this long and ends without an answer had already been closed by the replica: the
# request was not read.
STALE_AFTER_S = 0.5
# The loss of a node is noticed within about ten seconds, however long an answer takes.
KEEPALIVE = (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))
HEAD_MAX_BYTES = 64 * 1024
RELAY_MAX_BYTES = 8192
# The loop may read megabytes of one stream in one pass. More than this is written at once, because only written data
# makes a client that does not read slow its replica down.
LATE_MAX_BYTES = 64 * 1024
# How a chunk ends that ends with an event. Other chunks take the long way, which passes on only whole events.
_EVENT_END = b"\n\n\r\n"
_WITH_ADDRESSES = ("Multiple exceptions", "Connect call failed")
_LONG_EVENT_END = b"\r\n\r\n\r\n"


def _size_lines() -> list[bytes]:
    """The size line of a chunk, by the length of the chunk with its framing. Most data is exactly one chunk."""
    # For a length that no chunk has: a line longer than the data, which no data can begin with.
    lines = [b"" for _ in range(RELAY_MAX_BYTES + 1)]
    for size in range(1, RELAY_MAX_BYTES):
        line = b"%x\r\n" % size
        if len(line) + size + 2 <= RELAY_MAX_BYTES:
            lines[len(line) + size + 2] = line
    return [line or bytes(length + 1) for length, line in enumerate(lines)]


_SIZE_LINES = _size_lines()
_SIZE_SLICES = [slice(len(line)) for line in _SIZE_LINES]


class UpstreamHttpCall:
    # As defaults of the class they cost nothing.
    connection: "ReplicaConnection | None" = None
    cancelled = False
    paused = False

    def __init__(self, request: bytes, sink: ResponseSink) -> None:
        self.request = request
        self.sink = sink

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

    def relay_chunks(self, relay: ChunkRelay) -> None:
        if self.connection is not None:
            self.connection.relay_chunks(relay)

    def fail(self, kind: FailureKind, text: str) -> None:
        self.connection = None
        if not self.cancelled:
            self.cancelled = True
            try:
                self.sink.on_failure(Failure(kind, text))
            except Exception as error:  # noqa: BLE001  the sink logs it
                self.crash(error)

    def crash(self, error: Exception) -> None:
        self.connection = None
        self.cancelled = True
        self.sink.on_crash(error)


class _Hooks:
    """The parser's callbacks. Where possible they are methods of dict and list, which need no Python frame."""

    __slots__ = (
        "on_body", "on_chunk_complete", "on_chunk_header", "on_header", "on_headers_complete", "on_message_begin",
        "on_message_complete",
    )  # fmt: skip

    def __init__(self, connection: "ReplicaConnection") -> None:
        self.on_header = connection.headers.__setitem__
        self.on_body = connection.parts.append
        self.on_message_begin = connection.quiet.clear
        self.on_headers_complete = connection.on_headers_complete
        self.on_chunk_header = connection.between_chunks.clear
        self.on_chunk_complete = connection.mark_between_chunks
        self.on_message_complete = connection.on_message_complete


class ReplicaConnection(asyncio.Protocol):
    def __init__(self, link: "HttpLink") -> None:
        self._link = link
        self._post = link.outbox.post
        self.headers: Headers = {}
        self.parts: list[bytes] = []
        self.quiet = [True]
        """Empty after the first byte of a message."""
        self.in_head = True
        self._head: Headers = {}
        """The headers of the answer, without trailers and whatever else follows its body."""
        self.between_chunks: list[bool] = []
        self.mark_between_chunks = partial(self.between_chunks.append, True)
        """Filled by the end of a chunk, emptied by the next size line."""
        self._relay: ChunkRelay | None = None
        """Set while all data so far is complete chunks, so that the next one can bypass the parser."""
        self._relay_to: ChunkRelay | None = None
        self._after_stream = False
        self._parser = httptools.HttpResponseParser(_Hooks(self))
        self._transport: asyncio.Transport | None = None
        self._call: UpstreamHttpCall | None = None
        self._began_again_s: float | None = None
        self.idle_since_s = 0.0
        self._heard_bytes = 0
        self._framing_bytes = 0
        """Bytes received since the head began, or since the last byte of the body."""
        self._is_head_passed = False
        self._complete = False
        self._body = b""
        self._status = 0
        self._keeps = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        _keep_alive(transport.get_extra_info("socket"))

    def begin(self, call: UpstreamHttpCall) -> None:
        assert self._transport is not None
        self._call = call
        call.connection = self
        self._transport.write(call.request)
        if call.paused:
            self.pause()

    def begin_again(self, call: UpstreamHttpCall, now_s: float) -> bool:
        """Sends another request on an idle connection. False when the connection can no longer be used."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        self._call = call
        call.connection = self
        self._began_again_s = now_s
        transport.write(call.request)
        return True

    def _forget(self) -> None:
        """Clears the state of the answer that has ended."""
        self._heard_bytes = self._framing_bytes = 0
        self._is_head_passed = self._complete = False
        self._relay = self._relay_to = None
        self.between_chunks.clear()
        self._body = b""

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._relay = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def relay_chunks(self, relay: ChunkRelay) -> None:
        self._relay_to = relay

    def data_received(self, data: bytes) -> None:
        relay = self._relay
        if relay is not None:
            length = len(data)
            if (
                data[-4:] == _EVENT_END
                and (
                    (length <= RELAY_MAX_BYTES and data[_SIZE_SLICES[length]] == _SIZE_LINES[length])
                    or are_whole_chunks(data)
                )
            ) or (data[-6:] == _LONG_EVENT_END and are_whole_chunks(data)):
                # This runs for every chunk of every stream, so it makes as few calls as possible.
                try:
                    relay.parts.append(data)
                    relay.kept_bytes += length
                    if relay.kept_bytes > KEPT_MAX_BYTES:
                        relay.fold()
                    if relay.late:
                        relay.late += data
                        if len(relay.late) > LATE_MAX_BYTES:
                            relay.flush()
                    else:
                        relay.late = data
                        self._post(relay)
                except Exception as error:  # noqa: BLE001  the sink logs it
                    self._crash(self._call, error)
                return
            self._relay = None
        call = self._call
        if call is None or call.cancelled:
            # Data without a request, or for a cancelled one. What follows cannot be assigned to a request.
            self.abort()
            return
        try:
            if not self._heard_bytes:
                repeated = self._link.repeated
                body = repeated.body_of(data)
                if body is not None and repeated.value is not None:
                    self._call = call.connection = None
                    self._after_stream = False
                    self._link.give_back(self)
                    call.cancelled = True
                    call.sink.on_answer(200, repeated.value, body, True)
                    return
            self._heard_bytes += len(data)
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                # After a complete answer, invalid data does no harm: it is not used.
                if not self._complete:
                    self._break(f"it does not answer with HTTP ({error})")
                    return
                self._keeps = False
            if self._complete:
                self._finish(call, data)
            else:
                self._pass_on(call, data)
        except Exception as error:  # noqa: BLE001  the sink logs it
            self._crash(call, error)

    def _crash(self, call: UpstreamHttpCall | None, error: Exception) -> None:
        if self._call in (None, call):  # after a complete answer, the connection may have another request already
            self._call = None
            self.abort()
        if call is not None:
            call.crash(error)

    def _pass_on(self, call: UpstreamHttpCall, data: bytes) -> None:
        """Passes on the part of an incomplete answer that has arrived."""
        parts = self.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._framing_bytes = 0 if body else self._framing_bytes + len(data)
        if self._framing_bytes > HEAD_MAX_BYTES:
            self._break("its headers are too large")
        elif self._is_head_passed:
            if body:
                call.sink.on_data(body, False)
            self._maybe_relay(data)
        elif not self.in_head:
            self._is_head_passed = True
            call.sink.on_answer(self._parser.get_status_code(), self._head, body, False)
            self._maybe_relay(data)

    def _maybe_relay(self, data: bytes) -> None:
        # After the end of a chunk, only digits of the next size line may have arrived, and they do not end a line.
        relay = self._relay_to
        if relay is not None and self.between_chunks and data.endswith(b"\r\n") and not relay.tail:
            self._relay = relay

    def on_headers_complete(self) -> None:
        if not self._complete:
            self.in_head = False
            self._head = self.headers.copy()
        self.headers.clear()

    def on_message_complete(self) -> None:
        if self._complete:
            return  # a second answer, without a request
        # Read now: the parser forgets it after the end of the message.
        status = self._parser.get_status_code()
        self.quiet.append(True)
        self.in_head = True
        if status < 200:
            return
        self._status = status
        self._keeps = self._parser.should_keep_alive()
        parts = self.parts
        self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._complete = True

    def _finish(self, call: UpstreamHttpCall, data: bytes) -> None:
        # The connection is free before the sink is called: the next request may use it.
        self._call = call.connection = None
        headers, body, is_head_passed = self._head, self._body, self._is_head_passed
        keeps = self._keeps and bool(self.quiet)
        self._after_stream = _is_event_stream(headers)
        self._forget()
        self.headers.clear()
        self.parts.clear()
        if not is_head_passed and keeps and self._status == 200:
            self._link.repeated.learn(data, headers)
        # Data after the end of the answer makes the connection unusable for another request.
        if keeps:
            self._link.give_back(self, after_stream=self._after_stream)
        else:
            self.close()
        call.cancelled = True
        if is_head_passed:
            call.sink.on_data(body, True)
        else:
            call.sink.on_answer(self._status, headers, body, True)

    def _break(self, text: str) -> None:
        call, self._call = self._call, None
        self.abort()
        if call is not None:
            call.fail(FailureKind.BROKEN, text)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost(self)
        self._transport = self._relay = None
        call, self._call = self._call, None
        if call is None or call.cancelled:
            return
        call.connection = None
        try:
            if self._is_head_passed and not self._is_framed():
                call.cancelled = True
                call.sink.on_data(b"", True)
            elif self._is_stale():
                if self._after_stream:
                    self._link.closes_after_streams()
                self._link.again(call)
            else:
                call.fail(FailureKind.BROKEN, describe_os_error(error) if error else "it closed the connection")
        except Exception as crash:  # noqa: BLE001  the sink logs it
            call.crash(crash)

    def _is_framed(self) -> bool:
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name in self._head)

    def _is_stale(self) -> bool:
        if self._began_again_s is None or self._heard_bytes:
            return False
        return self._after_stream or self._began_again_s - self.idle_since_s >= STALE_AFTER_S


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


def describe_os_error(error: BaseException) -> str:
    """Without addresses and names of hosts, which asyncio and TLS add: clients may read it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.partition(", certificate is not valid for")[0]
        return f"its certificate was rejected: {why}"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "no connection" if text.startswith(_WITH_ADDRESSES) else text
