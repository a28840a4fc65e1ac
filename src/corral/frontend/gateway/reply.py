"""Writes answers to clients: a replica's answer, held as long as another replica could still give it, and our own.

Whole chunks of a stream bypass this module: `ChunkRelay` forwards them unchanged."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.token_usage import ReportedUsage, cut_usage, stream_usage
from corral.frontend.gateway.upstream.calls import ChunkRelay, Headers

if TYPE_CHECKING:
    from corral.frontend.gateway.client_protocol import ClientProtocol

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
# JSON answers up to this size are held until they are complete, so that another replica can take over until then.
HOLD_MAX_BYTES = 4 << 20
# An event that is longer reaches the client in parts.
EVENT_MAX_BYTES = 1 << 20
_RELAYED = frozenset({b"content-encoding", b"content-disposition", b"cache-control", b"retry-after"})
_END = b"0\r\n\r\n"


def status_line(status: int) -> bytes:
    """Attached servers, and proxies before them, also answer with statuses that no standard has, such as 529."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


class ClientConnection(Protocol):
    """The connection that the request came on."""

    write: Callable[[bytes], None]
    is_known: bool
    """Whether the client has presented a valid key."""

    def done(self, *, keep: bool) -> None:
        """The answer is complete. `keep`: the connection may be used for another request."""
        ...

    def abort(self) -> None:
        """The answer cannot be completed: the client must see the connection end."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether the client reads more slowly than it is sent to."""
        ...

    def address(self) -> str: ...


class ReplyHead:
    """The part of a replica's head that reaches clients."""

    __slots__ = ("content_type", "length", "lines")

    def __init__(self, status: int, headers: Headers) -> None:
        self.content_type = b""
        self.length: bytes | None = None
        lines = status_line(status)
        for name, value in headers.items():
            name = name.lower()
            if name == b"content-type":
                self.content_type = value
            elif name == b"content-length":
                self.length = value
            elif name in _RELAYED:
                lines += b"%b: %b\r\n" % (name, value)
        self.lines = b"%bcontent-type: %b\r\n" % (lines, self.content_type)

    @property
    def is_json(self) -> bool:
        return self.content_type.startswith(b"application/json")

    @property
    def is_events(self) -> bool:
        return self.content_type.startswith(b"text/event-stream")


