"""Peak memory of models, from node reports. A peak is stored only when it grew."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.nodes.node import Node
from corral.core.replicas.capacity import CPU, device_class
from corral.core.replicas.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True, order=True)
class FootprintKey:
    """Footprints are compared only for the same build on the same class of hardware."""

    model: str
    revision: str
    digest: str
    device: str


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one ready process, as its node last reported it; None is unknown."""

    ram_bytes: int | None = None
    vram_bytes: int | None = None


ReportedMemory = Mapping[tuple[str, str], ProcessMemory]
"""By node and process key."""


def plan_peaks(
    replicas: Iterable[Replica],
    nodes: Mapping[str, Node],
    reported: ReportedMemory,
    *,
    stored: Mapping[FootprintKey, int],
) -> dict[FootprintKey, int]:
    """The largest footprint for each key, where it is larger than the stored one."""
    peaks: dict[FootprintKey, int] = {}
    for replica in replicas:
        use = reported.get((replica.node_id, replica.process_key))
        node = nodes.get(replica.node_id)
        if use is None or node is None or replica.state is not ReplicaState.READY:
            continue
        device = device_class(node)
        peak = use.ram_bytes if device == CPU else use.vram_bytes
        key = FootprintKey(replica.model, replica.revision, replica.backend_digest, device)
        if peak and peak > max(peaks.get(key, 0), stored.get(key, 0)):
            peaks[key] = peak
    return peaks
