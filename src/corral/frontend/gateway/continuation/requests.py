"""Makes of a request for a whole answer the request for its rest. Pure functions."""

from typing import Any

import msgspec

from corral.core.replicas.routing import CONTINUE_FINAL_MESSAGE
from corral.system.json import decode_json

CHAT = b"/v1/chat/completions"
COMPLETIONS = b"/v1/completions"
MOST_TOKENS = ("max_completion_tokens", "max_tokens", "n_predict")
LEAST_TOKENS = "min_tokens"
_CONSTRAINED = (
    "grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
)  # fmt: skip
_NOT_COUNTED = ("stream", "stream_options", "n", "best_of", "logprobs", "top_logprobs", LEAST_TOKENS, *MOST_TOKENS)

Fields = dict[str, Any]


def read_fields(body: bytes) -> Fields:
    """Empty if the body is not a JSON object."""
    try:
        return decode_json(body, dict[str, Any])
    except msgspec.DecodeError:
        return {}


def why_whole(fields: Fields, path: bytes) -> str:
    """Why the answer to this request can only be given whole; empty if its text can be continued."""
    if (fields.get("n") or 1) != 1 or (fields.get("best_of") or 1) != 1:
        return "it has several choices"
    if fields.get("logprobs") or fields.get("top_logprobs"):
        return "it has log probabilities"
    kind = fields.get("response_format")
    if (isinstance(kind, dict) and kind.get("type") != "text") or any(fields.get(name) for name in _CONSTRAINED):
        return "its form is constrained, and an engine begins the form anew"
    if path == COMPLETIONS:
        if not isinstance(fields.get("prompt"), str) or fields.get("suffix") or fields.get("echo"):
            return "its prompt is not one text"
        return ""
    if fields.get("tool_choice") not in (None, "auto", "none"):
        return "it must call a tool"
    messages = fields.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return "its messages cannot be read"
    if any(_has_media(message.get("content")) for message in messages):
        return "its messages have images or sounds"
    return ""


def _has_media(content: Any) -> bool:
    parts = content if isinstance(content, list) else ()
    return any(not isinstance(part, dict) or part.get("type") not in ("text", "refusal") for part in parts)


def most_tokens(fields: Fields) -> int | None:
    """How many tokens the whole answer may have."""
    given = (fields.get(name) for name in MOST_TOKENS)
    return next((most for most in given if isinstance(most, int) and most > 0), None)


def with_text(fields: Fields, path: bytes, text: str, kind: str) -> Fields:
    """The same request after `text` of its answer. `kind`: how the replica continues one."""
    if not text:
        return fields
    if path == COMPLETIONS:
        return {**fields, "prompt": fields["prompt"] + text}
    messages = list(fields["messages"])
    last = messages[-1] if messages else {}
    continues_last = kind != CONTINUE_FINAL_MESSAGE or fields.get("continue_final_message") is True
    if last.get("role") == "assistant" and continues_last and isinstance(last.get("content"), str):
        messages[-1] = {**last, "content": last["content"] + text}
    else:
        messages.append({"role": "assistant", "content": text})
    if kind == CONTINUE_FINAL_MESSAGE:
        return {**fields, "messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    return {**fields, "messages": messages}


def for_rest(fields: Fields, *, rest_tokens: int | None, used_tokens: int) -> bytes:
    """Streams the rest with its usage. `rest_tokens`: how many it may have. `used_tokens`: those of the text so far."""
    sent = {**fields, "stream": True, "stream_options": {**_options(fields), "include_usage": True}}
    if rest_tokens is not None:
        sent |= {name: rest_tokens for name in MOST_TOKENS if name in fields}
    if isinstance(least := fields.get(LEAST_TOKENS), int):
        sent[LEAST_TOKENS] = max(0, least - used_tokens)
    return msgspec.json.encode(sent)


def for_count(fields: Fields) -> bytes:
    """Asks for one token: its usage tells how many tokens the prompt has."""
    kept = {name: value for name, value in fields.items() if name not in _NOT_COUNTED}
    return msgspec.json.encode({**kept, "max_tokens": 1, "stream": False})


def wants_usage(fields: Fields) -> bool:
    return _options(fields).get("include_usage") is True


def _options(fields: Fields) -> Fields:
    given = fields.get("stream_options")
    return given if isinstance(given, dict) else {}
