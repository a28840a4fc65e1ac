"""A request to a replica and its answer, as callbacks instead of tasks: they run for every chunk of every stream.

A `ResponseSink` gets `on_answer` once, then `on_data` any number of times, until one has `last`. At any point it may
get `on_failure` instead, and then nothing more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

Headers = dict[bytes, bytes]
EVENT = b"data: "


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


class ChunkRelay:
    """Forwards the chunks of a stream of events to the client.

    It keeps the latest few, because they may hold the usage. In plain fields: another call for every chunk would cost
    more than the rest."""

    __slots__ = ("_looked", "before_last", "earlier", "events", "last", "late", "write")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write
        self.events = 0
        self.last = self.before_last = self.earlier = self._looked = b""
        self.late = b""
        """Received and not written yet; see `Outbox`. Whoever writes to the client flushes first."""

    def flush(self) -> None:
        data, self.late = self.late, b""
        if data:
            self.write(data)

    def drop(self) -> None:
        """Discards what is not written yet: the client is gone."""
        self.late = b""

    def keep(self, data: bytes) -> None:
        self.events += data.count(EVENT)
        self.earlier = self.before_last
        self.before_last = self.last
        self.last = data

    def kept(self) -> Iterable[bytes]:
        """The oldest first."""
        return (self.earlier, self.before_last, self.last)

    def take_moved(self) -> bool:
        """Whether data arrived since the last call."""
        before, self._looked = self._looked, self.last
        return self.last is not before


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
    def open(self, address: str) -> UpstreamLink: ...
