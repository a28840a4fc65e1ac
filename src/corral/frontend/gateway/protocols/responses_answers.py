"""Makes answers and events of OpenAI's `/v1/responses` of a replica's chat completion."""

from typing import Any

import msgspec

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.protocols.chat_answers import (
    AnswerChoice,
    AnswerUsage,
    StreamedCall,
    StreamedCalls,
    read_chat_answer,
)
from corral.frontend.gateway.protocols.replica_errors import CONTEXT_EXCEEDED
from corral.frontend.gateway.protocols.responses_requests import CUSTOM_INPUT, ResponsesRequest
from corral.frontend.gateway.protocols.translation import CallFacts, InvalidAnswer
from corral.system.json import decode_json

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons to end that leave a response incomplete."""


class _Custom(msgspec.Struct, frozen=True):
    input: str = ""


class _Item:
    """One item of the output, as far as it has arrived."""

    status = "in_progress"

    def __init__(self, kind: str, item_id: str, call_id: str = "", name: str = "") -> None:
        self.kind, self.id, self.call_id, self.name = kind, item_id, call_id, name
        self.text = ""

    def end(self, *, is_cut: bool) -> None:
        self.status = "incomplete" if is_cut else "completed"

    def view(self) -> dict[str, Any]:
        is_over = self.status != "in_progress"
        text = self.text if is_over else ""
        head = {"id": self.id, "type": self.kind}
        match self.kind:
            case "message" | "refusal":
                content = [self.part(text)] if is_over else []
                return {**head, "type": "message", "status": self.status, "role": "assistant", "content": content}
            case "reasoning":
                parts = [{"type": "reasoning_text", "text": text}] if is_over else []
                return {**head, "status": self.status, "summary": [], "content": parts}
            case "custom_tool_call":
                call = {"call_id": self.call_id, "name": self.name, "input": self.input if is_over else ""}
                return {**head, "status": self.status, **call}
            case _:
                return {**head, "status": self.status, "call_id": self.call_id, "name": self.name, "arguments": text}

    def part(self, text: str) -> dict[str, Any]:
        return {"type": "refusal", "refusal": text} if self.kind == "refusal" else _text_part(text)

    @property
    def input(self) -> str:
        """Of a custom tool. If the limit of tokens has cut it, the client sees what there is of the arguments."""
        try:
            return decode_json(self.text or "{}", _Custom).input
        except msgspec.DecodeError:
            if self.status == "incomplete":
                return self.text
            raise InvalidAnswer(f"the model called {self.name!r} without the text {CUSTOM_INPUT!r}") from None


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: AnswerUsage | None) -> dict[str, Any]:
    found = usage or AnswerUsage()
    tokens_in, tokens_out = found.prompt_tokens or 0, found.completion_tokens or 0
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": found.cached},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": found.reasoning},
        "total_tokens": tokens_in + tokens_out,
    }


def encode_event(kind: str, number: int, fields: dict[str, Any]) -> bytes:
    data = msgspec.json.encode({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def response_error(error: ErrorResponse) -> dict[str, str]:
    """OpenAI's API has few codes here. Codex reads that of a context that is too small."""
    code = "rate_limit_exceeded" if error.status == 429 else "server_error"
    return {"code": CONTEXT_EXCEEDED if error.code == CONTEXT_EXCEEDED else code, "message": str(error)}


def failed_event(error: ErrorResponse, number: int) -> bytes:
    """For a response of which the gateway knows nothing else: the engine's own, or one that no engine has begun."""
    response = {"id": "", "object": "response", "status": "failed", "error": response_error(error), "output": []}
    return encode_event("response.failed", number, {"response": response})


