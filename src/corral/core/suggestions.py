"""Names that a person may have meant by one that does not exist."""

from collections.abc import Sequence
from difflib import get_close_matches

NAME_MOST = 300


def near_names(wanted: str, known: Sequence[str], *, most: int = 3) -> list[str]:
    """What the caller may have meant, the likeliest first."""
    if len(wanted) > NAME_MOST:
        return []
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(wanted.lower(), by_lower, n=most, cutoff=0.5)
    return [by_lower[name] for name in close]
