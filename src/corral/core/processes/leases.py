"""Processes a machine runs only for as long as it hears from the fleet: afterwards they may run elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from corral.core.processes.process import ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """What a fleet wants of one node, and what it wanted before it took it away without the node's word."""

    wanted: frozenset[str] = frozenset()
    lost: Mapping[str, int] = field(default_factory=dict)
    """By process key the generation up to which it is lost."""


def lease_length_s(*, disconnect_grace_s: float, offline_after_s: float, heartbeat_interval_s: float) -> float:
    """Never over before the fleet has given up the node: until then the process is nobody else's."""
    return max(disconnect_grace_s, offline_after_s + 2 * heartbeat_interval_s)


def plan_lease(share: NodeShare, *, lease_s: float) -> tuple[Mapping[str, float], Mapping[str, int]]:
    """Leases by process key, and what has been given away. What is wanted again is not among the latter: a process
    that an older frontend ordered has no generation to be told apart by."""
    return (
        dict.fromkeys(sorted(share.wanted), lease_s),
        {key: up_to for key, up_to in share.lost.items() if key not in share.wanted},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLeases:
    """The last grant, whole: a process it does not name is ours until somebody says otherwise."""

    asked_s: float = 0.0
    """When the question was sent that the grant answers. Whoever granted counts from later, never from earlier."""
    lengths_s: Mapping[ProcessKey, float] = field(default_factory=dict)

    def lapsed(self, now_s: float) -> tuple[ProcessKey, ...]:
        return tuple(key for key, length_s in self.lengths_s.items() if now_s - self.asked_s >= length_s)

    def without(self, keys: tuple[ProcessKey, ...]) -> "ProcessLeases":
        return replace(self, lengths_s={key: length for key, length in self.lengths_s.items() if key not in keys})


def was_revoked(*, generation: int | None, up_to: int) -> bool:
    """A word about an older process of the same key, still under way, must not end its successor."""
    return generation is None or generation <= up_to
