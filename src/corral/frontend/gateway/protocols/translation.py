"""Translates a request that a replica does not understand itself, and the replica's answer back.

Replicas list the client APIs that their process speaks (`endpoints` in the manifest). Requests for those are relayed
unchanged. For all other replicas a `Translation` makes an OpenAI request of it, and an `AnswerTranslator`, one for each
attempt, makes the answer and its chunks again what the client expects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from corral.core.errors import CorralError
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead, status_line
from corral.frontend.gateway.token_usage import ReportedUsage
from corral.frontend.gateway.upstream.calls import Headers

if TYPE_CHECKING:
    from corral.frontend.gateway.client_protocol import ClientProtocol

ANSWER_MAX_BYTES = 32 << 20
LINE_MAX_BYTES = 8 << 20
_DONE = b"[DONE]"


def _ignore(event: bytes) -> None:
    """Nobody wants to know what the replica says."""


class InvalidAnswer(CorralError):
    """A replica's answer is not one of OpenAI's API."""

    code = "invalid_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What a translation must know besides the request."""

    id: str
    """Unique among all requests of the cluster."""
    now_ms: int
    now_s: float
    """On a clock that never jumps."""
    load_s: float = 0.0
    """How long the request waited for its model to be loaded."""


class AnswerTranslator(Protocol):
    tokens: tuple[int, int]
    """Tokens in and out, as far as the replica has reported them."""
    stream_type: bytes
    """The content type of a streamed answer."""

    def whole(self, data: bytes, now_s: float) -> bytes:
        """The complete answer in the client's form. Raises InvalidAnswer, or ErrorResponse."""
        ...

    def event(self, data: bytes, now_s: float) -> bytes:
        """What the client gets for one event of the replica's stream; may be empty. Raises as `whole` does."""
        ...

    def end(self, now_s: float) -> bytes:
        """The end of a stream. Raises as `whole` does."""
        ...

    def error(self, error: ErrorResponse) -> bytes:
        """The end of a stream that fails. Empty: as the client's protocol tells errors."""
        ...


class Translation(Protocol):
    path: bytes
    """The replica's endpoint."""

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        """The replica's request. Raises InvalidInput."""
        ...


class Translated:
    """One attempt at a replica that does not speak the client's protocol."""

    __slots__ = ("answer", "body", "opening", "path")

    def __init__(self, translation: Translation, body: bytes, facts: CallFacts) -> None:
        self.path = translation.path
        self.opening = b"POST %b HTTP/1.1\r\n" % translation.path
        self.body, self.answer = translation.begin(body, facts)


def translated_headers(headers: Headers, answer: AnswerTranslator) -> Headers:
    """The replica's headers with the content type of the translated answer."""
    kept = {name.lower(): value for name, value in headers.items()}
    kept.pop(b"content-length", None)
    kept.pop(b"content-encoding", None)
    is_stream = kept.get(b"content-type", b"").startswith(b"text/event-stream")
    kept[b"content-type"] = answer.stream_type if is_stream else b"application/json"
    return kept


class TranslatedReply(Reply):
    """Writes a replica's successful answer in the client's form."""

    def __init__(
        self,
        client: ClientConnection,
        head: ReplyHead,
        more: bytes,
        *,
        http11: bool,
        keep_alive: bool,
        protocol: "ClientProtocol",
        path: bytes,
        answer: AnswerTranslator,
        now_s: Callable[[], float],
        read: Callable[[bytes], None] | None = None,
    ) -> None:
        """`path`: the client's. `read` gets every event of the replica."""
        super().__init__(client, head, more, http11=http11, keep_alive=keep_alive)
        self._protocol, self._path, self.answer, self._now_s = protocol, path, answer, now_s
        self.read = read or _ignore
        self._rest = b""
        self._events = 0
        self._failed = False
        self.is_events = self._held is None
        self._more = more

    def put(self, data: bytes, *, last: bool) -> None:
        if self._held is not None:
            super().put(data, last=last)
            return
        self._has_moved = True
        out = b""
        if not self._failed:
            try:
                out = self._translate(data, last=last)
            except ErrorResponse as error:
                out = self._fail(error)
            except CorralError as error:
                out = self._fail(ErrorResponse(502, str(error), code=error.code))
        if out or last:
            self._write_on(out, last=last)

    def _translate(self, data: bytes, *, last: bool) -> bytes:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_MAX_BYTES:
            raise InvalidAnswer("the replica sent an event that is too long")
        out = []
        now_s = self._now_s()
        for line in lines:
            name, _, value = line.partition(b":")
            value = value.strip()
            if name in (b"data", b"error") and value and value != _DONE:
                self._events += 1
                self.read(value)
                out.append(self.answer.event(value, now_s))
        if last:
            out.append(self.answer.end(now_s))
        return b"".join(out)

    def _fail(self, error: ErrorResponse) -> bytes:
        self._failed, self.is_continuable = True, False
        return self.error_event(error, self._protocol, self._path)

    def error_event(self, error: ErrorResponse, protocol: "ClientProtocol", path: bytes) -> bytes:
        return self.answer.error(error) or super().error_event(error, protocol, path)

    def _open(self) -> bytes:
        opening = super()._open()
        self.relay = None  # a replica's chunks never reach the client as they are
        return opening

    def adopt(self, earlier: Reply) -> None:
        super().adopt(earlier)
        self.relay = None
        self._events += earlier.events

    @property
    def events(self) -> int:
        return self._events

    def _hold(self, held: list[bytes], data: bytes, *, last: bool) -> None:
        self._held_bytes += len(data)
        if not last:
            if self._held_bytes <= ANSWER_MAX_BYTES:
                held.append(data)
            return
        try:
            if self._held_bytes > ANSWER_MAX_BYTES:
                raise InvalidAnswer("the replica's answer is too long")
            data = self.answer.whole(b"".join((*held, data)), self._now_s())
        except ErrorResponse as error:
            data = self._refuse(error)
        except CorralError as error:
            data = self._refuse(ErrorResponse(502, str(error), code=error.code))
        held.clear()
        super()._hold(held, data, last=True)

    def _refuse(self, error: ErrorResponse) -> bytes:
        self._head = b"".join((status_line(error.status), *error.headers(), self._more))
        return self._protocol.error_body(error)

    def usage(self, *, complete: bool) -> ReportedUsage:
        tokens_in, tokens_out = self.answer.tokens
        if not tokens_out and not (complete and tokens_in):
            tokens_out = self._events  # as in a stream that is relayed: each event counts as a token
        return tokens_in, tokens_out
