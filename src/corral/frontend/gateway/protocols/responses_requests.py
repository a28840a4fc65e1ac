"""Makes a chat completion request of a request for OpenAI's `/v1/responses`."""

from typing import Any

import msgspec

from corral.core.errors import InvalidInput
from corral.frontend.gateway.protocols.requests import read_request

CUSTOM_INPUT = "input"
"""A custom tool takes one text. As a function it has this parameter."""


class ResponsesContent(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    detail: str | None = None


class ResponsesItem(msgspec.Struct, frozen=True):
    """A part of the conversation. Which fields it has depends on its type."""

    type: str = "message"
    role: str = ""
    content: str | list[ResponsesContent] | None = None
    id: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: Any = None
    action: Any = None
    operation: Any = None


class ResponsesTool(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, frozen=True):
    type: str = "text"
    name: str = "answer"
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponsesText(msgspec.Struct, frozen=True):
    format: TextFormat | None = None


class ResponsesReasoning(msgspec.Struct, frozen=True):
    effort: str | None = None


class ResponsesRequest(msgspec.Struct, frozen=True):
    model: str
    input: str | list[ResponsesItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: ResponsesText | None = None
    reasoning: ResponsesReasoning | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None

    @property
    def custom_tools(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools or () if tool.type == "custom")


def read_responses_request(body: bytes) -> ResponsesRequest:
    request = read_request(ResponsesRequest, body)
    if request.previous_response_id:
        raise InvalidInput(
            "previous_response_id: this model's backend stores no responses; send the whole conversation in `input`"
        )
    if request.conversation:
        raise InvalidInput(
            "conversation: this model's backend stores no conversations; send the whole conversation in `input`"
        )
    if request.prompt:
        raise InvalidInput("prompt: this model's backend stores no prompts; send the prompt's text in `instructions`")
    if not request.input:
        raise InvalidInput("input: a text or a list of items is required")
    if request.background:
        raise InvalidInput("background: this model's backend has no background responses")
    return request


def chat_request(request: ResponsesRequest) -> dict[str, Any]:
    """Raises InvalidInput."""
    tools = [_tool(tool) for tool in _allowed(request)]
    found: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request),
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tools": tools or None,
        "tool_choice": _tool_choice(request.tool_choice) if tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if tools else None,
        "response_format": _response_format(request.text),
        "reasoning_effort": request.reasoning.effort if request.reasoning else None,
        "user": request.user,
    }
    if request.stream:
        found |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in found.items() if value is not None}


def _allowed(request: ResponsesRequest) -> list[ResponsesTool]:
    """The tools that the model may call. Others have no schema: OpenAI's servers run them, or its models know them."""
    tools = [tool for tool in request.tools or () if tool.type in ("function", "custom")]
    choice = request.tool_choice
    if not isinstance(choice, dict):
        return tools
    kind = choice.get("type")
    if kind in ("function", "custom"):
        wanted = [choice]
    elif kind == "allowed_tools":
        listed = choice.get("tools")
        wanted = [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    else:
        raise InvalidInput(f"tool_choice: this model's backend has no tool of the type {kind!r}")
    names = {tool.get("name") for tool in wanted}
    found = [tool for tool in tools if tool.name in names]
    if not found and (kind != "allowed_tools" or choice.get("mode") == "required"):
        raise InvalidInput("tool_choice: it names no tool of `tools` that this model's backend can call")
    return found if kind == "allowed_tools" else tools


def _tool(tool: ResponsesTool) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    if tool.type == "custom":
        properties = {CUSTOM_INPUT: {"type": "string"}}
        parameters = {"type": "object", "properties": properties, "required": [CUSTOM_INPUT]}
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": parameters,
    }
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: str | dict[str, Any] | None) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        return choice["mode"] if choice.get("mode") in ("auto", "required") else "auto"
    return {"type": "function", "function": {"name": choice.get("name")}}


def _response_format(text: ResponsesText | None) -> dict[str, Any] | None:
    given = text.format if text else None
    if given is None or given.type == "text":
        return None
    if given.type == "json_schema":
        schema = {"name": given.name, "schema": given.schema, "strict": given.strict}
        return {
            "type": "json_schema",
            "json_schema": {name: value for name, value in schema.items() if value is not None},
        }
    return {"type": given.type}


