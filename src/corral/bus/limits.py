"""Limits of everything that comes over a wire, and the one way to read it.

Whoever sends it may be broken or hostile: a number must fit the store, a text and a table must have an end, and
whatever cannot be read raises one error. The limits are far above what real machines send.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from corral.core.errors import InvalidInput

INT_MOST = (1 << 63) - 1
DEPTH_MOST = 32

BACKENDS_MOST = 4096
PROCESSES_MOST = 4096
FILES_MOST = 65_536
PEERS_MOST = 1024
NODES_MOST = 16_384
ENTRIES_MOST = 65_536
BUCKETS_MOST = 64

Count = Annotated[int, Meta(ge=0, le=INT_MOST)]
Slot = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Amount = Annotated[float, Meta(ge=0, le=1e18)]
Percentage = Annotated[float, Meta(ge=-1e6, le=1e6)]
"""Clamped by who shows it: some workers count past their own total."""

Name = Annotated[str, Meta(max_length=1024)]
"""Names, ids, digests, addresses, tokens."""
Text = Annotated[str, Meta(max_length=16_384)]
"""Paths, addresses of sources, one sentence or a few."""
LongText = Annotated[str, Meta(max_length=1 << 20)]
"""What a person wrote or a program printed."""

Names = Annotated[list[Name], Meta(max_length=BACKENDS_MOST)]
Texts = Annotated[list[Text], Meta(max_length=FILES_MOST)]
Options = Annotated[dict[Name, LongText], Meta(max_length=BACKENDS_MOST)]
Counts = Annotated[dict[Name, Count], Meta(max_length=ENTRIES_MOST)]
Document = Annotated[dict[str, Any], Meta(max_length=BACKENDS_MOST)]

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""JSON has no other way to write one."""

Message = TypeVar("Message")


def read_message(data: bytes, read: Callable[[bytes], Message]) -> Message:
    """What `read` makes of it. Raises InvalidInput, whatever is wrong with it."""
    try:
        if b"\\u0000" in data and _NUL.search(data):
            raise InvalidInput("this is not a message we know: text with a NUL character")
        return read(data)
    except RecursionError:
        raise InvalidInput("this is not a message we know: it is nested too deeply") from None
    except ValueError as error:  # msgspec's errors, and text that is not UTF-8
        raise InvalidInput(f"this is not a message we know: {str(error)[:500]}") from None


def without_nul(data: bytes) -> bytes:
    """JSON that every reader accepts: what a program printed or a manifest says may hold anything."""
    return _NUL.sub(rb"\1\\ufffd", data) if b"\\u0000" in data else data


def check_depth(document: Any, most: int = DEPTH_MOST) -> None:
    """Of a document whose form is not ours to know. Raises ValueError."""
    level = [document]
    for _ in range(most):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {most} deep")