class ResponseAnswer:
    stream_type = b"text/event-stream"

    def __init__(self, request: ResponsesRequest, facts: CallFacts) -> None:
        self.tokens = (0, 0)
        self._request, self._facts = request, facts
        self._custom = request.custom_tools
        self._items: list[_Item] = []
        self._open: str = ""
        """The kind of the item that is open; for a call, with its number."""
        self._calls = StreamedCalls()
        self._number = 0
        self._is_started = False
        self._usage: AnswerUsage | None = None
        self._reason = "stop"

    def _view(self, status: str, error: ErrorResponse | None = None) -> dict[str, Any]:
        request = self._request
        is_over = status != "in_progress"
        text_format = msgspec.to_builtins(request.text.format) if request.text and request.text.format else None
        return {
            "id": f"resp_{self._facts.id}",
            "object": "response",
            "created_at": self._facts.now_ms // 1000,
            "status": status,
            "error": response_error(error) if error is not None else None,
            "incomplete_details": {"reason": _CUT[self._reason]} if status == "incomplete" else None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "model": request.model,
            "output": [item.view() for item in self._items] if is_over else [],
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
            "store": False,
            "temperature": request.temperature,
            "text": {"format": text_format or {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": [msgspec.to_builtins(tool) for tool in request.tools or ()],
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": _usage(self._usage) if is_over else None,
            "user": request.user,
            "metadata": request.metadata or {},
        }

    def whole(self, data: bytes, now_s: float) -> bytes:
        answer = read_chat_answer(data)
        self.tokens, self._usage = answer.tokens, answer.usage
        choice, message = answer.choice, answer.choice.message
        self._follow(choice)
        if message.thought:
            self._add("reasoning").text = message.thought
        if message.content or not (message.refusal or message.tool_calls):
            self._add("message").text = message.content or ""
        if message.refusal:
            self._add("refusal").text = message.refusal
        for call in message.tool_calls or ():
            self._add_call(call.id, call.function.name).text = call.function.text
        for item in self._items:
            item.end(is_cut=self._is_cut and item is self._items[-1])
        return msgspec.json.encode(self._view(self._status()))

    def _follow(self, choice: AnswerChoice) -> None:
        self._reason = choice.finish_reason or self._reason

    @property
    def _is_cut(self) -> bool:
        return self._reason in _CUT

    def _status(self) -> str:
        return "incomplete" if self._is_cut else "completed"

    def _add(self, kind: str, call_id: str = "", name: str = "") -> _Item:
        prefix = {"message": "msg", "refusal": "msg", "reasoning": "rs", "custom_tool_call": "ctc"}.get(kind, "fc")
        self._items.append(_Item(kind, f"{prefix}_{self._facts.id}_{len(self._items)}", call_id, name))
        return self._items[-1]

    def _add_call(self, call_id: str | None, name: str | None) -> _Item:
        kind = "custom_tool_call" if name in self._custom else "function_call"
        return self._add(kind, call_id or f"call_{self._facts.id}_{len(self._items)}", name or "")

    # A stream: one item is open at a time

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return encode_event(kind, self._number - 1, fields)

    def _of_item(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._items[-1].id, output_index=len(self._items) - 1, **fields)

    def _start(self) -> bytes:
        if self._is_started:
            return b""
        self._is_started = True
        view = self._view("in_progress")
        return self._event("response.created", response=view) + self._event("response.in_progress", response=view)

    def event(self, data: bytes, now_s: float) -> bytes:
        chunk = read_chat_answer(data)
        out = self._start()
        if chunk.usage is not None:
            self._usage, self.tokens = chunk.usage, chunk.tokens
        if not chunk.choices:
            return out
        choice = chunk.choices[0]
        self._follow(choice)
        delta = choice.delta
        if delta is None:
            return out
        if delta.thought:
            out += self._think(delta.thought)
        if delta.content:
            out += self._say("message", "output_text", delta.content, logprobs=[])
        if delta.refusal:
            out += self._say("refusal", "refusal", delta.refusal)
        for call in delta.tool_calls or ():
            out += self._give(self._calls.add(call))
        return out

    def _enter(self, kind: str) -> bytes:
        """Opens an item of text, unless it is open."""
        if self._open == kind:
            return b""
        out = self._give(self._calls.flush()) + self._close()
        return out + self._begin(kind, self._add(kind))

    def _begin(self, kind: str, item: _Item) -> bytes:
        self._open = kind
        return self._event("response.output_item.added", output_index=len(self._items) - 1, item=item.view())

    def _think(self, text: str) -> bytes:
        out = self._enter("reasoning")
        self._items[-1].text += text
        return out + self._of_item("response.reasoning_text.delta", content_index=0, delta=text)

    def _say(self, kind: str, part: str, text: str, **more: Any) -> bytes:
        out = self._enter(kind)
        item = self._items[-1]
        if out:
            out += self._of_item("response.content_part.added", content_index=0, part=item.part(""))
        item.text += text
        return out + self._of_item(f"response.{part}.delta", content_index=0, delta=text, **more)

    def _give(self, parts: list[tuple[StreamedCall, str]]) -> bytes:
        out = b""
        for call, text in parts:
            kind = f"call {call.number}"
            if self._open != kind:
                out += self._close()
                out += self._begin(kind, self._add_call(call.id, call.name))
            item = self._items[-1]
            item.text += text
            if text and item.kind == "function_call":
                out += self._of_item("response.function_call_arguments.delta", delta=text)
        return out

    def _close(self, *, is_cut: bool = False) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        item = self._items[-1]
        item.end(is_cut=is_cut)
        text = item.text
        match item.kind:
            case "message":
                out = self._of_item("response.output_text.done", content_index=0, text=text, logprobs=[])
                out += self._of_item("response.content_part.done", content_index=0, part=item.part(text))
            case "refusal":
                out = self._of_item("response.refusal.done", content_index=0, refusal=text)
                out += self._of_item("response.content_part.done", content_index=0, part=item.part(text))
            case "reasoning":
                out = self._of_item("response.reasoning_text.done", content_index=0, text=text)
            case "custom_tool_call":
                out = self._of_item("response.custom_tool_call_input.delta", delta=item.input)
                out += self._of_item("response.custom_tool_call_input.done", input=item.input)
            case _:
                out = self._of_item("response.function_call_arguments.done", name=item.name, arguments=text)
        return out + self._event("response.output_item.done", output_index=len(self._items) - 1, item=item.view())

    def end(self, now_s: float) -> bytes:
        out = self._start() + self._give(self._calls.flush())
        if not self._items:
            out += self._say("message", "output_text", "", logprobs=[])
        out += self._close(is_cut=self._is_cut)
        status = self._status()
        return out + self._event(f"response.{status}", response=self._view(status))

    def error(self, error: ErrorResponse) -> bytes:
        out = self._start()
        if self._items and self._open:
            self._items[-1].end(is_cut=True)
        return out + self._event("response.failed", response=self._view("failed", error))
