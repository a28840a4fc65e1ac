"""Answers and chunks of OpenAI's chat completions, as far as translations need them. Other fields are ignored."""

from typing import Any

import msgspec

from corral.frontend.gateway.protocols.replica_errors import error_of
from corral.frontend.gateway.protocols.translation import InvalidAnswer
from corral.system.json import decode_json


class AnswerFunction(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The arguments as JSON text, or the next part of it."""
        given = self.arguments
        return given or "" if isinstance(given, str | None) else msgspec.json.encode(given).decode()


class AnswerToolCall(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: AnswerFunction = AnswerFunction()


class AnswerMessage(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[AnswerToolCall] | None = None

    @property
    def thought(self) -> str:
        return self.reasoning_content or self.reasoning or ""

    @property
    def text(self) -> str:
        return self.content or self.refusal or ""


def read_arguments(name: str, text: str, *, is_cut: bool) -> dict[str, Any] | None:
    """The arguments of a tool call. None: the limit of tokens has cut it. Raises InvalidAnswer."""
    try:
        return decode_json(text.encode(), dict[str, Any]) if text.strip() else {}
    except msgspec.DecodeError:
        if is_cut:
            return None
        raise InvalidAnswer(f"the model called {name!r} with arguments that are not JSON") from None


class StreamedCall:
    """A tool call of a stream, as far as it has arrived."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.arguments = ""
        self.given: int | None = None
        """How much of the arguments the client was given. None: not even the call's name."""

    def add(self, part: AnswerToolCall) -> None:
        self.id = self.id or part.id or ""
        self.name = self.name or part.function.name or ""
        self.arguments += part.function.text

    @property
    def is_whole(self) -> bool:
        try:
            decode_json(self.arguments.encode(), dict[str, Any])
        except msgspec.DecodeError:
            return False
        return True


class StreamedCalls:
    """Puts together the tool calls of a stream, and gives them out one after another.

    Engines differ in what tells the parts of several calls apart: an index, an id, or only that a name begins a call.
    Some mix the parts of several calls; of those, only the first call is given out as it arrives."""

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        self._by_index: dict[int, StreamedCall] = {}
        self._current = 0

    def add(self, part: AnswerToolCall) -> list[tuple[StreamedCall, str]]:
        """Calls with the next part of their arguments, to give to the client in this order. Raises InvalidAnswer."""
        call = self._find(part)
        if call.number < self._current and part.function.text.strip():
            raise InvalidAnswer("the replica continued a tool call that it had completed")
        call.add(part)
        return self._give(are_over=False)

    def flush(self) -> list[tuple[StreamedCall, str]]:
        """What is left: no call begun so far goes on."""
        return self._give(are_over=True)

    def _find(self, part: AnswerToolCall) -> StreamedCall:
        index, known = part.index, None
        if part.id:
            known = next((call for call in self.calls if call.id == part.id), None)
        if known is None and index is not None:
            known = self._by_index.get(index)
        elif known is None and self.calls:
            known = self.calls[-1]
        if known is None or self._begins(part, known):
            known = StreamedCall(len(self.calls))
            self.calls.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    def _begins(self, part: AnswerToolCall, latest: StreamedCall) -> bool:
        """Some engines give every part an id of its own, but only the first one a name."""
        if part.id and latest.id:
            return bool(part.function.name) and part.id != latest.id
        return bool(part.function.name and latest.name) and part.index is None

    def _give(self, *, are_over: bool) -> list[tuple[StreamedCall, str]]:
        out = []
        while self._current < len(self.calls):
            call = self.calls[self._current]
            text = call.arguments[call.given or 0 :]
            if (call.name and (text or call.given is None)) or (are_over and call.given is None):
                out.append((call, text))
                call.given = len(call.arguments)
            if not are_over and (self._current + 1 == len(self.calls) or not call.is_whole):
                break
            self._current += 1
        return out


class AnswerChoice(msgspec.Struct, frozen=True):
    message: AnswerMessage = AnswerMessage()
    delta: AnswerMessage | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    """Of vLLM: the stop sequence that ended the text."""


class CachedTokens(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class Timings(msgspec.Struct, frozen=True):
    """Of llama.cpp."""

    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class AnswerUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None
    completion_tokens_details: CompletionDetails | None = None

    @property
    def reasoning(self) -> int:
        details = self.completion_tokens_details
        return (details.reasoning_tokens or 0) if details is not None else 0

    @property
    def cached(self) -> int:
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details is not None else 0


class ChatAnswer(msgspec.Struct, frozen=True):
    choices: list[AnswerChoice] = []
    usage: AnswerUsage | None = None
    timings: Timings | None = None
    error: Any = None

    @property
    def choice(self) -> AnswerChoice:
        if not self.choices:
            raise InvalidAnswer("the replica's answer has no choices")
        return self.choices[0]

    @property
    def tokens(self) -> tuple[int, int]:
        usage = self.usage or AnswerUsage()
        return usage.prompt_tokens or 0, usage.completion_tokens or 0


def read_chat_answer(data: bytes) -> ChatAnswer:
    """Raises InvalidAnswer; ErrorResponse for an error that came as an event."""
    try:
        answer = decode_json(data, ChatAnswer)
    except msgspec.DecodeError as error:
        raise InvalidAnswer(f"the replica's answer is not one of chat completions: {error}") from None
    if answer.error is not None:
        raise error_of(502, answer.error)
    return answer
