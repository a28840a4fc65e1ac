"""Chat completions from a server that speaks only Anthropic's API: the request, and the way of its answer back."""

from collections.abc import Iterator
from typing import Any

import msgspec

from corral.core.errors import InvalidInput
from corral.frontend.gateway.protocols.replica_errors import error_of
from corral.frontend.gateway.protocols.requests import read_request
from corral.frontend.gateway.protocols.translation import CallFacts, InvalidAnswer
from corral.system.json import decode_json

DEFAULT_MAX_TOKENS = 4096
"""Anthropic's API requires a limit, OpenAI's does not."""
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


# The request


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str = ""


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    image_url: _ImageUrl | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Call(msgspec.Struct, frozen=True):
    id: str = ""
    function: _Function = _Function()


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str = ""


class _Tool(msgspec.Struct, frozen=True):
    type: str = "function"
    function: _Function | None = None


class _NamedChoice(msgspec.Struct, frozen=True):
    function: _Function | None = None


class _JsonSchema(msgspec.Struct, frozen=True):
    schema: dict[str, Any] | None = None


class _Format(msgspec.Struct, frozen=True):
    type: str = ""
    json_schema: _JsonSchema | None = None


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class _ChatRequest(msgspec.Struct, frozen=True):
    model: str
    messages: list[_Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _Format | None = None
    user: str | None = None
    n: int | None = None
    logprobs: bool | None = None


def begin_messages(body: bytes, *, model: str, public: str, facts: CallFacts) -> tuple[bytes, "ChatFromMessages"]:
    """The request for `/v1/messages`, and what reads its answer. `model`: the server's name for the model; empty where
    it is the same. `public`: the name that the client knows. Raises InvalidInput."""
    request = read_request(_ChatRequest, body)
    shows_usage = request.stream_options is not None and request.stream_options.include_usage is True
    answer = ChatFromMessages(public, f"chatcmpl-{facts.id}", facts.now_ms // 1000, shows_usage=shows_usage)
    return msgspec.json.encode(_messages_request(request, model or request.model)), answer


def _messages_request(request: _ChatRequest, model: str) -> dict[str, Any]:
    if (request.n or 1) > 1:
        raise InvalidInput("n: this model's server gives one answer for each request")
    if request.logprobs:
        raise InvalidInput("logprobs: this model's server does not report log probabilities")
    system = [text for message in request.messages if _is_system(message) if (text := _text(message))]
    found = {
        "model": model,
        "max_tokens": request.max_completion_tokens or request.max_tokens or DEFAULT_MAX_TOKENS,
        "system": "\n\n".join(system) or None,
        "messages": _joined_turns(request.messages),
        "temperature": min(request.temperature, 1.0) if request.temperature is not None else None,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop_sequences": [request.stop] if isinstance(request.stop, str) else request.stop,
        "stream": request.stream or None,
        "metadata": {"user_id": request.user} if request.user else None,
        "output_config": _output_config(request.response_format),
        **_tools(request),
    }
    return {name: value for name, value in found.items() if value is not None}


def _is_system(message: _Message) -> bool:
    return message.role in ("system", "developer")


def _text(message: _Message) -> str:
    if isinstance(message.content, list):
        return "\n".join(part.text for part in message.content if part.type == "text")
    return message.content or ""


def _joined_turns(messages: list[_Message]) -> list[dict[str, Any]]:
    """Neighbouring messages of one role become one: results of tools are part of the user's next message."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if _is_system(message):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if not turns:
        raise InvalidInput("messages: at least one message of the user is required")
    return turns


def _blocks(message: _Message) -> Iterator[dict[str, Any]]:
    if message.role not in ("user", "assistant", "tool"):
        raise InvalidInput(f"messages: the role {message.role!r} is not one of system, user, assistant, tool")
    if message.role == "tool":
        yield {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": _text(message)}
        return
    if isinstance(message.content, str) and message.content:
        yield {"type": "text", "text": message.content}
    elif isinstance(message.content, list):
        yield from map(_block, message.content)
    for call in message.tool_calls or ():
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": call.function.name,
            "input": _arguments(call.function),
        }


def _arguments(function: _Function) -> dict[str, Any]:
    try:
        return decode_json(function.arguments.encode(), dict[str, Any]) if function.arguments.strip() else {}
    except msgspec.DecodeError:
        raise InvalidInput(f"messages: the arguments of the call of {function.name!r} are not a JSON object") from None


def _block(part: _Part) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    if part.type == "image_url" and part.image_url is not None:
        url = part.image_url.url
        kind, mark, data = url.removeprefix("data:").partition(";base64,")
        if url.startswith("data:") and mark:
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        return {"type": "image", "source": {"type": "url", "url": url}}
    raise InvalidInput(f"messages: this model's server cannot read a content part of the type {part.type!r}")


def _tools(request: _ChatRequest) -> dict[str, Any]:
    tools = [
        {
            "name": tool.function.name,
            "description": tool.function.description,
            "input_schema": tool.function.parameters or {"type": "object", "properties": {}},
        }
        for tool in request.tools or ()
        if tool.function is not None
    ]
    if not tools:
        return {}
    for tool in tools:
        if tool["description"] is None:
            del tool["description"]
    choice = request.tool_choice
    chosen: dict[str, Any] = {"type": "auto"}
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise InvalidInput(f"tool_choice: {choice!r} is not one of auto, required, none")
        chosen = {"type": _CHOICES[choice]}
    elif choice is not None and choice.function is not None:
        chosen = {"type": "tool", "name": choice.function.name}
    if request.parallel_tool_calls is False and chosen["type"] != "none":
        chosen["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": chosen}


def _output_config(given: _Format | None) -> dict[str, Any] | None:
    if given is None or given.type in ("", "text"):
        return None
    if given.type == "json_schema" and given.json_schema is not None and given.json_schema.schema is not None:
        return {"format": {"type": "json_schema", "schema": given.json_schema.schema}}
    raise InvalidInput(f"response_format: this model's server has no counterpart of {given.type!r}; use `json_schema`")


# The answer


class _AnswerUsage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    @property
    def prompt(self) -> int:
        parts = (self.input_tokens, self.cache_read_input_tokens, self.cache_creation_input_tokens)
        return sum(part or 0 for part in parts)


class _AnswerBlock(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None


class _MessageAnswer(msgspec.Struct, frozen=True):
    content: list[_AnswerBlock] = []
    stop_reason: str | None = None
    usage: _AnswerUsage = _AnswerUsage()


class _Delta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    message: _MessageAnswer | None = None
    index: int = 0
    content_block: _AnswerBlock | None = None
    delta: _Delta | None = None
    usage: _AnswerUsage | None = None
    error: Any = None


class ChatFromMessages:
    """An answer of `/v1/messages` and its events as a chat completion."""

    def __init__(self, model: str, answer_id: str, created_s: int, *, shows_usage: bool) -> None:
        self._head: dict[str, Any] = {"id": answer_id, "created": created_s, "model": model}
        self._shows_usage = shows_usage
        self._prompt = self._output = 0
        self._finish = "stop"
        self._calls: dict[int, int] = {}
        """The number of the call, by the index of its block."""
        self._is_started = self.is_whole = False

    @property
    def tokens(self) -> tuple[int, int] | None:
        return self._prompt, self._output

    def whole(self, data: bytes) -> bytes:
        try:
            answer = decode_json(data, _MessageAnswer)
        except msgspec.DecodeError as error:
            raise InvalidAnswer(f"the server's answer is not one of Anthropic's API: {error}") from None
        calls = [
            {
                "id": block.id,
                "type": "function",
                "function": {"name": block.name, "arguments": msgspec.json.encode(block.input or {}).decode()},
            }
            for block in answer.content
            if block.type == "tool_use"
        ]
        text = "".join(block.text for block in answer.content if block.type == "text")
        thought = "".join(block.thinking for block in answer.content if block.type == "thinking")
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer.stop_reason)}
        self._prompt, self._output = answer.usage.prompt, answer.usage.output_tokens or 0
        shown = {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        return msgspec.json.encode(shown)

    def _usage(self) -> dict[str, int]:
        total = self._prompt + self._output
        return {"prompt_tokens": self._prompt, "completion_tokens": self._output, "total_tokens": total}

    def events(self, data: bytes) -> list[bytes]:
        try:
            event = decode_json(data, _Event)
        except msgspec.DecodeError as error:
            raise InvalidAnswer(f"the server's event is not one of Anthropic's API: {error}") from None
        if event.type == "error" or event.error is not None:
            raise error_of(502, event.error)
        found = [] if self._is_started else [self._chunk({"role": "assistant", "content": ""})]
        self._is_started = True
        if event.type == "message_start" and event.message is not None:
            self._prompt = event.message.usage.prompt
        elif event.type == "content_block_start" and event.content_block is not None:
            found += self._start_block(event.index, event.content_block)
        elif event.type == "content_block_delta" and event.delta is not None:
            found += self._continue_block(event.index, event.delta)
        elif event.type == "message_delta":
            if event.delta is not None:
                self._finish = _finish(event.delta.stop_reason)
            if event.usage is not None:
                self._output = event.usage.output_tokens or self._output
                self._prompt = event.usage.prompt or self._prompt
            if event.delta is not None and event.delta.stop_reason:
                found += self.end()  # should the server fail before its last event, the client has the whole answer
        return found

    def _start_block(self, index: int, block: _AnswerBlock) -> Iterator[bytes]:
        if block.type == "tool_use":
            number = self._calls[index] = len(self._calls)
            call = {"index": number, "id": block.id, "type": "function"}
            yield self._chunk({"tool_calls": [{**call, "function": {"name": block.name, "arguments": ""}}]})
        elif block.text:
            yield self._chunk({"content": block.text})

    def _continue_block(self, index: int, delta: _Delta) -> Iterator[bytes]:
        if delta.type == "text_delta" and delta.text:
            yield self._chunk({"content": delta.text})
        elif delta.type == "thinking_delta" and delta.thinking:
            yield self._chunk({"reasoning_content": delta.thinking})
        elif delta.type == "input_json_delta" and index in self._calls:
            part = {"index": self._calls[index], "function": {"arguments": delta.partial_json}}
            yield self._chunk({"tool_calls": [part]})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return msgspec.json.encode({**self._head, "object": "chat.completion.chunk", "choices": [choice]})

    def end(self) -> list[bytes]:
        if self.is_whole:
            return []
        self.is_whole = True
        found = [self._chunk({}, self._finish)]
        if self._shows_usage:
            usage = {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()}
            found.append(msgspec.json.encode(usage))
        return found


def _finish(reason: str | None) -> str:
    return _REASONS.get(reason or "", "stop")
