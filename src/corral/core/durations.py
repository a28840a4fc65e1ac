"""Durations as people write them: `15m`, `1h30m`, `250ms`, or plain seconds."""

import re

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WHOLE = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0))
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration_s(text: str) -> float:
    """Seconds, also negative: each setting checks its own range. Raises ValueError."""
    stripped = text.strip()
    try:
        return float(stripped)
    except ValueError:
        pass
    sign = -1.0 if stripped.startswith("-") else 1.0
    parts = _PART.findall(stripped)
    if not parts or "".join(number + unit for number, unit in parts) != stripped.removeprefix("-"):
        raise ValueError(f"{text!r} is not a duration; write for example 30s, 15m, 1h30m or a number of seconds")
    return sign * sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Exact, in the form that `parse_duration_s` reads: `90d`, `1h`, `2.5s`."""
    unit, size = next((unit, size) for unit, size in _WHOLE if (seconds >= size and seconds % size == 0) or unit == "s")
    return f"{seconds / size:g}{unit}"


def format_age(seconds: float) -> str:
    """Short and coarse, for people: `4s`, `12m`, `3h`, `2d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
