"""JSON answers encoded by msgspec: for large or frequent ones, without a second validation of our own values."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache

import msgspec
from fastapi import Response


class MsgspecJson(Response):
    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return msgspec.json.encode(content)


class SparseJson(MsgspecJson):
    """Leaves out fields of dataclasses that have their default value, as LocalAI's `omitempty` does."""

    def render(self, content: object) -> bytes:
        return msgspec.json.encode(omit_defaults(content))


def omit_defaults(content: object) -> object:
    if is_dataclass(content) and not isinstance(content, type):
        values = ((name, default, getattr(content, name)) for name, default in _defaults(type(content)))
        return {name: omit_defaults(value) for name, default, value in values if default is MISSING or value != default}
    if isinstance(content, Mapping):
        return {key: omit_defaults(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [omit_defaults(value) for value in content]
    return content


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    return tuple((field.name, field.default) for field in fields(kind))
