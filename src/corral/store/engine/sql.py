"""Parts of SQL statements and their arguments."""

from collections.abc import Iterable

MAX_PADDED = 8192
"""Databases accept about thirty thousand arguments per statement."""


def places(count: int, *, first: int = 1) -> str:
    """`$1, $2, ...` for `count` values."""
    return ", ".join(f"${position}" for position in range(first, first + count))


def in_list(values: Iterable[str]) -> list[str]:
    """Arguments for `IN (...)`: sorted, without duplicates, the last one repeated up to a power of two.

    Each length makes a statement of its own, which a database has to parse and plan; padding keeps them few."""
    found = sorted(set(values))
    length = 1 << (len(found) - 1).bit_length() if 0 < len(found) <= MAX_PADDED else len(found)
    return found + found[-1:] * (length - len(found))
