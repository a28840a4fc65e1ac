"""Makes OpenAI requests of requests for Ollama's `/api/chat`, `/api/generate` and `/api/embed`."""

from typing import Any

import msgspec

from corral.core.errors import InvalidInput
from corral.frontend.gateway.protocols.requests import read_request

LATEST = ":latest"
_NOTHING = ("0", "0s", "0m", "0h", "0.0")


class OllamaOptions(msgspec.Struct, frozen=True):
    """`num_ctx` and the like are ignored: they are decided when a model is loaded."""

    num_predict: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: Any = None


class Called(msgspec.Struct, frozen=True):
    function: CalledFunction
    id: str | None = None


class OllamaMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[Called] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaRequest(msgspec.Struct, frozen=True):
    model: str = ""
    stream: bool | None = None
    options: OllamaOptions | None = None
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    keep_alive: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    @property
    def is_unload(self) -> bool:
        """Whether it is `ollama stop`, together with an empty prompt."""
        return str(self.keep_alive) in _NOTHING and self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to answer: the client wants the model loaded, or unloaded."""
        raise NotImplementedError


class OllamaChatRequest(OllamaRequest, frozen=True):
    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, Any]] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.messages


class OllamaGenerateRequest(OllamaRequest, frozen=True):
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    images: list[str] | None = None
    raw: bool | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.prompt or self.images or self.system)


class OllamaEmbedRequest(msgspec.Struct, frozen=True):
    model: str = ""
    input: str | list[str] | None = None
    prompt: str | None = None
    dimensions: int | None = None


class NamedModel(msgspec.Struct, frozen=True):
    """A request about one model. Old clients send `name`."""

    model: str = ""
    name: str = ""
    stream: bool | None = None


def model_name(name: str) -> str:
    """Ollama's clients add `:latest` to a name without a tag."""
    return name.removesuffix(LATEST)


def read_chat(body: bytes) -> tuple[OllamaChatRequest, dict[str, Any]]:
    request = read_request(OllamaChatRequest, body)
    fields = _fields(request, _chat_messages(request.messages or []))
    if request.tools:
        fields["tools"] = request.tools
    return request, fields


def read_generate(body: bytes) -> tuple[OllamaGenerateRequest, dict[str, Any]]:
    request = read_request(OllamaGenerateRequest, body)
    if request.raw or request.suffix:
        raise InvalidInput("`raw` and `suffix` are not supported; use /v1/completions for text without a template")
    if request.template or request.context:
        raise InvalidInput("`template` and `context` are not supported; send the conversation to /api/chat")
    messages = [OllamaMessage(role="system", content=request.system)] if request.system else []
    if request.prompt or request.images:
        messages.append(OllamaMessage(role="user", content=request.prompt or "", images=request.images))
    return request, _fields(request, _chat_messages(messages))


def _fields(request: OllamaRequest, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Without messages the client only wants the model loaded, and one token shows that it is. The penalty has one name
    with llama.cpp and another with vLLM."""
    if request.logprobs or request.top_logprobs:
        raise InvalidInput("`logprobs` are not supported here; use /v1/chat/completions")
    options = request.options or OllamaOptions()
    most = options.num_predict if options.num_predict is not None and options.num_predict > 0 else None
    found: dict[str, Any] = {
        "model": model_name(request.model),
        "messages": messages or [{"role": "user", "content": "hi"}],
        "max_tokens": most if messages else 1,
        **{name: getattr(options, name) for name in OllamaOptions.__struct_fields__ if name != "num_predict"},
        "repetition_penalty": options.repeat_penalty,
        "response_format": _response_format(request.format),
        **_think(request.think),
    }
    if request.stream is not False:
        found |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in found.items() if value is not None}


def _response_format(given: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if not given:
        return None
    if isinstance(given, dict):
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given, "strict": True}}
    if given != "json":
        raise InvalidInput("format must be `json` or a JSON schema")
    return {"type": "json_object"}


def _think(think: bool | str | None) -> dict[str, Any]:
    if think is None:
        return {}
    if isinstance(think, str):
        return {"reasoning_effort": think}
    return {"chat_template_kwargs": {"enable_thinking": think}}


def _chat_messages(messages: list[OllamaMessage]) -> list[dict[str, Any]]:
    """Ollama's tool calls need no ids: a result belongs to the earliest call that has none yet."""
    found: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []
    for at, message in enumerate(messages):
        role = message.role
        if role == "tool":
            call_id = message.tool_call_id or _take_call(open_calls, message.tool_name)
            found.append({"role": "tool", "tool_call_id": call_id, "content": message.content or ""})
            continue
        fields: dict[str, Any] = {"role": role, "content": _content(message)}
        if message.thinking:
            fields["reasoning_content"] = message.thinking
        if message.tool_calls:
            calls = [(call.id or f"call_{at}_{number}", call) for number, call in enumerate(message.tool_calls)]
            open_calls += [(call_id, call.function.name) for call_id, call in calls]
            fields["tool_calls"] = [_tool_call(call_id, call.function) for call_id, call in calls]
        found.append(fields)
    return found


def _take_call(open_calls: list[tuple[str, str]], name: str | None) -> str:
    at = next((at for at, (_, called) in enumerate(open_calls) if name in (None, called)), 0)
    return open_calls.pop(at)[0] if open_calls else "call_unknown"


def _tool_call(call_id: str, function: CalledFunction) -> dict[str, Any]:
    arguments = msgspec.json.encode(function.arguments or {}).decode()
    return {"id": call_id, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def _content(message: OllamaMessage) -> str | list[dict[str, Any]]:
    if not message.images:
        return message.content or ""
    pictures = [
        {"type": "image_url", "image_url": {"url": image if image.startswith("data:") else _data_url(image)}}
        for image in message.images
    ]
    return [{"type": "text", "text": message.content or ""}, *pictures]


def _data_url(image: str) -> str:
    """Ollama sends only the content. Its first characters tell the format."""
    kinds = {"/9j/": "jpeg", "R0lG": "gif", "UklG": "webp"}
    return f"data:image/{kinds.get(image[:4], 'png')};base64,{image}"