class Reply:
    _held: list[bytes] | None = None
    _held_bytes = 0
    relay: ChunkRelay | None = None
    """For a stream of events."""
    _usage_text = b""
    """The part of a complete answer that holds its token usage."""
    opened = False
    """Whether bytes have reached the client. Then no other replica can take over."""
    is_ended = False
    """Whether all of it was written, or an error event in place of the rest."""
    is_chunked = False
    is_continuable = True
    """Whether the client has only whole events."""
    _tail = b""
    """The beginning of an event, which is held until it is complete."""
    _has_moved = False

    def __init__(
        self, client: ClientConnection, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool
    ) -> None:
        """`more`: further header lines."""
        self._client = client
        self._write = client.write
        self._head = head.lines + more
        self._http11 = http11
        self.keep_alive = keep_alive
        self.is_events = head.is_events
        self._length = head.length
        if head.is_json:
            self._held = []

    def put(self, data: bytes, *, last: bool) -> None:
        if self._held is not None:
            self._hold(self._held, data, last=last)
            return
        self._has_moved = True
        self._write_on(self._whole_events(data, last=last) if self.is_events else data, last=last)

    def _whole_events(self, data: bytes, *, last: bool) -> bytes:
        """Holds the beginning of an event until the rest comes: another replica could not complete it."""
        if not self._tail and (last or data.endswith(b"\n\n")):
            return data
        data = self._tail + data
        at = len(data) if last else end_of_events(data)
        if not at and len(data) > EVENT_MAX_BYTES:
            self.is_continuable = False
            at = len(data)
        self._tail = data[at:]
        if self.relay is not None:
            self.relay.tail = self._tail
        return data[:at]

    def _write_on(self, data: bytes, *, last: bool) -> None:
        if self.relay is not None:
            self.relay.flush()
        opening = b""
        if not self.opened:
            if last and (self._length is not None or not self.is_events):
                self._length = b"%d" % len(data)
            opening = self._open()
        if data:
            if self.is_chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if self.relay is not None:
                self.relay.keep(data)
        if last:
            self.is_ended = True
            if self.is_chunked:
                data += _END
        if data or opening:
            self._write(opening + data)

    def take_moved(self) -> bool:
        """Whether data arrived since the last call."""
        has_moved, self._has_moved = self._has_moved, False
        return (self.relay is not None and self.relay.take_moved()) or has_moved

    def _hold(self, held: list[bytes], data: bytes, *, last: bool) -> None:
        if not last:
            held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > HOLD_MAX_BYTES:
                self._held = None
                self.put(b"".join(held), last=False)
            return
        if held:
            held.append(data)
            data = b"".join(held)
        closing = b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n"
        self.is_ended = True
        self._write(b"%bcontent-length: %d%b%b" % (self._head, len(data), closing, data))
        self._usage_text = cut_usage(data)

    def _open(self) -> bytes:
        self.opened = True
        if self._length is not None:
            framing = b"content-length: %b\r\n" % self._length
        elif self._http11:
            self.is_chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            self.keep_alive = False
            framing = b""
        closing = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        if self.is_events:
            self.relay = ChunkRelay(self._write, is_chunked=self.is_chunked)
            self.relay.tail = self._tail
        return self._head + framing + closing

    def adopt(self, earlier: "Reply") -> None:
        """Goes on with an answer whose head the client already has from `earlier`."""
        self._held = None
        self.is_events = self.opened = True
        self.is_chunked, self.keep_alive = earlier.is_chunked, earlier.keep_alive
        if earlier.relay is not None:
            earlier.relay.flush()
            self.relay = ChunkRelay(self._write, is_chunked=self.is_chunked)

    def add_comment(self, comment: bytes) -> None:
        """Adds to a stream of events, between two of them or before the first, while no replica gives the rest."""
        opening = b"" if self.opened else self._open()
        if self.relay is not None:
            self.relay.flush()
        self._write(opening + (b"%x\r\n%b\r\n" % (len(comment), comment) if self.is_chunked else comment))

    def can_go_on(self) -> bool:
        """Whether the client would accept more from another replica."""
        return self.is_continuable and self._may_add()

    def _may_add(self) -> bool:
        return self.is_events and (self.is_chunked or not self._http11)

    def drop_tail(self) -> None:
        """Discards the beginning of an event whose rest will not come."""
        self._tail = b""

    def error_event(self, error: ErrorResponse, protocol: "ClientProtocol", path: bytes) -> bytes:
        """`error` as the last event of this stream."""
        return protocol.error_event(error, path=path, number=self.events)

    def break_off(self, event: bytes) -> bool:
        """Ends a stream of events with `event`. False: only closing the connection shows the failure."""
        if not self._may_add():
            return False
        if self.relay is not None:
            self.relay.flush()
        self.is_ended = True
        self._write(b"%x\r\n%b\r\n%b" % (len(event), event, _END) if self.is_chunked else event)
        return True

    def drop(self) -> None:
        """Discards what was not written yet: the client is gone."""
        if self.relay is not None:
            self.relay.drop()

    @property
    def events(self) -> int:
        """How many events of a stream the client was sent."""
        return self.relay.events if self.relay is not None else 0

    def usage(self, *, complete: bool) -> ReportedUsage:
        if self.relay is None:
            return self._usage_text
        return stream_usage(self.relay, chunked=self.is_chunked, complete=complete)


def end_of_events(data: bytes) -> int:
    """Where the last complete event ends."""
    return max([data.rfind(end) + len(end) if end in data else 0 for end in (b"\n\n", b"\r\n\r\n")])


def encode_response(status: int, headers: Iterable[bytes], body: bytes, *, close: bool) -> bytes:
    """An answer of the gateway itself."""
    return b"".join(
        (
            status_line(status),
            *headers,
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n" if close else b"\r\n",
            body,
        )
    )
