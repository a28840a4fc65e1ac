"""Suggests existing names similar to an unknown one."""

from collections.abc import Sequence
from difflib import get_close_matches

NAME_MOST = 300


def near_names(name: str, known: Sequence[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """The most similar first."""
    if len(name) > NAME_MOST:
        return []
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_lower, n=most, cutoff=cutoff)
    return [by_lower[one] for one in close]
