"""The wire format of Protocol Buffers, for messages with a known schema: no generated code, no type registry.

A `Schema` describes each field number of a message. A message is a dict by field name, without fields that have their
default value. Unknown fields are skipped, as the format requires.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

Kind = Literal["string", "bytes", "int32", "uint32", "int64", "uint64", "bool", "float", "double", "enum"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIRE = {"string": _LENGTH, "bytes": _LENGTH, "float": _FIXED32, "double": _FIXED64}
_UNSIGNED = ("uint32", "uint64")


class BadMessage(Exception):
    """Bytes that are not such a message, or a value that does not fit its field."""


@dataclass(frozen=True, slots=True)
class Field:
    number: int
    name: str
    kind: "Kind | Schema"
    repeated: bool = False
    text_map: bool = False
    """map<string, string>."""

    @property
    def wire(self) -> int:
        return _LENGTH if self.text_map or isinstance(self.kind, Schema) else _WIRE.get(self.kind, _VARINT)


@dataclass(frozen=True)
class Schema:
    name: str
    fields: tuple[Field, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        return {field.name: field for field in self.fields}

    @cached_property
    def by_number(self) -> Mapping[int, Field]:
        return {field.number: field for field in self.fields}

    def encode(self, values: Mapping[str, Any]) -> bytes:
        out = bytearray()
        for name, value in values.items():
            field = self.by_name.get(name)
            if field is None:
                raise BadMessage(f"{self.name} has no field {name}")
            if value is not None:
                _encode_field(out, field, value)
        return bytes(out)

    def decode(self, data: bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for number, wire, value in _read_fields(data):
            field = self.by_number.get(number)
            if field is not None:
                _decode_field(values, field, wire, value)
        return values


def _encode_field(out: bytearray, field: Field, value: Any) -> None:
    if field.text_map:
        for key, text in value.items():
            entry = _TEXT_ENTRY.encode({"key": key, "value": text})
            _put(out, field.number, _LENGTH, entry)
    elif not field.repeated:
        # A default is not sent, except as an item of a list.
        if value or isinstance(field.kind, Schema):
            _put(out, field.number, field.wire, _scalar(field, value))
    elif field.wire == _LENGTH:
        for item in value:
            _put(out, field.number, _LENGTH, _scalar(field, item))
    elif value:
        _put(out, field.number, _LENGTH, b"".join(_scalar(field, item) for item in value))


def _put(out: bytearray, number: int, wire: int, content: bytes) -> None:
    out += _varint(number << 3 | wire)
    if wire == _LENGTH:
        out += _varint(len(content))
    out += content


def _scalar(field: Field, value: Any) -> bytes:
    try:
        if isinstance(field.kind, Schema):
            return field.kind.encode(value)
        return _ENCODERS[field.kind](value)
    except (struct.error, OverflowError, TypeError, ValueError, AttributeError) as error:
        raise BadMessage(f"{field.name} cannot be {str(value)[:60]!r}") from error


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(low: int, high: int) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        number = int(value)
        if not low <= number <= high:
            raise OverflowError
        return _varint(number & (1 << 64) - 1)

    return encode


_int32 = _integer(-(1 << 31), (1 << 31) - 1)
_ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "string": lambda value: value.encode("utf-8", "replace"),
    "bytes": bytes,
    "int32": _int32,
    "enum": _int32,
    "uint32": _integer(0, (1 << 32) - 1),
    "int64": _integer(-(1 << 63), (1 << 63) - 1),
    "uint64": _integer(0, (1 << 64) - 1),
    "bool": lambda value: b"\x01" if value else b"\x00",
    "float": lambda value: struct.pack("<f", value),
    "double": lambda value: struct.pack("<d", value),
}


def _read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield number, wire, value
            continue
        if wire == _LENGTH:
            size, at = _read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise BadMessage(f"a field has the unknown wire type {wire}")
        if at + size > len(data):
            raise BadMessage("the message ends in the middle of a field")
        yield number, wire, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise BadMessage("the message ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
    raise BadMessage("a number is longer than 64 bits")


def _decode_field(values: dict[str, Any], field: Field, wire: int, value: Any) -> None:
    if field.text_map:
        entry = _TEXT_ENTRY.decode(value)
        values.setdefault(field.name, {})[entry.get("key", "")] = entry.get("value", "")
    elif not field.repeated:
        values[field.name] = _decode_scalar(field, wire, value)
    elif wire == _LENGTH and field.wire != _LENGTH:
        values.setdefault(field.name, []).extend(_unpack(field, value))
    else:
        values.setdefault(field.name, []).append(_decode_scalar(field, wire, value))


def _unpack(field: Field, data: bytes) -> Iterator[Any]:
    if field.wire in (_FIXED32, _FIXED64):
        size = 4 if field.wire == _FIXED32 else 8
        if len(data) % size:
            raise BadMessage(f"{field.name} ends in the middle of a value")
        yield from struct.unpack(f"<{len(data) // size}{'f' if size == 4 else 'd'}", data)
        return
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield _decode_scalar(field, _VARINT, value)


def _decode_scalar(field: Field, wire: int, value: Any) -> Any:
    if wire != field.wire:
        raise BadMessage(f"{field.name} has the wrong wire type")
    match field.kind:
        case Schema() as schema:
            return schema.decode(value)
        case "string":
            return value.decode("utf-8", "replace")
        case "bytes":
            return value
        case "float":
            return struct.unpack("<f", value)[0]
        case "double":
            return struct.unpack("<d", value)[0]
        case "bool":
            return value != 0
        case "int32" | "int64" | "enum":
            return value - (1 << 64) if value >= 1 << 63 else value
        case _:
            return value


_TEXT_ENTRY = Schema("MapEntry", (Field(1, "key", "string"), Field(2, "value", "string")))


def schema(name: str, /, **fields: str | Field) -> Schema:
    """Fields as `name="<number> <kind>"`, `"<number> repeated <kind>"`, `"<number> map"` or `message(...)`."""
    return Schema(name, tuple(_field(key, given) for key, given in fields.items()))


def message(number: int, kind: Schema, *, repeated: bool = False) -> Field:
    return Field(number, "", kind, repeated)


def _field(name: str, given: str | Field) -> Field:
    if isinstance(given, Field):
        return replace(given, name=name)
    number, *words = given.split()
    if words == ["map"]:
        return Field(int(number), name, "string", text_map=True)
    kind: Any = words[-1]
    if kind not in _ENCODERS:
        raise BadMessage(f"{name}: unknown kind {kind}")
    return Field(int(number), name, kind, words[0] == "repeated")
