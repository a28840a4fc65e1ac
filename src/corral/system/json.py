"""Decodes untrusted JSON into a type."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(content: bytes | str, kind: type[T]) -> T:
    """Raises only msgspec's DecodeError, which includes ValidationError."""
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from error
