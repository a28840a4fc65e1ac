"""Small parts of SQL texts, and of what goes into them."""

from collections.abc import Iterable

PADDED_MOST = 8192
"""Databases take some thirty thousand values with a statement."""


def places(count: int, *, first: int = 1) -> str:
    """`$1, $2, ...` for a list of values."""
    return ", ".join(f"${position}" for position in range(first, first + count))


def in_list(values: Iterable[str]) -> list[str]:
    """For `IN (...)`, in one order, the last one repeated up to a power of two: each length is a text of its own, which
    a database has to read and plan anew."""
    found = sorted(set(values))
    wanted = 1 << (len(found) - 1).bit_length() if 0 < len(found) <= PADDED_MOST else len(found)
    return found + found[-1:] * (wanted - len(found))
