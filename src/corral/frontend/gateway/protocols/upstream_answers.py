"""Makes answers of attached servers what replicas answer: chat completions with the name that the client knows."""

from typing import Protocol

import msgspec

from corral.frontend.gateway.continuation.said import ChatSaid
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.peek import rename_model
from corral.frontend.gateway.protocols.translation import AnswerTranslator, InvalidAnswer
from corral.system.json import decode_json


class UpstreamAnswer(Protocol):
    """One answer of a server, in OpenAI's form. All methods raise InvalidAnswer, or ErrorResponse."""

    @property
    def is_whole(self) -> bool:
        """Whether all of a stream was given. False also where only the events in OpenAI's form tell."""
        ...

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Tokens in and out; None where the events in OpenAI's form tell."""
        ...

    def whole(self, data: bytes) -> bytes: ...

    def events(self, data: bytes) -> list[bytes]:
        """For one event of the server's stream."""
        ...

    def end(self) -> list[bytes]:
        """At the end of the stream."""
        ...


class RenamedAnswer:
    """An answer in OpenAI's form, with the name by which the client asked for the model."""

    tokens = None
    is_whole = False

    def __init__(self, model: str) -> None:
        self._model = model

    def whole(self, data: bytes) -> bytes:
        return self._rename(data)

    def events(self, data: bytes) -> list[bytes]:
        return [self._rename(data)]

    def end(self) -> list[bytes]:
        return []

    def _rename(self, data: bytes) -> bytes:
        try:
            return rename_model(data, self._model) if b'"model"' in data else data
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidAnswer(f"the server's answer is not a JSON object: {error}") from None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class SameForm:
    """For clients of OpenAI's API: what is in OpenAI's form already."""

    stream_type = b"text/event-stream"

    def __init__(self) -> None:
        self.tokens = (0, 0)

    def whole(self, data: bytes, now_s: float) -> bytes:
        self._count(data)
        return data

    def event(self, data: bytes, now_s: float) -> bytes:
        if b'_tokens"' in data:
            self._count(data)
        return b"data: %b\n\n" % data

    def end(self, now_s: float) -> bytes:
        return b"data: [DONE]\n\n"

    def _count(self, data: bytes) -> None:
        try:
            usage = decode_json(data, _Answer).usage
        except msgspec.DecodeError:
            return
        if usage is not None:
            self.tokens = (usage.prompt_tokens or 0, usage.completion_tokens or 0)

    def error(self, error: ErrorResponse) -> bytes:
        return b""


class AdaptedAnswer:
    """What an attached server answers, in the client's form."""

    def __init__(self, upstream: UpstreamAnswer, inner: AnswerTranslator) -> None:
        """`inner` makes OpenAI's form the client's."""
        self._upstream, self._inner = upstream, inner
        self.stream_type = inner.stream_type
        self.reader = ChatSaid()

    @property
    def tokens(self) -> tuple[int, int]:
        return self._upstream.tokens or self._inner.tokens

    @tokens.setter
    def tokens(self, value: tuple[int, int]) -> None:
        self._inner.tokens = value

    def whole(self, data: bytes, now_s: float) -> bytes:
        return self._inner.whole(self._upstream.whole(data), now_s)

    def event(self, data: bytes, now_s: float) -> bytes:
        shown = self._pass_on(self._upstream.events(data), now_s)
        if self._upstream.is_whole:
            self.reader.said.is_whole = True
        return shown

    def end(self, now_s: float) -> bytes:
        return self._pass_on(self._upstream.end(), now_s) + self._inner.end(now_s)

    def _pass_on(self, events: list[bytes], now_s: float) -> bytes:
        out = []
        for event in events:
            self.reader.read_event(event)
            out.append(self._inner.event(event, now_s))
        return b"".join(out)

    def error(self, error: ErrorResponse) -> bytes:
        return self._inner.error(error)
