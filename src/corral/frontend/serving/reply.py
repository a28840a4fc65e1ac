"""An answer on its way to the client: held while another replica could still give it, passed on, ended or broken off.

Chunks of a stream go through `on_chunk` as they came; that is written for speed."""

from typing import Protocol

from corral.frontend.serving.answers import STATUS_LINES
from corral.frontend.serving.usage import StreamUsage, cut_usage
from corral.system.replica_calls import Headers

# JSON answers up to this size are held until they are whole: then a replica that dies in the middle costs nothing.
HOLD_MOST_BYTES = 4 << 20
_PASSED_ON = frozenset({b"content-encoding", b"content-disposition", b"cache-control", b"retry-after"})
_END = b"0\r\n\r\n"


class Client(Protocol):
    """The connection the request came on."""

    def write(self, data: bytes) -> None: ...

    def done(self, *, keep: bool) -> None:
        """The answer is complete; the next request may come."""
        ...

    def cut(self) -> None:
        """The answer cannot be completed: the client must see the connection end."""
        ...

    @property
    def is_slow(self) -> bool:
        """It does not read what it was sent."""
        ...

    def address(self) -> str: ...


class ReplyHead:
    """What of a replica's head reaches clients."""

    __slots__ = ("content_type", "length", "lines")

    def __init__(self, status: int, headers: Headers) -> None:
        self.content_type = b""
        self.length: bytes | None = None
        lines = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        for name, value in headers.items():
            name = name.lower()
            if name == b"content-type":
                self.content_type = value
            elif name == b"content-length":
                self.length = value
            elif name in _PASSED_ON:
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
    _usage: StreamUsage | None = None
    _said = b""
    """The part of a whole answer that tells its usage."""
    opened = False
    """Bytes have reached the client: no other replica can take over."""
    is_chunked = False
    has_moved = False
    """Something came since this was last looked at."""

    def __init__(self, client: Client, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool) -> None:
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
        self.has_moved = True
        if not self.opened:
            if last and (self._length is not None or not self.is_events):
                self._length = b"%d" % len(data)
            self._open()
        if data:
            if self.is_chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if self._usage is not None:
                self._usage.add(data)
        if last and self.is_chunked:
            data += _END
        if data:
            self._write(data)

    def on_chunk(self, chunk: bytes) -> None:
        """A piece of a stream in the coding in which the client gets it: the same bytes."""
        self.has_moved = True
        usage = self._usage
        assert usage is not None
        usage.events += chunk.count(b"data: ")
        usage.keep(chunk)
        self._write(chunk)

    def _hold(self, held: list[bytes], data: bytes, *, last: bool) -> None:
        if not last:
            held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > HOLD_MOST_BYTES:
                self._held = None
                self.put(b"".join(held), last=False)
            return
        if held:
            held.append(data)
            data = b"".join(held)
        closing = b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n"
        self._write(b"%bcontent-length: %d%b%b" % (self._head, len(data), closing, data))
        self._said = cut_usage(data)

    def _open(self) -> None:
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
        self._write(b"%b%b%b" % (self._head, framing, closing))
        if self.is_events:
            self._usage = StreamUsage(chunked=self.is_chunked)

    def break_off(self, event: bytes) -> bool:
        """Ends a stream of events with this one. False: only the end of the connection can tell the client."""
        if not self.is_events or (self._http11 and not self.is_chunked):
            return False
        self._write(b"%x\r\n%b\r\n%b" % (len(event), event, _END) if self.is_chunked else event)
        return True

    def usage(self, *, whole: bool) -> tuple[bytes, tuple[int, int] | None]:
        """What it says of its tokens, unread; or the tokens themselves."""
        return self._said, self._usage.result(whole=whole) if self._usage is not None else None
