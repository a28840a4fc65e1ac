"""The input of a LocalAI backend: the messages themselves if the backend applies its own template, otherwise a prompt
rendered from the model's Go templates."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig
from corral.formats.go_template import BadTemplate, GoTemplate, parse_template
from corral.formats.go_template_functions import GoStruct
from corral.frontend.gateway.drivers.call import MEDIA_MARK
from corral.frontend.gateway.drivers.openai_bodies import ChatMessage, ChatRequest, ImageUrl, Part

MESSAGE_FIELDS = frozenset(
    (
        *("RoleName", "Role", "Content", "FunctionCall", "FunctionName", "Function", "SystemPrompt"),
        *("MessageIndex", "LastMessage"),
    )
)
PROMPT_FIELDS = frozenset(
    ["Input", "SystemPrompt", "SuppressSystemPrompt", "Instruction", "Functions", "ReasoningEffort", "Metadata"]
)


@dataclass(frozen=True, slots=True)
class Media:
    images: list[str] = field(default_factory=list)
    videos: list[str] = field(default_factory=list)
    audios: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.images) + len(self.videos) + len(self.audios)


@lru_cache(maxsize=512)
def _parsed(text: str, fields: frozenset[str]) -> GoTemplate:
    return parse_template(text, fields=fields)


def _render(text: str, fields: frozenset[str], data: dict[str, Any]) -> str:
    try:
        return _parsed(text, fields).render(data)
    except BadTemplate as error:
        raise InvalidInput(str(error)) from error


def warn_of_templates(config: ModelConfig) -> list[str]:
    """Warnings about templates that cannot be rendered. The model is still accepted: HTTP backends need no template."""
    template = config.template
    used = {"completion": PROMPT_FIELDS}
    if not template.use_tokenizer_template:
        used |= {"chat": PROMPT_FIELDS, "function": PROMPT_FIELDS, "chat_message": MESSAGE_FIELDS}
    warnings = []
    for name, fields in used.items():
        try:
            _parsed(getattr(template, name), fields)
        except BadTemplate as error:
            warnings.append(f"template.{name} cannot be rendered; requests that need it will be rejected: {error}")
    return warnings


def chat_prompt(config: ModelConfig, request: ChatRequest) -> dict[str, Any]:
    """The fields of PredictOptions for the prompt, media and tools."""
    if not request.messages:
        raise InvalidInput("messages must contain at least one message")
    media = Media()
    texts = [_content(message, media) for message in request.messages]
    fields: dict[str, Any] = {"Images": media.images, "Videos": media.videos, "Audios": media.audios}
    tools = _tools(request)
    if config.template.use_tokenizer_template:
        fields["UseTokenizerTemplate"] = True
        fields["Messages"] = _messages(config, request.messages, texts)
        if tools:
            fields["Tools"] = json.dumps(tools, ensure_ascii=False)
            choice = request.tool_choice
            fields["ToolChoice"] = json.dumps("auto" if choice is None else choice)
        return fields
    fields["Prompt"] = _render_chat(config, request, texts, tools)
    return fields


def _tools(request: ChatRequest) -> list[dict[str, Any]]:
    if request.tool_choice == "none":
        return []
    return [*(request.tools or []), *({"type": "function", "function": item} for item in request.functions or [])]


def _messages(config: ModelConfig, messages: Sequence[ChatMessage], texts: Sequence[str]) -> list[dict[str, Any]]:
    found = [
        {
            "role": message.role,
            "content": text,
            "name": message.name,
            "tool_call_id": message.tool_call_id,
            "reasoning_content": message.reasoning_content,
            "tool_calls": json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else None,
        }
        for message, text in zip(messages, texts, strict=True)
    ]
    if config.system_prompt and all(message.role != "system" for message in messages):
        return [{"role": "system", "content": config.system_prompt}, *found]
    return found


def _content(message: ChatMessage, media: Media) -> str:
    if not isinstance(message.content, list):
        return message.content or ""
    texts = []
    for part in message.content:
        match part.type:
            case "text" | "input_text":
                texts.append(part.text)
            case "image_url" | "input_image":
                media.images.append(_data_of(part.image_url, "image"))
            case "video_url":
                media.videos.append(_data_of(part.video_url, "video"))
            case "input_audio":
                media.audios.append(_audio_of(part))
            case _:
                raise InvalidInput(f"content parts of type {part.type[:40]!r} are not supported")
    return "".join(texts)


def _audio_of(part: Part) -> str:
    if part.input_audio is None:
        raise InvalidInput("a content part of type 'input_audio' has no input_audio")
    return part.input_audio.data


def _data_of(given: ImageUrl | str | None, what: str) -> str:
    """The data in a data URL. Other URLs are rejected: the frontend fetches nothing that a client names."""
    url = given.url if isinstance(given, ImageUrl) else given or ""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise InvalidInput(f"send the {what} as `data:{what}/...;base64,...`; other URLs are not supported")
    return data


def _render_chat(
    config: ModelConfig, request: ChatRequest, texts: Sequence[str], tools: Sequence[dict[str, Any]]
) -> str:
    template = config.template
    if tools and not template.function:
        raise InvalidInput(
            f"the configuration of {config.name!r} has no template for tools;"
            " set template.function, or template.use_tokenizer_template if the model has its own template"
        )
    rendered = []
    own_system = False
    for at, (message, text) in enumerate(zip(request.messages, texts, strict=True)):
        content = _with_marks(message, text)
        piece = _render_message(config, request.messages, at, content)
        if piece is None:
            own_system = own_system or (message.role == "system" and bool(content))
            piece = _plain_message(config, message, content)
        rendered.append(piece)
    join = template.join_chat_messages_by_character
    joined = ("\n" if join is None else join).join(rendered)
    text = template.function if tools else template.chat
    if not text:
        return joined + template.reply_prefix
    data = {
        "Input": joined,
        "SystemPrompt": config.system_prompt,
        "SuppressSystemPrompt": own_system,
        "Instruction": "",
        "Functions": [_function(tool) for tool in tools],
        "ReasoningEffort": request.reasoning_effort or "",
        "Metadata": request.metadata or {},
    }
    return _render(text, PROMPT_FIELDS, data) + template.reply_prefix


def _with_marks(message: ChatMessage, text: str) -> str:
    if not isinstance(message.content, list):
        return text
    media = sum(part.type not in ("text", "input_text") for part in message.content)
    return MEDIA_MARK * media + text


def _function(tool: dict[str, Any]) -> GoStruct:
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidInput("each tool must have a function with a name")
    return GoStruct(
        Name=function["name"],
        Description=function.get("description") or "",
        Strict=bool(function.get("strict")),
        Parameters=function.get("parameters") or {},
    )


def _calls(message: ChatMessage) -> Any:
    return message.tool_calls or message.function_call


def _role_name(config: ModelConfig, message: ChatMessage) -> str:
    if _calls(message) and message.role == "assistant" and "assistant_function_call" in config.roles:
        return "assistant_function_call"
    return message.role


def _render_message(config: ModelConfig, messages: Sequence[ChatMessage], at: int, content: str) -> str | None:
    """None if there is no template or its result is empty, as in LocalAI."""
    message, template = messages[at], config.template
    if not template.chat_message:
        return None
    name = _role_name(config, message)
    data = {
        "RoleName": name,
        "Role": config.roles.get(name, ""),
        "Content": content,
        "FunctionCall": _calls(message),
        "FunctionName": message.name or "",
        "Function": False,
        "SystemPrompt": config.system_prompt,
        "MessageIndex": at,
        "LastMessage": at == len(messages) - 1,
    }
    return _render(template.chat_message, MESSAGE_FIELDS, data) or None


def _plain_message(config: ModelConfig, message: ChatMessage, content: str) -> str:
    role = config.roles.get(_role_name(config, message), "")
    text = role + content if content else ""
    calls = _calls(message)
    if calls:
        written = json.dumps(calls, ensure_ascii=False)
        text = f"{text}\n{role} {written}" if text else f"{role} {written}".strip()
    return text


def completion_prompt(config: ModelConfig, prompt: str) -> str:
    if not config.template.completion:
        return prompt
    data = {
        "Input": prompt,
        "SystemPrompt": config.system_prompt,
        "SuppressSystemPrompt": False,
        "Instruction": "",
        "Functions": [],
        "ReasoningEffort": "",
        "Metadata": {},
    }
    return _render(config.template.completion, PROMPT_FIELDS, data)
