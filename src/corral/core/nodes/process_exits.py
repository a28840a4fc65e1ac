"""Counts processes that ended although nobody stopped them, from two reports of a node."""

from collections.abc import Iterable

from corral.core.nodes.observed import ObservedProcess, ProcessStatus

ENDED = frozenset({ProcessStatus.BACKING_OFF, ProcessStatus.FAILED})


def count_exits(process: ObservedProcess) -> int:
    """How often it ended since its first start, as its worker counts it."""
    return process.restarts + (1 if process.state in ENDED else 0)


def new_exits(before: Iterable[ObservedProcess], after: Iterable[ObservedProcess]) -> dict[tuple[str, str], int]:
    """Exits between two reports, by model and version. A worker counts from zero for every process it is told to start,
    so a lower count belongs to another process."""
    known = {(one.process_key, one.digest): count_exits(one) for one in before}
    found: dict[tuple[str, str], int] = {}
    for process in after:
        exits, seen = count_exits(process), known.get((process.process_key, process.digest), 0)
        added = exits - seen if exits >= seen else exits
        if added and process.digest:
            key = process.model, process.digest
            found[key] = found.get(key, 0) + added
    return found
