"""A request to a replica and its answer, as callbacks: no tasks, because they run once for every chunk of every stream.

A `Sink` hears, in order: `on_answer` once, `on_data` any number of times, one of them with `last`; or at any point
`on_failure`, and then nothing more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

Headers = dict[bytes, bytes]
EVENT = b"data: "


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


class ChunkRelay:
    """Where the chunks of a stream of events go, and what is seen of them in passing.

    The latest few are kept, for they could tell the usage. In plain fields: one more call for every chunk of every
    stream would cost more than all of it."""

    __slots__ = ("_looked", "before_last", "earlier", "events", "last", "late", "write")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write
        self.events = 0
        self.last = self.before_last = self.earlier = self._looked = b""
        self.late = b""
        """What has come and is not written yet; see `Outbox`. Whoever writes to the client flushes first."""

    def flush(self) -> None:
        data, self.late = self.late, b""
        if data:
            self.write(data)

    def drop(self) -> None:
        """The client is gone."""
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
        """Whether something came since this was last asked."""
        before, self._looked = self._looked, self.last
        return self.last is not before


class UpstreamCall(Protocol):
    """One request on its way."""

    def cancel(self) -> None:
        """The replica sees the connection end. The sink hears nothing more."""
        ...

    def pause(self) -> None:
        """Read nothing more for now."""
        ...

    def resume(self) -> None: ...

    def relay_chunks(self, relay: ChunkRelay) -> None:
        """From now on a chunk that came whole, in HTTP's own chunked coding, is relayed as it is, size line and all.

        Whatever comes otherwise still goes to the sink, without its coding."""
        ...


class Link(Protocol):
    """The way to one replica."""

    def send(self, request: bytes, sink: Sink) -> UpstreamCall: ...

    async def probe(self, request: bytes, *, within_s: float) -> bool:
        """Whether anything that speaks HTTP answers this request, on a connection of its own.

        An empty request asks only whether somebody listens."""
        ...

    def close(self) -> None:
        """Idle connections end; calls in progress go on."""
        ...


class Upstream(Protocol):
    def open(self, address: str) -> Link: ...
