"""The header by which a client names the revision that it has edited."""

from typing import Annotated

from fastapi import Header

IfMatch = Annotated[str | None, Header()]


def read_if_match(header: str | None) -> str | None:
    """None for `*` and no header: any revision."""
    if header is None or header.strip() == "*":
        return None
    return header.strip().removeprefix("W/").strip('"')
