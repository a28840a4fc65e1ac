"""How much memory models were seen to take: gathered from reports, and written down only where it grew."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.nodes.node import Node
from corral.core.replicas.capacity import CPU, device_class
from corral.core.replicas.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True, order=True)
class FootprintKey:
    """Footprints are compared within one build on one kind of hardware."""

    model: str
    revision: str
    digest: str
    device: str


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Of one process that is ready, as its node last told; None is unknown."""

    ram_bytes: int | None = None
    vram_bytes: int | None = None


Told = Mapping[tuple[str, str], ProcessMemory]
"""By node and process key."""


def plan_peaks(
    replicas: Iterable[Replica], nodes: Mapping[str, Node], told: Told, *, written: Mapping[FootprintKey, int]
) -> dict[FootprintKey, int]:
    """The largest of each kind, of those that are larger than what was written last."""
    peaks: dict[FootprintKey, int] = {}
    for replica in replicas:
        use = told.get((replica.node_id, replica.process_key))
        node = nodes.get(replica.node_id)
        if use is None or node is None or replica.state is not ReplicaState.READY:
            continue
        device = device_class(node)
        peak = use.ram_bytes if device == CPU else use.vram_bytes
        key = FootprintKey(replica.model, replica.revision, replica.backend_digest, device)
        if peak and peak > max(peaks.get(key, 0), written.get(key, 0)):
            peaks[key] = peak
    return peaks
