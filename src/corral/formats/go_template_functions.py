"""The functions of Go's templates, and those of sprig that prompts use. They depend on their arguments only."""

import json
from collections.abc import Callable, Mapping
from typing import Any

TEXT_MOST = 4 << 20


class GoFault(Exception):
    """An error at which Go would stop rendering."""


class GoStruct(dict[str, Any]):
    """Fields by their Go names; in JSON the names are in lower case, like the tags of LocalAI's structs."""


def is_true(value: Any) -> bool:
    """Truth in Go: empty texts, lists and maps, zero, false and nil are false."""
    return bool(value)


def format_value(value: Any) -> str:
    """As Go's `fmt` formats it with %v."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_float(value)
    if isinstance(value, GoStruct):
        return f"{{{' '.join(_inner(item) for item in value.values())}}}"
    if isinstance(value, Mapping):
        inner = " ".join(f"{format_value(key)}:{_inner(value[key])}" for key in sorted(value))
        return f"map[{inner}]"
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(_inner(item) for item in value)}]"
    return str(value)


def _inner(value: Any) -> str:
    return "<nil>" if value is None else format_value(value)


def _format_float(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        sign, digits = exponent[0], exponent[1:]
        return f"{mantissa}e{sign}{digits.zfill(2)}"
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise GoFault(f"{format_value(value)[:40]!r} is not a string")
    return value


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (list, tuple, Mapping)):
        return len(value)
    raise GoFault(f"{format_value(value)[:40]!r} has no length")


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, (list, tuple)):
            if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < len(value):
                raise GoFault(f"there is no item {format_value(key)} in a list of {len(value)}")
            value = value[key]
        else:
            raise GoFault(f"{format_value(value)[:40]!r} has no items")
    return value


def _slice(value: Any, *bounds: int) -> Any:
    if not isinstance(value, (str, list, tuple)):
        raise GoFault(f"{format_value(value)[:40]!r} cannot be sliced")
    start, end = (*bounds, len(value))[:2] if bounds else (0, len(value))
    if not 0 <= start <= end <= len(value):
        raise GoFault(f"there is no slice from {start} to {end} of {len(value)}")
    return value[start:end]


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise GoFault("eq needs two values")
    return any(_same_kind(first, other) and first == other for other in others)


def _same_kind(first: Any, other: Any) -> bool:
    kinds = (bool, (int, float), str)
    for kind in kinds:
        if isinstance(first, kind) or isinstance(other, kind):
            if first is None or other is None:
                return False
            if not (isinstance(first, kind) and isinstance(other, kind)):
                raise GoFault(f"cannot compare {format_value(first)[:40]!r} and {format_value(other)[:40]!r}")
            return True
    return first is None and other is None


def _less(first: Any, other: Any) -> bool:
    if not _same_kind(first, other) or isinstance(first, bool):
        raise GoFault("these values cannot be ordered")
    return bool(first < other)


def _printf(pattern: Any, *values: Any) -> str:
    out: list[str] = []
    rest = list(values)
    text = _text(pattern)
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "%":
            out.append(char)
            continue
        flags = ""
        while at < len(text) and text[at] in "-+ 0123456789.#":
            flags += text[at]
            at += 1
        verb = text[at : at + 1]
        at += 1
        out.append("%" if verb == "%" else _format_verb(verb, flags, rest))
    return "".join(out)


def _format_verb(verb: str, flags: str, rest: list[Any]) -> str:
    if not rest:
        return f"%!{verb}(MISSING)"
    if any(int(part) > 10_000 for part in flags.strip("-+ #").split(".") if part.isdigit()):
        raise GoFault("printf: the width is too large")
    value = rest.pop(0)
    match verb:
        case "s" | "v":
            return f"%{flags}s" % _inner(value)
        case "d" if isinstance(value, int):
            return f"%{flags}d" % value
        case "q":
            return f"%{flags}s" % json.dumps(format_value(value), ensure_ascii=False)
        case "f" | "g" | "e" if isinstance(value, (int, float)):
            return f"%{flags}{verb}" % value
        case "t" if isinstance(value, bool):
            return format_value(value)
        case "x" if isinstance(value, int):
            return f"%{flags}x" % value
        case _:
            raise GoFault(f"printf cannot format {format_value(value)[:40]!r} with %{verb}")


def _print(*values: Any) -> str:
    """Go adds a space between two operands when neither is a text."""
    out = ""
    for at, value in enumerate(values):
        if at and not isinstance(value, str) and not isinstance(values[at - 1], str):
            out += " "
        out += format_value(value)
    return out


def _to_json(value: Any, *, indent: int | None = None) -> str:
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(_tagged(value), ensure_ascii=False, indent=indent, separators=separators)
    for char, code in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e")):
        text = text.replace(char, code)
    return text


def _to_raw_json(value: Any) -> str:
    return json.dumps(_tagged(value), ensure_ascii=False, separators=(",", ":"))


def _tagged(value: Any) -> Any:
    """Go keeps a struct's order and sorts a map."""
    if isinstance(value, GoStruct):
        return {name.lower(): _tagged(item) for name, item in value.items()}
    if isinstance(value, Mapping):
        return {key: _tagged(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_tagged(item) for item in value]
    return value


def _default(fallback: Any, value: Any = None) -> Any:
    return value if is_true(value) else fallback


def _join(separator: Any, items: Any) -> str:
    if isinstance(items, (list, tuple)):
        return _text(separator).join(format_value(item) for item in items if item is not None)
    return format_value(items)


def _indent(count: int, text: Any) -> str:
    if count > 1000:
        raise GoFault("the indent is too wide")
    return "\n".join(" " * count + line for line in _text(text).split("\n"))


def _repeat(count: int, text: Any) -> str:
    if max(0, count) * len(_text(text)) > TEXT_MOST:
        raise GoFault("the repeated text is too long")
    return _text(text) * count


def _whole(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return 0
    if isinstance(value, (int, float)):
        return int(value)
    return 0


def _divide(first: Any, *others: Any) -> int:
    result = _whole(first)
    for other in others:
        divisor = _whole(other)
        if divisor == 0:
            raise GoFault("division by zero")
        result = int(result / divisor)
    return result


def _times(*values: Any) -> int:
    result = 1
    for value in values:
        result *= _whole(value)
        if abs(result) > 1 << 63:
            raise GoFault("the product is too large")
    return result


def _minus(first: Any, other: Any) -> int:
    return _whole(first) - _whole(other)


def _dict(*pairs: Any) -> dict[str, Any]:
    return {format_value(pairs[at]): pairs[at + 1] if at + 1 < len(pairs) else "" for at in range(0, len(pairs), 2)}


def _until(count: Any) -> list[int]:
    if _whole(count) > 100_000:
        raise GoFault("the list is too long")
    return list(range(_whole(count)))


def _first(items: Any) -> Any:
    return items[0] if isinstance(items, (list, tuple)) and items else None


def _last(items: Any) -> Any:
    return items[-1] if isinstance(items, (list, tuple)) and items else None


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if is_true(value)), None)


