"""A request to a replica and its answer, as callbacks instead of tasks: they run for every chunk of every stream.

A `ResponseSink` gets `on_answer` once, then `on_data` any number of times, until one has `last`. At any point it may
get `on_failure` instead, and then nothing more. Whoever calls a sink catches what it raises, which is a bug, and hands
that to `on_crash`: otherwise the request would stay open for ever.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from corral.core.replicas.attached import ServerTrust
from corral.formats.http_chunks import chunk_content

Headers = dict[bytes, bytes]
EVENT = b"data: "
KEPT_MAX_BYTES = 128 * 1024
"""Of one stream: about five hundred events."""
USAGE_PARTS = 3
"""The latest parts of a stream, which may hold its usage."""


class FailureKind(Enum):
    UNREACHABLE = "unreachable"
    """No connection: nothing was sent."""
    BROKEN = "broken"
    """The connection broke: the replica may have worked on the request."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    text: str


class ResponseSink(Protocol):
    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        """The head, and the part of the body that came with it. Header names are as received; of a repeated header, the
        last one counts.

        An answer whose head differs only in the content length has the same mapping object as the one before. Its
        content length counts only if `last` is false."""
        ...

    def on_data(self, data: bytes, last: bool) -> None: ...

    def on_failure(self, failure: Failure) -> None: ...

    def on_crash(self, error: Exception) -> None:
        """A bug, in the sink or in what calls it. It is the last call. It raises nothing."""
        ...


class EventReader(Protocol):
    """Reads what a stream says."""

    def read(self, data: bytes) -> None:
        """Reads complete events."""
        ...


class ChunkRelay:
    """Forwards the chunks of a stream of events to the client.

    It keeps them, because the latest ones may hold the usage, and all together the text that another replica continues
    if this one fails. In plain fields: another call for every chunk would cost more than the rest."""

    __slots__ = (
        "_counted", "_looked", "_read", "has_forgotten", "is_chunked", "kept_bytes", "late", "parts", "reader", "tail",
        "write",
    )  # fmt: skip

    def __init__(self, write: Callable[[bytes], None], *, is_chunked: bool = True) -> None:
        """`is_chunked`: what is kept is in HTTP's chunked coding."""
        self.write = write
        self.is_chunked = is_chunked
        self.parts: list[bytes] = []
        """Whole events each."""
        self.kept_bytes = 0
        self.reader: EventReader | None = None
        """Reads what is not kept any longer."""
        self.has_forgotten = False
        """Whether parts are gone that nobody has read."""
        self.tail = b""
        """The beginning of an event that is not complete yet. The client gets only whole ones."""
        self.late = b""
        """Received and not written yet; see `Outbox`. Whoever writes to the client flushes first."""
        self._looked = b""
        self._read: list[bytes] = []
        """Parts among the latest that are not in `parts` any longer."""
        self._counted = 0

    def flush(self) -> None:
        data, self.late = self.late, b""
        if data:
            self.write(data)

    def drop(self) -> None:
        """Discards what is not written yet: the client is gone."""
        self.late = b""

    def keep(self, data: bytes) -> None:
        self.parts.append(data)
        self.kept_bytes += len(data)
        if self.kept_bytes > KEPT_MAX_BYTES:
            self.fold()

    def fold(self, *, keep: int = USAGE_PARTS) -> None:
        """Forgets all parts but the latest. `reader` reads them first."""
        at = max(0, len(self.parts) - keep)
        older, self.parts = self.parts[:at], self.parts[at:]
        self._read = [*self._read, *older][-USAGE_PARTS:] if keep < USAGE_PARTS else []
        self._counted += b"".join(older).count(EVENT)
        self.kept_bytes = 0
        if self.reader is None:
            self.has_forgotten = self.has_forgotten or bool(older)
        else:
            self.reader.read(b"".join(map(chunk_content, older) if self.is_chunked else older))

    @property
    def events(self) -> int:
        return self._counted + b"".join(self.parts).count(EVENT)  # no event crosses the end of a part

    def kept(self) -> Iterable[bytes]:
        """The latest parts, the oldest first."""
        return [*self._read, *self.parts[-USAGE_PARTS:]][-USAGE_PARTS:]

    def take_moved(self) -> bool:
        """Whether data arrived since the last call."""
        before, self._looked = self._looked, self.parts[-1] if self.parts else b""
        return self._looked is not before


class UpstreamCall(Protocol):
    """One request at a replica."""

    def cancel(self) -> None:
        """Closes the connection to the replica. The sink gets no further call."""
        ...

    def pause(self) -> None:
        """Stops reading until `resume`."""
        ...

    def resume(self) -> None: ...

    def relay_chunks(self, relay: ChunkRelay) -> None:
        """From now on, complete chunks in HTTP's chunked coding go to `relay` unchanged, with their size lines.

        All other data still goes to the sink, decoded."""
        ...


class UpstreamLink(Protocol):
    """The connections to one replica."""

    def send(self, request: bytes, sink: ResponseSink) -> UpstreamCall: ...

    async def probe(self, request: bytes, *, within_s: float) -> bool:
        """Whether an HTTP server answers this request, on a separate connection.

        An empty request only checks that the port accepts connections."""
        ...

    def close(self) -> None:
        """Closes idle connections. Calls in progress continue."""
        ...


class Upstream(Protocol):
    def open(self, address: str, *, trust: ServerTrust | None = None) -> UpstreamLink:
        """`trust`: for a server with TLS."""
        ...
