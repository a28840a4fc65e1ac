"""Byte counts and memory budgets as people write them."""

import re

from corral.core.errors import InvalidInput

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)", re.IGNORECASE)


def parse_budget_bytes(text: str, *, total_bytes: int) -> int:
    """`80%`, `0.8`, `12GB`, `12GiB` or bytes, at most `total_bytes`."""
    stripped = text.strip()
    try:
        if stripped.endswith("%"):
            share = float(stripped[:-1]) / 100
            if not 0 < share <= 1:
                raise ValueError
            return int(total_bytes * share)
        match = _SIZE.fullmatch(stripped)
        if not match:
            raise ValueError
        number, unit = float(match[1]), match[2]
        if not unit and 0 < number <= 1:
            return int(total_bytes * number)
        factor = {name.lower(): factor for name, factor in _UNITS.items()}[unit.lower()]
    except (ValueError, KeyError):
        raise InvalidInput(f"{text!r} is not a memory budget; write for example 80% or 12GiB") from None
    if number <= 0:
        raise InvalidInput(f"{text!r} leaves no memory; write for example 80% or 12GiB")
    return min(total_bytes, int(number * factor))


def read_size_bytes(text: str) -> int | None:
    """`94MB`, `1.5 GiB`, `4G` or bytes. None for any other text, such as a gallery's "about 4 GB"."""
    match = _SIZE.fullmatch(text.strip())
    unit = match[2].lower() if match else ""
    factors = {name.lower(): factor for name, factor in _UNITS.items()}
    factor = factors.get(unit) or factors.get(f"{unit}b")
    return int(float(match[1]) * factor) if match and factor else None


def parse_size_bytes(text: str) -> int:
    """`200GB`, `200GiB` or bytes."""
    size = read_size_bytes(text)
    if size is None:
        raise InvalidInput(f"{text!r} is not a size; write for example 94MiB or 12GiB")
    return size


def format_bytes(count: float) -> str:
    """Binary units, one decimal: `412.0 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
