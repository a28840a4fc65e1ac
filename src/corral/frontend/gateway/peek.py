"""Reads from a request body only what routing needs."""

import re
from typing import Any

import msgspec

from corral.core.errors import InvalidInput


class Peek(msgspec.Struct, gc=False):
    model: str = ""
    stream: bool | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None

    @property
    def stated_output(self) -> object:
        """The longest answer that the client wants, in whatever form it sent it."""
        return self.max_completion_tokens or self.max_tokens or self.max_output_tokens

    def answer_locally(self, now_ms: int) -> bytes | None:
        """The JSON answer to a call that needs no replica. None: it needs one."""
        return None


_decode = msgspec.json.Decoder(Peek).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BOUNDARY = re.compile(rb'boundary="?([^";,\s]{1,200})"?', re.IGNORECASE)
_NAME = re.compile(rb'content-disposition:[^\r\n]*[;\s]name="([^"\r\n]*)"', re.IGNORECASE)
PART_HEAD_MAX_BYTES = 2048
FIELD_MAX_BYTES = 1024
PARTS_MAX = 64


def peek_json(body: bytes) -> Peek:
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid request: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the request body is not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise _not_utf8() from None
    except RecursionError:
        raise InvalidInput("the request body is nested too deeply") from None


def _not_utf8() -> InvalidInput:
    return InvalidInput("the request body is not valid JSON: it contains text that is not UTF-8")


def rename_model(body: bytes, model: str) -> bytes:
    """The same request with another model name. Every other field keeps its bytes."""
    try:
        fields = _decode_raw(body)
    except UnicodeDecodeError:
        raise _not_utf8() from None
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def peek_multipart(body: bytes, content_type: bytes) -> Peek:
    fields = {
        name: body[start:end] for name, start, end in _parts(body, content_type) if end - start <= FIELD_MAX_BYTES
    }
    try:
        model = fields.get(b"model", b"").decode()
    except UnicodeDecodeError:
        raise InvalidInput("the form field `model` is not UTF-8") from None
    return Peek(model=model, stream=fields.get(b"stream", b"").lower() in (b"true", b"1"))


def rename_model_in_form(body: bytes, content_type: bytes, model: str) -> bytes:
    for name, start, end in _parts(body, content_type):
        if name == b"model":
            return body[:start] + model.encode() + body[end:]
    return body


def _parts(body: bytes, content_type: bytes) -> list[tuple[bytes, int, int]]:
    """The parts of a form: the name, and where the content starts and ends."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise InvalidInput("the content type `multipart/form-data` has no boundary")
    mark = b"--" + found[1]
    parts: list[tuple[bytes, int, int]] = []
    at = body.find(mark)
    while at >= 0 and len(parts) < PARTS_MAX:
        head = at + len(mark)
        following = body.find(b"\r\n" + mark, head)
        if following < 0:
            break
        content = body.find(b"\r\n\r\n", head, min(following, head + PART_HEAD_MAX_BYTES) + 4)
        if content < 0 or content + 4 > following + 2:
            raise InvalidInput("a part of the form has no headers, or its headers are too long")
        name = _NAME.search(body, head, content)
        if name is not None:
            parts.append((name[1], content + 4, max(content + 4, following)))
        at = following + 2
    if not parts:
        raise InvalidInput("the request body is not a form of its content type")
    return parts
