"""Limits for all received messages, and the one way to read them.

A sender may be broken or hostile: numbers must fit the store, texts and tables are bounded, and anything unreadable
raises one error. The limits are far above what real nodes send.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from corral.core.backends.build import BuildRef
from corral.core.errors import InvalidInput
from corral.core.transfer import TransferProgress

INT_MOST = (1 << 63) - 1
DEPTH_MOST = 32

BACKENDS_MOST = 4096
PROCESSES_MOST = 4096
FILES_MOST = 65_536
PEERS_MOST = 1024
NODES_MOST = 16_384
ENTRIES_MOST = 65_536
KEYS_MOST = 4096
BUCKETS_MOST = 64
ENDPOINTS_MOST = 16
FITTED_MOST = 64

Count = Annotated[int, Meta(ge=0, le=INT_MOST)]
Slot = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
AMOUNT_MOST = 1e18
PERCENTAGE_MOST = 1e6

Amount = Annotated[float, Meta(ge=0, le=AMOUNT_MOST)]
Percentage = Annotated[float, Meta(ge=-PERCENTAGE_MOST, le=PERCENTAGE_MOST)]
"""Clamped where it is shown: some workers count past their own total."""

NAME_MOST = 1024
TEXT_MOST = 16_384
LONG_TEXT_MOST = 1 << 20

Name = Annotated[str, Meta(max_length=NAME_MOST)]
"""Names, ids, digests, addresses, tokens."""
Text = Annotated[str, Meta(max_length=TEXT_MOST)]
"""Paths, source addresses, a few sentences."""
LongText = Annotated[str, Meta(max_length=LONG_TEXT_MOST)]
"""Text written by a person or printed by a program."""

Names = Annotated[list[Name], Meta(max_length=BACKENDS_MOST)]
Texts = Annotated[list[Text], Meta(max_length=FILES_MOST)]
Options = Annotated[dict[Name, LongText], Meta(max_length=BACKENDS_MOST)]
Counts = Annotated[dict[Name, Count], Meta(max_length=ENTRIES_MOST)]
Endpoints = Annotated[tuple[Name, ...], Meta(max_length=ENDPOINTS_MOST)]
Fitted = Annotated[dict[Name, Slot], Meta(max_length=FITTED_MOST)]
"""Slots, context, threads and the like of an engine, by name."""

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""The only way to write a NUL in JSON."""

Message = TypeVar("Message")


def read_message(data: bytes, read: Callable[[bytes], Message]) -> Message:
    """The result of `read`. Raises InvalidInput, whatever is wrong with the data."""
    try:
        if b"\\u0000" in data and _NUL.search(data):
            raise InvalidInput("the message cannot be read: it contains a NUL character")
        return read(data)
    except RecursionError:
        raise InvalidInput("the message cannot be read: it is nested too deeply") from None
    except ValueError as error:  # msgspec's errors, and text that is not UTF-8
        raise InvalidInput(f"the message cannot be read: {str(error)[:500]}") from None


def without_nul(data: bytes) -> bytes:
    """The JSON with replacement characters for NULs, which a program's output or a manifest may contain."""
    return _NUL.sub(rb"\1\\ufffd", data) if b"\\u0000" in data else data


def check_build(build: BuildRef) -> None:
    """Core values carry no limits of their own. Raises ValueError."""
    names = (build.name, build.alias, build.digest, build.sha256, build.version)
    if any(len(name) > NAME_MOST for name in names):
        raise ValueError(f"a field of the build has more than {NAME_MOST} characters")
    if len(build.uris) > FILES_MOST or any(len(uri) > TEXT_MOST for uri in build.uris):
        raise ValueError("the build has too many or too long sources")
    if len(build.manifest) > LONG_TEXT_MOST:
        raise ValueError(f"the build's manifest has more than {LONG_TEXT_MOST} characters")
    if build.manifest:
        check_depth(msgspec.json.decode(build.manifest))


def check_transfer(transfer: TransferProgress) -> None:
    """The same for progress. Raises ValueError."""
    if len(transfer.phase) > NAME_MOST or len(transfer.file_name) > TEXT_MOST:
        raise ValueError("a progress text is too long")
    if not abs(transfer.percentage) <= PERCENTAGE_MOST:
        raise ValueError("the percentage is out of range")
    counts = (transfer.bytes_done, transfer.bytes_total, transfer.file_index, transfer.total_files)
    if any(count is not None and not 0 <= count <= INT_MOST for count in counts):
        raise ValueError("a progress count is out of range")
    if any(
        amount is not None and not 0 <= amount <= AMOUNT_MOST for amount in (transfer.rate_bytes_per_s, transfer.eta_s)
    ):
        raise ValueError("the progress rate or remaining time is out of range")


def check_depth(document: Any, most: int = DEPTH_MOST) -> None:
    """Checks a document of unknown structure. Raises ValueError."""
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
