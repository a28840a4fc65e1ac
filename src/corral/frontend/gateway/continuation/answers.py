"""Makes the rest of an answer, as another replica sends it, fit what the client already has."""

from typing import Any

import msgspec

from corral.frontend.gateway.continuation.said import ChatSaid, Said
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.protocols.replica_errors import error_of
from corral.frontend.gateway.protocols.translation import AnswerTranslator, InvalidAnswer
from corral.system.json import decode_json


class OpenAiStream:
    """Events for a client of OpenAI's API: those of the replica, with the id and the time of the first one."""

    stream_type = b"text/event-stream"

    def __init__(self, head: dict[str, Any], *, shows_usage: bool) -> None:
        self.tokens = (0, 0)
        self._head, self._shows_usage = head, shows_usage

    def whole(self, data: bytes, now_s: float) -> bytes:
        raise InvalidAnswer("the replica did not stream the rest of an answer")

    def event(self, data: bytes, now_s: float) -> bytes:
        chunk = decode_json(data, dict[str, Any])
        if not chunk.get("choices") and not self._shows_usage:
            return b""
        return b"data: %b\n\n" % msgspec.json.encode({**chunk, **self._head})

    def end(self, now_s: float) -> bytes:
        return b"data: [DONE]\n\n"

    def error(self, error: ErrorResponse) -> bytes:
        return b""


class ContinuedAnswer:
    """Reads a replica's chat events and gives `inner` those that the client does not have yet."""

    def __init__(
        self, inner: AnswerTranslator, said: Said, *, repeated: str, prompt_tokens: int | None, pieces: int
    ) -> None:
        """`repeated`: the end of the text that the replica was not given, and begins with. `prompt_tokens`: of the
        client's prompt, without the text that was handed over; None is unknown. `pieces`: of that text."""
        self.inner = inner
        self.stream_type = inner.stream_type
        self.tokens = (prompt_tokens or 0, said.pieces)
        """Until the replica tells them, which it does last, each event of the whole answer counts as a token."""
        self._has_usage = False
        self.said = said
        self._reader = ChatSaid()
        self._reader.said = said
        self._repeated, self._prompt_tokens, self._pieces = repeated, prompt_tokens, pieces

    def whole(self, data: bytes, now_s: float) -> bytes:
        raise InvalidAnswer("the replica did not stream the rest of an answer")

    def event(self, data: bytes, now_s: float) -> bytes:
        try:
            chunk = decode_json(data, dict[str, Any])
        except msgspec.DecodeError as error:
            raise InvalidAnswer(f"the replica's answer is not a stream of events: {error}") from None
        if chunk.get("error") is not None:
            raise error_of(502, chunk["error"])
        has_timings = chunk.pop("timings", None) is not None
        given = chunk.get("choices")
        choices = [choice for choice in given if isinstance(choice, dict)] if isinstance(given, list) else []
        says = [self._clip(choice) for choice in choices]
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._count(usage)
        elif not any(says) and (choices or has_timings):
            return b""
        sent = msgspec.json.encode(chunk)
        self._reader.read_event(sent)
        if not self._has_usage:
            self.tokens = (self.tokens[0], self.said.pieces)
        return self.inner.event(sent, now_s)

    def _clip(self, choice: dict[str, Any]) -> bool:
        """Removes what the client already has. False: nothing is left."""
        delta = choice.get("delta")
        place, name = (delta, "content") if isinstance(delta, dict) else (choice, "text")
        if isinstance(delta, dict):
            delta.pop("role", None)
        text = place.get(name)
        if isinstance(text, str):
            place[name] = self._without_repeated(text)
        says = any(value not in (None, "", []) for value in place.values()) if place is delta else bool(place.get(name))
        return says or bool(choice.get("finish_reason"))

    def _without_repeated(self, text: str) -> str:
        repeated = self._repeated
        common = 0
        while common < min(len(text), len(repeated)) and text[common] == repeated[common]:
            common += 1
        self._repeated = repeated[common:] if common == len(text) else ""
        return text[common:]

    def _count(self, usage: dict[str, Any]) -> None:
        """The text that was handed over is part of the replica's prompt, and of the client's answer."""
        prompt, completion = (_number(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        own = self._prompt_tokens if self._prompt_tokens is not None else max(0, prompt - self._pieces)
        own = min(own, prompt)
        self.tokens, self._has_usage = (own, prompt - own + completion), True
        usage["prompt_tokens"], usage["completion_tokens"] = self.tokens
        usage["total_tokens"] = prompt + completion
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            details["cached_tokens"] = min(details["cached_tokens"], own)

    def end(self, now_s: float) -> bytes:
        if not self.said.finish:
            raise InvalidAnswer("the replica ended the answer without saying why")
        return self.inner.end(now_s)

    def error(self, error: ErrorResponse) -> bytes:
        return self.inner.error(error)


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