def _messages(request: ResponsesRequest) -> list[dict[str, Any]]:
    """Chat templates expect one system message, at the beginning, and turns that alternate. A later message of the
    developer becomes a part of the user's: it keeps its place, which a prompt cache needs too."""
    given = request.input or ""
    items = [ResponsesItem(role="user", content=given)] if isinstance(given, str) else given
    call_ids = {item.id: item.call_id for item in items if item.id and item.call_id}
    system = [request.instructions] if request.instructions else []
    found: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    for item in items:
        if item.type in _OUTPUTS:
            call_id = item.call_id or call_ids.get(item.id or "", item.id or "")
            text, more = _output(item.output)
            found.append({"role": "tool", "tool_call_id": call_id, "content": text})
            pictures += more
            continue
        message = _message(item)
        if message is None:
            continue
        if pictures:
            _add(found, {"role": "user", "content": pictures})
            pictures = []
        if message["role"] == "system" and not found and isinstance(message["content"], str):
            system.append(message["content"])
            continue
        if message["role"] == "system":
            message["role"] = "user"
        _add(found, message)
    if pictures:
        _add(found, {"role": "user", "content": pictures})
    return [{"role": "system", "content": "\n\n".join(system)}, *found] if system else found


def _add(found: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Text and calls of one turn are one message in a chat."""
    role = message["role"]
    if not found or found[-1]["role"] != role:
        found.append(message)
        return
    into = found[-1]
    if role == "user":
        parts = _parts(into["content"]) + _parts(message["content"])
        into["content"] = _joined(parts)
        return
    texts = [text for text in (into["content"], message["content"]) if text]
    into["content"] = "".join(texts) or None
    calls = [*into.get("tool_calls", ()), *message.get("tool_calls", ())]
    if calls:
        into["tool_calls"] = calls


def _message(item: ResponsesItem) -> dict[str, Any] | None:
    match item.type:
        case "message":
            role = "system" if item.role == "developer" else item.role
            if role not in ("system", "user", "assistant"):
                raise InvalidInput(f"input: the role {role!r} is not one of system, developer, user, assistant")
            content = _content(item.content)
            if role == "assistant" and not isinstance(content, str):
                raise InvalidInput("input: a message of the assistant holds only text")
            return {"role": role, "content": content}
        case "function_call":
            return _called(item, item.name, item.arguments or "{}")
        case "custom_tool_call":
            return _called(item, item.name, msgspec.json.encode({CUSTOM_INPUT: item.input}).decode())
        case "local_shell_call" | "shell_call" | "apply_patch_call" | "computer_call":
            arguments = msgspec.json.encode(item.action or item.operation or {}).decode()
            return _called(item, item.type.removesuffix("_call"), arguments)
        case "item_reference":
            raise InvalidInput("input: this model's backend stores no items; send the item itself")
        case _:
            return None  # the model's own reasoning, and calls of tools that only OpenAI's servers run


_OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "computer_call_output",
    }
)
"""Results of tools that the client runs."""


def _called(item: ResponsesItem, name: str, arguments: str) -> dict[str, Any]:
    call_id = item.call_id or item.id or ""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _output(output: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text of a tool's result, and its pictures: a tool's message in a chat holds only text."""
    if output is None or isinstance(output, str):
        return output or "", []
    if isinstance(output, dict) and output.get("type") == "computer_screenshot":
        output = [{**output, "type": "input_image"}]
    try:
        content = msgspec.convert(output, list[ResponsesContent])
    except msgspec.ValidationError:
        return msgspec.json.encode(output).decode(), []  # of a shell: what it wrote, and how it ended
    parts = [_part(part) for part in content]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return text, [part for part in parts if part["type"] != "text"]


def _content(content: str | list[ResponsesContent] | None) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    return _joined([_part(part) for part in content])


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text alone is sent as a string, which every engine reads."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _part(part: ResponsesContent) -> dict[str, Any]:
    if part.type in ("input_text", "output_text", "text", "refusal"):
        return {"type": "text", "text": part.text or part.refusal}
    if part.type == "input_image" and part.image_url:
        image = {"url": part.image_url}
        if part.detail:
            image["detail"] = _DETAILS.get(part.detail, "auto")
        return {"type": "image_url", "image_url": image}
    raise InvalidInput(f"input: this model's backend cannot read content of the type {part.type!r}")


_DETAILS = {"low": "low", "high": "high", "original": "high"}
