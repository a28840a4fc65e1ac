"""The head of a GGUF file: the facts about a model that its memory depends on. Tensors and vocabulary are not read."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

HEAD_BYTES = 1 << 20
"""Enough for all fields before the vocabulary."""
_MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CACHE_BYTES = 2
"""One number of the cache: 16 bits, the default of llama.cpp."""
_ITEMS_MOST = 4096

Value = int | float | bool | str | tuple[int | float | bool, ...]


class NotGguf(ValueError):
    """The bytes are not the head of a GGUF file of a known version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFacts:
    """None is unknown: some architectures have no such figure."""

    architecture: str = ""
    layers: int | None = None
    trained_context: int | None = None
    cache_bytes_per_token: int | None = None
    """Memory of one token of context."""


def read_gguf(head: bytes) -> GgufFacts:
    """From the first bytes of a file. Raises NotGguf."""
    fields = dict(_fields(head))
    name = fields.get("general.architecture")
    if not isinstance(name, str):
        return GgufFacts()
    return GgufFacts(
        architecture=name,
        layers=_whole(fields.get(f"{name}.block_count")),
        trained_context=_whole(fields.get(f"{name}.context_length")),
        cache_bytes_per_token=_cache_bytes(fields, name),
    )


def _cache_bytes(fields: dict[str, Value], name: str) -> int | None:
    layers, heads = _whole(fields.get(f"{name}.block_count")), fields.get(f"{name}.attention.head_count")
    most_heads = max(heads, default=0) if isinstance(heads, tuple) else heads
    embedding = _whole(fields.get(f"{name}.embedding_length"))
    if layers is None or not isinstance(most_heads, int) or most_heads <= 0:
        return None
    size = embedding // most_heads if embedding is not None else None
    key = _whole(fields.get(f"{name}.attention.key_length")) or size
    value = _whole(fields.get(f"{name}.attention.value_length")) or size
    if key is None or value is None:
        return None
    shared = fields.get(f"{name}.attention.head_count_kv", heads)
    in_all_layers = sum(int(one) for one in shared) if isinstance(shared, tuple) else layers * int(shared or 0)
    return in_all_layers * (key + value) * _CACHE_BYTES or None


def _whole(value: Value | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else None


def _fields(head: bytes) -> Iterator[tuple[str, Value]]:
    """Up to the vocabulary, a field of an unknown type, or the end of the bytes."""
    if head[:4] != _MAGIC or len(head) < 24:
        raise NotGguf("it does not begin with GGUF")
    version, _, count = struct.unpack_from("<IQQ", head, 4)
    if version not in (2, 3):
        raise NotGguf(f"its version is {version}, not 2 or 3")
    at = 24
    try:
        for _ in range(min(count, _ITEMS_MOST)):
            key, at = _string(head, at)
            if key.startswith("tokenizer."):
                return
            [kind] = struct.unpack_from("<I", head, at)
            value, at = _value(head, at + 4, kind)
            yield key, value
    except (struct.error, KeyError, UnicodeDecodeError, IndexError):
        return


def _value(head: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == _STRING:
        return _string(head, at)
    if kind != _ARRAY:
        code = "<" + _NUMBERS[kind]
        return struct.unpack_from(code, head, at)[0], at + struct.calcsize(code)
    item, count = struct.unpack_from("<IQ", head, at)
    at += 12
    if item == _STRING:
        for _ in range(count):
            _, at = _string(head, at)
        return (), at
    size = struct.calcsize("<" + _NUMBERS[item])
    if at + count * size > len(head):
        raise IndexError("an array goes on after the bytes that were read")
    kept = min(count, _ITEMS_MOST)
    return struct.unpack_from(f"<{kept}{_NUMBERS[item]}", head, at), at + count * size


def _string(head: bytes, at: int) -> tuple[str, int]:
    [length] = struct.unpack_from("<Q", head, at)
    end = at + 8 + length
    if end > len(head):
        raise IndexError("a text goes on after the bytes that were read")
    return head[at + 8 : end].decode(), end
