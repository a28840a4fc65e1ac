"""Makes a chat completion request of a request for Anthropic's `/v1/messages`."""

from typing import Any

import msgspec

from corral.core.errors import InvalidInput
from corral.frontend.gateway.protocols.anthropic_tools import SCHEMAS, is_run_by_servers
from corral.frontend.gateway.protocols.requests import read_request


class BlockSource(msgspec.Struct, frozen=True):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: Any = None


class Block(msgspec.Struct, frozen=True):
    """A part of a message. Which fields it has depends on its type."""

    type: str
    text: str = ""
    thinking: str = ""
    source: BlockSource | str | None = None
    title: str | None = None
    context: str | None = None
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class InputMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[Block]


class MessagesTool(msgspec.Struct, frozen=True):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class MessagesToolChoice(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class MessagesThinking(msgspec.Struct, frozen=True):
    type: str = ""


class MessagesMetadata(msgspec.Struct, frozen=True):
    user_id: str | None = None


class OutputFormat(msgspec.Struct, frozen=True):
    type: str = ""
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct, frozen=True):
    format: OutputFormat | None = None


class MessagesRequest(msgspec.Struct, frozen=True):
    model: str
    messages: list[InputMessage]
    max_tokens: int | None = None
    system: str | list[Block] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: MessagesThinking | None = None
    metadata: MessagesMetadata | None = None
    output_format: OutputFormat | None = None
    output_config: OutputConfig | None = None


_CHOICES: dict[str, str] = {"auto": "auto", "any": "required", "none": "none"}


def read_messages_request(body: bytes) -> MessagesRequest:
    return read_request(MessagesRequest, body)


def chat_request(request: MessagesRequest) -> dict[str, Any]:
    """Raises InvalidInput."""
    if request.max_tokens is None or request.max_tokens < 1:
        raise InvalidInput("max_tokens: a number of at least 1 is required")
    found: dict[str, Any] = {
        "model": request.model,
        "messages": [message for given in _with_system(request) for message in _messages(given)],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop": request.stop_sequences or None,
        "user": request.metadata.user_id if request.metadata else None,
        "response_format": _response_format(request),
        **_tools(request),
        **_thinking(request.thinking),
    }
    if request.stream:
        found |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in found.items() if value is not None}


def _with_system(request: MessagesRequest) -> list[InputMessage]:
    if not request.system:
        return request.messages
    return [InputMessage("system", request.system), *request.messages]


def _response_format(request: MessagesRequest) -> dict[str, Any] | None:
    given = request.output_format or (request.output_config.format if request.output_config else None)
    if given is None or given.type != "json_schema" or given.schema is None:
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given.schema, "strict": True}}


def _thinking(thinking: MessagesThinking | None) -> dict[str, Any]:
    """The switch of most chat templates. Without it, the model's own default applies."""
    if thinking is None or thinking.type not in ("enabled", "disabled"):
        return {}
    return {"chat_template_kwargs": {"enable_thinking": thinking.type == "enabled"}}


def _tool(tool: MessagesTool) -> dict[str, Any] | None:
    """None: Anthropic's servers run the tool, so no replica can."""
    kind = tool.type or ""
    description, schema = tool.description, tool.input_schema
    if schema is None:
        if is_run_by_servers(kind):
            return None
        if kind not in SCHEMAS:
            of_type = f" of the type {kind!r}" if kind else ""
            raise InvalidInput(f"tools: this model's backend needs an `input_schema` for {tool.name!r}{of_type}")
        description, schema = SCHEMAS[kind]
    function = {"name": tool.name, "description": description or "", "parameters": schema}
    return {"type": "function", "function": function}


def _tools(request: MessagesRequest) -> dict[str, Any]:
    tools = [found for tool in request.tools or () if (found := _tool(tool)) is not None]
    named = request.tool_choice.name if request.tool_choice and request.tool_choice.type == "tool" else None
    if named is not None and named not in {tool["function"]["name"] for tool in tools}:
        raise InvalidInput(f"tool_choice: {named!r} is no tool of `tools` that this model's backend can call")
    if not tools:
        return {}
    choice = request.tool_choice
    if choice is None:
        return {"tools": tools}
    if choice.type == "tool":
        chosen: Any = {"type": "function", "function": {"name": choice.name}}
    elif choice.type in _CHOICES:
        chosen = _CHOICES[choice.type]
    else:
        raise InvalidInput(f"tool_choice.type: {choice.type!r} is not one of auto, any, tool, none")
    return {
        "tools": tools,
        "tool_choice": chosen,
        "parallel_tool_calls": False if choice.disable_parallel_tool_use else None,
    }


def _messages(message: InputMessage) -> list[dict[str, Any]]:
    """One message may become several: each result of a tool is a message of its own in OpenAI's API."""
    role, content = message.role, message.content
    if role not in ("user", "assistant", "system"):
        raise InvalidInput(f"messages: the role {role!r} is not one of user, assistant")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if role == "assistant":
        return [_assistant(content)]
    if role == "system":
        return [{"role": role, "content": "\n\n".join(block.text for block in content)}]
    found: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in content:
        if block.type == "tool_result":
            result, pictures = _tool_result(block)
            found.append(result)
            parts += pictures
        else:
            parts += _parts(block)
    if parts:
        found.append({"role": "user", "content": _joined(parts)})
    return found


def _assistant(blocks: list[Block]) -> dict[str, Any]:
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": msgspec.json.encode(block.input or {}).decode()},
        }
        for block in blocks
        if block.type == "tool_use"
    ]
    thoughts = "".join(block.thinking for block in blocks if block.type == "thinking")
    text = "".join(block.text for block in blocks if block.type == "text")
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message["tool_calls"] = calls
    return message


def _tool_result(block: Block) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The message, and pictures in the result: a tool's message holds only text."""
    parts = [part for one in _content_of(block.content) for part in _parts(one)]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    if block.is_error:
        text = f"Error: {text}"
    message = {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}
    return message, [part for part in parts if part["type"] != "text"]


def _content_of(content: Any) -> list[Block]:
    if content is None or isinstance(content, str):
        return [Block(type="text", text=content or "")]
    try:
        return msgspec.convert(content, list[Block])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid request: {error} in a block's `content`") from None


def _parts(block: Block) -> list[dict[str, Any]]:
    source = block.source
    if block.type == "text":
        return [{"type": "text", "text": block.text}]
    if block.type == "image" and isinstance(source, BlockSource) and source.type in ("base64", "url"):
        url = source.url if source.type == "url" else f"data:{source.media_type};base64,{source.data}"
        return [{"type": "image_url", "image_url": {"url": url}}]
    if block.type == "document" and isinstance(source, BlockSource) and source.type in ("text", "content"):
        inner = _content_of(source.data if source.type == "text" else source.content)
        return _with_heading((block.title, block.context), inner)
    if block.type == "search_result":
        where = source if isinstance(source, str) else None
        return _with_heading((block.title, where), _content_of(block.content))
    if block.type == "tool_reference" or block.type.endswith("_tool_result"):
        return []  # of tools that Anthropic's servers run
    raise InvalidInput(f"messages: this model's backend cannot read a content block of the type {block.type!r}")


def _with_heading(lines: tuple[str | None, ...], content: list[Block]) -> list[dict[str, Any]]:
    heading = "\n".join(line for line in lines if line)
    parts = [part for one in content for part in _parts(one)]
    return [{"type": "text", "text": heading}, *parts] if heading else parts


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text alone is sent as a string, which every engine reads."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts
