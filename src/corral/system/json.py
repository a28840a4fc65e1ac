"""Decodes untrusted JSON into a type, in any thread."""

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_preparing = threading.Lock()
_prepared: set[object] = set()


def prepare_type(kind: Any) -> None:
    """Call before msgspec decodes or converts into a type outside the main thread. msgspec examines a type when it is
    first used; where two threads do that at the same time, the process crashes."""
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)


def decode_json(content: bytes | str, kind: type[T]) -> T:
    """Raises only msgspec's DecodeError, which includes ValidationError."""
    prepare_type(kind)
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from error
