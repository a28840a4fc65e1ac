"""How far a model's files are, over all the ways they come by."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Files that move together, as whoever moves them counts."""

    file_index: int = 0
    """Of the file that moves now, from 1; the last one's when all are there."""
    file_name: str = ""
    files: int = 0
    bytes_there: int = 0
    bytes_total: int = 0
    leg: int = 1
    legs: int = 1
    """What goes through a shared storage moves twice, and is half there when it has moved once."""


def shown(before: Lot, now: Lot) -> Lot:
    """`now` after `before`, which is there, as one."""
    moved = now.bytes_total * (now.leg - 1) + min(now.bytes_there, now.bytes_total)
    return Lot(
        file_index=before.files + now.file_index,
        file_name=now.file_name,
        files=before.files + now.files,
        bytes_there=before.bytes_total + moved // now.legs,
        bytes_total=before.bytes_total + now.bytes_total,
    )


TELL_EVERY_S = 1.0


def is_news(told: Lot | None, now: Lot, *, since_s: float) -> bool:
    """Another file is told at once, bytes once in a while."""
    return told is None or now.file_index != told.file_index or (now != told and since_s >= TELL_EVERY_S)
