"""Requests and memory of each node in the last hour, per minute."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from corral.core.nodes.node import Node
from corral.core.nodes.presence import Presence

MINUTE_S = 60.0
MINUTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficShare:
    """Requests that one node answered. Counters: they can be added and subtracted."""

    requests: int = 0
    failed: int = 0
    busy_s: float = 0.0
    """The sum of all durations. Divided by a period, it is the average number of concurrent requests."""

    def __add__(self, other: "TrafficShare") -> "TrafficShare":
        return TrafficShare(
            requests=self.requests + other.requests,
            failed=self.failed + other.failed,
            busy_s=self.busy_s + other.busy_s,
        )

    def __sub__(self, other: "TrafficShare") -> "TrafficShare":
        return self + TrafficShare(requests=-other.requests, failed=-other.failed, busy_s=-other.busy_s)


def shares_between(before: Mapping[str, TrafficShare], after: Mapping[str, TrafficShare]) -> dict[str, TrafficShare]:
    """The increase for each node; nodes without requests are left out."""
    added = {node: share - before.get(node, TrafficShare()) for node, share in after.items()}
    return {node: share for node, share in added.items() if share.requests}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """None is unknown, never zero."""

    ram_bytes: int | None = None
    vram_bytes: int | None = None


def memory_use(node: Node) -> MemoryUse:
    """Unknown for an offline node: its last report is outdated."""
    if node.presence in (Presence.GONE, Presence.LEFT):
        return MemoryUse()
    return MemoryUse(
        ram_bytes=_used(node.total_ram, node.available_ram), vram_bytes=_used(node.total_vram, node.available_vram)
    )


def _used(total: int | None, available: int | None) -> int | None:
    return None if total is None or available is None else max(0, total - available)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMinute:
    length_s: float = MINUTE_S
    """The current minute is shorter."""
    share: TrafficShare = TrafficShare()
    memory: MemoryUse = MemoryUse()


@dataclass(slots=True)
class _Minute:
    number: int
    shares: dict[str, TrafficShare] = field(default_factory=dict)
    memory: dict[str, MemoryUse] = field(default_factory=dict)


class NodeHistory:
    """By node name, on a monotonic clock. Of a node without requests only its memory is kept."""

    def __init__(self, *, now_s: float) -> None:
        self._minutes: deque[_Minute] = deque([_Minute(_number(now_s))])
        self._began_s = now_s

    def add(self, shares: Mapping[str, TrafficShare], *, now_s: float) -> None:
        minute = self._current(now_s)
        for node, share in shares.items():
            minute.shares[node] = minute.shares.get(node, TrafficShare()) + share

    def note_memory(self, uses: Mapping[str, MemoryUse], *, now_s: float) -> None:
        self._current(now_s).memory.update(uses)

    def read(self, node: str, *, now_s: float) -> list[NodeMinute]:
        """Oldest first, without gaps; the last is the current minute."""
        current = self._current(now_s)
        found = {
            minute.number: NodeMinute(
                share=minute.shares.get(node, TrafficShare()), memory=minute.memory.get(node, MemoryUse())
            )
            for minute in self._minutes
        }
        shown = [found.get(number, NodeMinute()) for number in range(self._minutes[0].number, current.number + 1)]
        began_s = max(self._began_s, current.number * MINUTE_S)
        return [*shown[:-1], replace(shown[-1], length_s=now_s - began_s)]

    def _current(self, now_s: float) -> _Minute:
        number = _number(now_s)
        if self._minutes[-1].number != number:
            self._minutes.append(_Minute(number))
        while self._minutes[0].number <= number - MINUTES:
            self._minutes.popleft()
        return self._minutes[-1]


def _number(now_s: float) -> int:
    return int(now_s // MINUTE_S)
