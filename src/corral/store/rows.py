"""Small parts of SQL texts."""


def places(count: int, *, first: int = 1) -> str:
    """`$1, $2, ...` for a list of values."""
    return ", ".join(f"${position}" for position in range(first, first + count))
