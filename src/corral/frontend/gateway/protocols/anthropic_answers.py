"""Makes answers and events of Anthropic's `/v1/messages` of a replica's chat completion."""

from typing import Any

import msgspec

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.protocols.chat_answers import (
    AnswerChoice,
    AnswerToolCall,
    AnswerUsage,
    ChatAnswer,
    StreamedCall,
    StreamedCalls,
    read_arguments,
    read_chat_answer,
)
from corral.frontend.gateway.protocols.translation import InvalidAnswer

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def encode_event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def _usage(usage: AnswerUsage | None) -> dict[str, int]:
    found = usage or AnswerUsage()
    cached = min(found.cached, found.prompt_tokens or 0)
    return {
        "input_tokens": (found.prompt_tokens or 0) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": found.completion_tokens or 0,
    }


def _stop(choice: AnswerChoice, *, called: bool, refused: bool) -> dict[str, Any]:
    if refused:
        return {"stop_reason": "refusal", "stop_sequence": None}
    if isinstance(choice.stop_reason, str) and choice.finish_reason == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop_reason}
    reason = _REASONS.get(choice.finish_reason or "", "end_turn")
    if called and reason == "end_turn":
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": None}


def _tool_use(call: AnswerToolCall, number: int, message_id: str, *, is_cut: bool) -> dict[str, Any] | None:
    name = call.function.name or ""
    given = read_arguments(name, call.function.text, is_cut=is_cut)
    if given is None:
        return None
    return {"type": "tool_use", "id": call.id or f"toolu_{message_id}_{number}", "name": name, "input": given}


class MessageAnswer:
    """An answer and its events. One block is open at a time, as Anthropic's clients expect."""

    stream_type = b"text/event-stream"

    def __init__(self, model: str, call_id: str) -> None:
        self.tokens = (0, 0)
        self._model, self._id = model, call_id
        self._is_started = False
        self._block = -1
        """The index of the latest block."""
        self._open = ""
        """The kind of the open block; for a tool, with its number."""
        self._calls = StreamedCalls()
        self._is_refused = False
        self._last: AnswerChoice | None = None
        self._usage: AnswerUsage | None = None

    def resume_after(self, block: int, *, is_open: bool) -> None:
        """Goes on with a message of which the client has the blocks up to `block`. `is_open`: that one is a text that
        has not ended."""
        self._is_started = True
        self._block = block
        self._open = "text" if is_open else ""

    def _head(self) -> dict[str, Any]:
        return {"id": f"msg_{self._id}", "type": "message", "role": "assistant", "model": self._model}

    def whole(self, data: bytes, now_s: float) -> bytes:
        answer = read_chat_answer(data)
        self.tokens = answer.tokens
        choice, message = answer.choice, answer.choice.message
        content: list[dict[str, Any]] = []
        if message.thought:
            content.append({"type": "thinking", "thinking": message.thought, "signature": ""})
        is_cut = choice.finish_reason == "length"
        used = [_tool_use(call, at, self._id, is_cut=is_cut) for at, call in enumerate(message.tool_calls or ())]
        calls = [call for call in used if call is not None]
        if message.text or not calls:
            content.append({"type": "text", "text": message.text})
        content += calls
        stop = _stop(choice, called=bool(calls), refused=bool(message.refusal))
        return msgspec.json.encode({**self._head(), "content": content, **stop, "usage": _usage(answer.usage)})

    def event(self, data: bytes, now_s: float) -> bytes:
        chunk = read_chat_answer(data)
        return self._start() + self._read(chunk)

    def _start(self) -> bytes:
        if self._is_started:
            return b""
        self._is_started = True
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(None)}
        return encode_event("message_start", {"message": message}) + encode_event("ping", {})

    def _read(self, chunk: ChatAnswer) -> bytes:
        if chunk.usage is not None:
            self._usage, self.tokens = chunk.usage, chunk.tokens
        if not chunk.choices:
            return b""
        choice = chunk.choices[0]
        if choice.finish_reason:
            self._last = choice
        delta = choice.delta
        if delta is None:
            return b""
        out = b""
        if delta.thought:
            out += self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            out += self._delta({"type": "thinking_delta", "thinking": delta.thought})
        self._is_refused = self._is_refused or bool(delta.refusal)
        if delta.text:
            out += self._enter("text", {"type": "text", "text": ""})
            out += self._delta({"type": "text_delta", "text": delta.text})
        for call in delta.tool_calls or ():
            out += self._give(self._calls.add(call))
        return out

    def _give(self, parts: list[tuple[StreamedCall, str]]) -> bytes:
        out = b""
        for call, text in parts:
            kind = f"tool {call.number}"
            if self._open != kind:
                call_id = call.id or f"toolu_{self._id}_{call.number}"
                out += self._begin(kind, {"type": "tool_use", "id": call_id, "name": call.name, "input": {}})
            if text:
                out += self._delta({"type": "input_json_delta", "partial_json": text})
        return out

    def _enter(self, kind: str, block: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        return self._give(self._calls.flush()) + self._begin(kind, block)

    def _begin(self, kind: str, block: dict[str, Any]) -> bytes:
        out = self._close()
        self._open = kind
        self._block += 1
        return out + encode_event("content_block_start", {"index": self._block, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return encode_event("content_block_delta", {"index": self._block, "delta": delta})

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return encode_event("content_block_stop", {"index": self._block})

    def end(self, now_s: float) -> bytes:
        out = self._start() + self._give(self._calls.flush())
        if self._block < 0:
            out += self._enter("text", {"type": "text", "text": ""})
        stop = _stop(self._last or AnswerChoice(), called=bool(self._calls.calls), refused=self._is_refused)
        delta = encode_event("message_delta", {"delta": stop, "usage": _usage(self._usage)})
        return out + self._close() + delta + encode_event("message_stop", {})

    def error(self, error: ErrorResponse) -> bytes:
        return b""


class TokenCount:
    """The answer of `count_tokens`: what one token more costs in prompt tokens."""

    stream_type = b"text/event-stream"

    def __init__(self) -> None:
        self.tokens = (0, 0)

    def whole(self, data: bytes, now_s: float) -> bytes:
        answer = read_chat_answer(data)
        if answer.usage is None:
            raise InvalidAnswer("the replica does not report token usage, so its tokens cannot be counted")
        self.tokens = answer.tokens
        return msgspec.json.encode({"input_tokens": answer.tokens[0]})

    def event(self, data: bytes, now_s: float) -> bytes:
        raise InvalidAnswer("the replica streamed an answer that should be complete")

    def end(self, now_s: float) -> bytes:
        return b""

    def error(self, error: ErrorResponse) -> bytes:
        return b""
