"""Counts processes that ended although nobody stopped them, from two reports of a node."""

from collections.abc import Iterable
from typing import NamedTuple

from corral.core.nodes.observed import ObservedProcess, ProcessStatus

ENDED = frozenset({ProcessStatus.BACKING_OFF, ProcessStatus.FAILED})


class EndedProcess(NamedTuple):
    """What a process served, on its node."""

    model: str
    slot: int
    digest: str


def count_exits(process: ObservedProcess) -> int:
    """How often it ended since its first start, as its worker counts it."""
    return process.restarts + (1 if process.state in ENDED else 0)


def new_exits(before: Iterable[ObservedProcess], after: Iterable[ObservedProcess]) -> dict[EndedProcess, int]:
    """Exits between two reports. A worker counts from zero for every process it is told to start,
    so a lower count belongs to another process."""
    known = {(one.process_key, one.digest): count_exits(one) for one in before}
    found: dict[EndedProcess, int] = {}
    for process in after:
        exits, seen = count_exits(process), known.get((process.process_key, process.digest), 0)
        added = exits - seen if exits >= seen else exits
        if added and process.digest:
            key = EndedProcess(process.model, process.replica, process.digest)
            found[key] = found.get(key, 0) + added
    return found
