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


RENEWALS_KNOW_AFTER_S = 30.0
"""A frontend answers heartbeats from memory: a renewal may miss a process that was started this short a time before."""


@dataclass(frozen=True, slots=True)
class FirstLease:
    """A lease that came with the command that started the process, until a renewal knows the process."""

    begun_s: float
    length_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLeases:
    """The leases of the last renewal, and first leases of processes it does not know yet. A process that is in neither
    has no lease, and runs until it is revoked."""

    asked_s: float = 0.0
    """When the renewal was requested. The frontend counts from later, never from earlier."""
    lengths_s: Mapping[ProcessKey, float] = field(default_factory=dict)
    first: Mapping[ProcessKey, FirstLease] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return bool(self.lengths_s or self.first)

    def lapsed(self, now_s: float) -> tuple[ProcessKey, ...]:
        renewed = (key for key, length_s in self.lengths_s.items() if now_s - self.asked_s >= length_s)
        first = (key for key, lease in self.first.items() if now_s - lease.begun_s >= lease.length_s)
        return (*renewed, *first)

    def begin(self, key: ProcessKey, *, begun_s: float, length_s: float) -> "ProcessLeases":
        """A process that the last renewal has needs no first lease."""
        if key in self.lengths_s:
            return self
        return replace(self, first={**self.first, key: FirstLease(begun_s, length_s)})

    def renew(self, lengths_s: Mapping[ProcessKey, float], *, asked_s: float) -> "ProcessLeases":
        """A first lease ends when a renewal has the process, or should have it and does not."""
        kept = {
            key: lease
            for key, lease in self.first.items()
            if key not in lengths_s and asked_s < lease.begun_s + min(RENEWALS_KNOW_AFTER_S, lease.length_s / 2)
        }
        return ProcessLeases(asked_s=asked_s, lengths_s=lengths_s, first=kept)

    def prolong(self, *, asked_s: float) -> "ProcessLeases":
        first = {key: replace(lease, begun_s=max(lease.begun_s, asked_s)) for key, lease in self.first.items()}
        return replace(self, asked_s=asked_s, first=first)

    def without(self, keys: tuple[ProcessKey, ...]) -> "ProcessLeases":
        return replace(
            self,
            lengths_s={key: length for key, length in self.lengths_s.items() if key not in keys},
            first={key: lease for key, lease in self.first.items() if key not in keys},
        )


def was_revoked(*, generation: int | None, up_to: int) -> bool:
    """A revocation of an older process with the same key must not end its successor."""
    return generation is None or generation <= up_to
