"""Peak memory of models, from node reports. A peak is stored only when it grew, with the slots that its engine had."""

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
    slots: int | None = None
    """Of its engine."""


@dataclass(frozen=True, slots=True)
class Peak:
    memory_bytes: int
    slots: int | None = None
    """Of the engine that took it; None if it did not say."""


ReportedMemory = Mapping[tuple[str, str], ProcessMemory]
"""By node and process key."""


def plan_peaks(
    replicas: Iterable[Replica],
    nodes: Mapping[str, Node],
    reported: ReportedMemory,
    *,
    stored: Mapping[FootprintKey, Peak],
) -> dict[FootprintKey, Peak]:
    """The largest footprint for each key, where it is larger than the stored one."""
    peaks: dict[FootprintKey, Peak] = {}
    for replica in replicas:
        use = reported.get((replica.node_id, replica.process_key))
        node = nodes.get(replica.node_id)
        if use is None or node is None or replica.state is not ReplicaState.READY:
            continue
        device = device_class(node)
        peak = use.ram_bytes if device == CPU else use.vram_bytes
        key = FootprintKey(replica.model, replica.revision, replica.backend_digest, device)
        known = peaks.get(key) or stored.get(key)
        if peak and (known is None or peak > known.memory_bytes):
            peaks[key] = Peak(peak, use.slots)
    return peaks