def _contains(part: Any, text: Any) -> bool:
    return _text(part) in _text(text)


def _has(item: Any, items: Any) -> bool:
    return isinstance(items, (list, tuple)) and item in items


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    # Built into Go. `and` and `or` are not here: they do not evaluate all arguments.
    "and": lambda *values: values,
    "or": lambda *values: values,
    "not": lambda value: not is_true(value),
    "eq": _equal,
    "ne": lambda first, other: not _equal(first, other),
    "lt": _less,
    "le": lambda first, other: not _less(other, first),
    "gt": lambda first, other: _less(other, first),
    "ge": lambda first, other: not _less(first, other),
    "len": _length,
    "index": _index,
    "slice": _slice,
    "print": _print,
    "println": lambda *values: " ".join(format_value(value) for value in values) + "\n",
    "printf": _printf,
    # Texts.
    "trim": lambda text: _text(text).strip(),
    "trimAll": lambda chars, text: _text(text).strip(_text(chars)),
    "trimPrefix": lambda prefix, text: _text(text).removeprefix(_text(prefix)),
    "trimSuffix": lambda suffix, text: _text(text).removesuffix(_text(suffix)),
    "lower": lambda text: _text(text).lower(),
    "upper": lambda text: _text(text).upper(),
    "title": lambda text: _text(text).title(),
    "contains": _contains,
    "hasPrefix": lambda prefix, text: _text(text).startswith(_text(prefix)),
    "hasSuffix": lambda suffix, text: _text(text).endswith(_text(suffix)),
    "replace": lambda old, new, text: _text(text).replace(_text(old), _text(new)),
    "nospace": lambda text: "".join(_text(text).split()),
    "repeat": _repeat,
    "indent": _indent,
    "nindent": lambda count, text: "\n" + _indent(count, text),
    "quote": lambda *values: " ".join(json.dumps(format_value(value), ensure_ascii=False) for value in values),
    "squote": lambda *values: " ".join(f"'{format_value(value)}'" for value in values),
    "join": _join,
    "splitList": lambda separator, text: _text(text).split(_text(separator)),
    "toString": format_value,
    # Values.
    "toJson": _to_json,
    "mustToJson": _to_json,
    "toRawJson": _to_raw_json,
    "mustToRawJson": _to_raw_json,
    "toPrettyJson": lambda value: _to_json(value, indent=2),
    "fromJson": lambda text: json.loads(_text(text)),
    "default": _default,
    "empty": lambda value=None: not is_true(value),
    "coalesce": _coalesce,
    "ternary": lambda yes, no, test: yes if test is True else no,
    # Numbers.
    "int": _whole,
    "add": lambda *values: sum(_whole(value) for value in values),
    "add1": lambda value: _whole(value) + 1,
    "sub": _minus,
    "mul": _times,
    "div": _divide,
    "mod": lambda first, other: _whole(first) % _whole(other),
    "max": lambda *values: max(_whole(value) for value in values),
    "min": lambda *values: min(_whole(value) for value in values),
    # Lists and maps.
    "list": lambda *values: list(values),
    "dict": _dict,
    "first": _first,
    "last": _last,
    "rest": lambda items: list(items)[1:],
    "initial": lambda items: list(items)[:-1],
    "has": _has,
    "hasKey": lambda mapping, key: key in mapping,
    "get": lambda mapping, key: mapping.get(key, ""),
    "keys": lambda mapping: sorted(mapping),
    "until": _until,
}
