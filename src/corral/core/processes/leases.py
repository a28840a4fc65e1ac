"""Process leases: a worker runs a process only while a frontend renews its lease; afterwards it may run elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from corral.core.processes.process import ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """The processes that a node should run, and those that were revoked while it could not be reached."""

    desired: frozenset[str] = frozenset()
    revoked: Mapping[str, int] = field(default_factory=dict)
    """By process key: the generation up to which it is revoked."""


def lease_length_s(*, disconnect_grace_s: float, offline_after_s: float, heartbeat_interval_s: float) -> float:
    """Never shorter than the time after which the node is offline: until then its processes are not replaced."""
    return max(disconnect_grace_s, offline_after_s + 2 * heartbeat_interval_s)


def plan_lease(share: NodeShare, *, lease_s: float) -> tuple[Mapping[str, float], Mapping[str, int]]:
    """Leases by process key, and revocations. A key that is desired again is not revoked: a process that an older
    frontend started has no generation to tell the two apart."""
    return (
        dict.fromkeys(sorted(share.desired), lease_s),
        {key: up_to for key, up_to in share.revoked.items() if key not in share.desired},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLeases:
    """The leases of the last renewal. A process that is not in it has no lease, and runs until it is revoked."""

    asked_s: float = 0.0
    """When the renewal was requested. The frontend counts from later, never from earlier."""
    lengths_s: Mapping[ProcessKey, float] = field(default_factory=dict)

    def lapsed(self, now_s: float) -> tuple[ProcessKey, ...]:
        return tuple(key for key, length_s in self.lengths_s.items() if now_s - self.asked_s >= length_s)

    def without(self, keys: tuple[ProcessKey, ...]) -> "ProcessLeases":
        return replace(self, lengths_s={key: length for key, length in self.lengths_s.items() if key not in keys})


def was_revoked(*, generation: int | None, up_to: int) -> bool:
    """A revocation of an older process with the same key must not end its successor."""
    return generation is None or generation <= up_to
