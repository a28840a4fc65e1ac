"""Reads a replica's error, so that the client's protocol can give it its own form."""

import re
from typing import Any

import msgspec

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.system.json import decode_json

MESSAGE_MAX_CHARS = 2000
CONTEXT_EXCEEDED = "context_length_exceeded"
_CONTEXT = re.compile(
    r"exceed\w* the (available |maximum |model's )*context|context (size|length|window)( is)? (too small|exceeded)"
    r"|maximum context length|prompt is too long|exceed_context_size|longer than the (maximum )?(model|context)",
    re.IGNORECASE,
)
_HINT = (
    "The model's context is too small for this request: shorten it, or give the model a larger context"
    " (`context_size` in its configuration)."
)


def read_error(status: int, body: bytes) -> ErrorResponse:
    """`body`: of an answer with `status`."""
    try:
        found: Any = decode_json(body, Any)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace").strip()
        return error_of(status, "" if "<html" in text.lower() else text)
    if isinstance(found, dict) and found.get("error"):
        return error_of(status, found["error"])
    return error_of(status, found)


def error_of(status: int, found: Any) -> ErrorResponse:
    """`found`: an error object, or only its message."""
    fields = found if isinstance(found, dict) else {"message": found}
    message = next((fields[name] for name in ("message", "detail") if isinstance(fields.get(name), str)), "")
    message = message.strip()[:MESSAGE_MAX_CHARS] or f"the replica answered with status {status}"
    kind, code, param = (fields.get(name) for name in ("type", "code", "param"))
    if _CONTEXT.search(message) or kind == "exceed_context_size_error" or code == CONTEXT_EXCEEDED:
        return _context_exceeded(message, fields)
    return ErrorResponse(
        status,
        message,
        code=code if isinstance(code, str) else None,
        param=param if isinstance(param, str) else None,
    )


def _context_exceeded(message: str, fields: dict[str, Any]) -> ErrorResponse:
    """Always the client's mistake, whatever status the engine gave it. Clients know it by its first words."""
    asked, most = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    counts = f"{asked} tokens > {most} maximum. " if isinstance(asked, int) and isinstance(most, int) else ""
    start = "" if message.lower().startswith("prompt is too long") else "prompt is too long: "
    return ErrorResponse(400, f"{start}{counts}{message} {_HINT}", code=CONTEXT_EXCEEDED, kind="invalid_request_error")
