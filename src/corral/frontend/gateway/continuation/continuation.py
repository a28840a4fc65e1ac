"""One answer that continues at another replica: the request for its rest, and the way of the rest to the client.

A replica that continues a text counts it as part of the prompt. So the tokens of the client's own prompt are counted
first, with a request for one token that the replica's prompt cache makes cheap; and those of the text so far, if the
client limits the tokens of the answer."""

from collections.abc import Callable
from typing import Any

import msgspec

from corral.frontend.gateway.continuation import requests
from corral.frontend.gateway.continuation.answers import ContinuedAnswer
from corral.frontend.gateway.continuation.said import Said
from corral.frontend.gateway.endpoints import Endpoint, ServedModel
from corral.frontend.gateway.protocols.translation import AnswerTranslator
from corral.frontend.gateway.upstream.calls import Failure, Headers, ResponseSink
from corral.system.json import decode_json

CONTINUATIONS_MAX = 2
COUNT_MAX_BYTES = 1 << 20
NO_CONTINUATION_HEADER = b"x-corral-no-continuation"


class Continuation:
    def __init__(self, path: bytes, body: bytes, said: Said, inner: AnswerTranslator) -> None:
        """`body`: of the request for the whole answer, in OpenAI's form. `inner` gives the rest the client's form."""
        self.path = path
        self.opening = b"POST %b HTTP/1.1\r\n" % path
        self.said, self.inner = said, inner
        self._body = body
        self._fields = requests.read_fields(body)
        # Templates may cut whitespace at the end of a message. A replica that is not given it says it again.
        self._text = said.text.rstrip()
        self._prompt_tokens = said.prompt_tokens
        self._tokens_so_far: int | None = None
        """Of the prompt together with the text so far."""
        self._is_counted = False

    def after_failure(self) -> "Continuation":
        """For the next replica, after the one that continued the answer has failed too."""
        return Continuation(self.path, self._body, self.said, self.inner)

    def why_not(self, failed: Endpoint, served: ServedModel | None) -> str:
        """Why no replica can give the rest, as a clause; empty if one can."""
        said = self.said
        if said.beyond:
            return f"it has {said.beyond}"
        if not said.text:
            return ""
        if not any(one.replica.continuation for one in (failed, *(served.endpoints if served is not None else ()))):
            return "the model's backend cannot continue a text"
        return requests.why_whole(self._fields, self.path)

    @property
    def has_text(self) -> bool:
        return bool(self._text)

    def count_body(self, kind: str) -> bytes | None:
        """The next request that counts tokens. None: all that is needed is known."""
        if self._is_counted or not (self._text or self.said.finish):
            return None
        if self._prompt_tokens is None:
            return requests.for_count(self._fields)
        if self._tokens_so_far is None and (self._most is not None or self.said.finish):
            return requests.for_count(requests.with_text(self._fields, self.path, self._text, kind))
        return None

    @property
    def _most(self) -> int | None:
        return requests.most_tokens(self._fields)

    def count(self, tokens: int | None) -> None:
        """None: the replica does not tell. Then each event counts as a token."""
        if tokens is None:
            self._is_counted = True
        elif self._prompt_tokens is None:
            self._prompt_tokens = tokens
        else:
            self._tokens_so_far = tokens

    @property
    def _used_tokens(self) -> int:
        if self._tokens_so_far is None or self._prompt_tokens is None:
            return self.said.pieces if self._text else 0
        return max(0, self._tokens_so_far - self._prompt_tokens)

    def body(self, kind: str) -> bytes | None:
        """The request for the rest. None: there is none, and only the end of the answer is missing."""
        rest = None if self._most is None else self._most - self._used_tokens
        if self.said.finish or (rest is not None and rest <= 0):
            return None
        fields = requests.with_text(self._fields, self.path, self._text, kind)
        return requests.for_rest(fields, rest_tokens=rest, used_tokens=self._used_tokens)

    def ending(self) -> bytes:
        """The end of the answer, as a replica would send it."""
        is_text = self.path == requests.COMPLETIONS
        kind = "text_completion" if is_text else "chat.completion.chunk"
        events: list[dict[str, Any]] = []
        if not self.said.finish:
            last: dict[str, Any] = {"text": ""} if is_text else {"delta": {}}
            events.append({"object": kind, "choices": [{"index": 0, **last, "finish_reason": "length"}]})
        prompt = (self._prompt_tokens or 0) + self._used_tokens
        events.append({"object": kind, "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 0}})
        return b"".join(b"data: %b\n\n" % msgspec.json.encode(event) for event in events)

    def answer(self) -> ContinuedAnswer:
        """Reads the rest of the answer from one replica."""
        said = self.said
        return ContinuedAnswer(
            self.inner,
            said,
            repeated=said.text[len(self._text) :],
            prompt_tokens=self._prompt_tokens if self._text or said.finish else None,
            pieces=said.pieces if self._text else 0,
        )


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None


class _Counted(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class TokenCounter:
    """Receives the answer to a request that counts tokens."""

    def __init__(self, counted: Callable[[int | None], None], request: ResponseSink) -> None:
        """`request` is told when no answer comes."""
        self._counted, self._request = counted, request
        self._status = 0
        self._parts: list[bytes] = []
        self._size = 0

    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        self._status = status
        self.on_data(data, last)

    def on_data(self, data: bytes, last: bool) -> None:
        self._size += len(data)
        if self._size <= COUNT_MAX_BYTES:
            self._parts.append(data)
        if last:
            self._counted(self._read())

    def _read(self) -> int | None:
        if self._status != 200 or self._size > COUNT_MAX_BYTES:
            return None
        try:
            usage = decode_json(b"".join(self._parts), _Counted).usage
        except msgspec.DecodeError:
            return None
        return usage.prompt_tokens if usage is not None else None

    def on_failure(self, failure: Failure) -> None:
        self._request.on_failure(failure)

    def on_crash(self, error: Exception) -> None:
        self._request.on_crash(error)
