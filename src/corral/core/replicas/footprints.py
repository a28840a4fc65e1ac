"""Peak memory of models, from node reports. A peak is stored only when it grew, with the slots that its engine had."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.models.load_plan import Elastic
from corral.core.nodes.node import Node
from corral.core.nodes.node_class import node_class
from corral.core.replicas.capacity import CPU, device_class
from corral.core.replicas.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True, order=True)
class FootprintKey:
    """Footprints of two builds are compared only on the same class of machines, with the same memory to use."""

    model: str
    revision: str
    digest: str
    node_class: str
    fitted_bytes: int
    """See `round_fitted`."""
    device: str
    """The kind of device, for placement."""


def round_fitted(reserved_bytes: int | None, elastic: Elastic) -> int:
    """The memory that an engine was fitted to: slots and context, and with them what it uses, depend on it. To about an
    eighth, because machines never have exactly the same memory to spare. 0 for an engine that is not fitted."""
    if elastic is Elastic.NOTHING or not reserved_bytes:
        return 0
    step = 1 << max(0, reserved_bytes.bit_length() - 4)
    return round(reserved_bytes / step) * step


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
    elastic: Mapping[tuple[str, str], Elastic],
) -> dict[FootprintKey, Peak]:
    """The largest footprint for each key, where it is larger than the stored one. `elastic`: by model and revision, of
    all that may serve now."""
    peaks: dict[FootprintKey, Peak] = {}
    for replica in replicas:
        use = reported.get((replica.node_id, replica.process_key))
        node = nodes.get(replica.node_id)
        kind = elastic.get((replica.model, replica.revision))
        if use is None or node is None or kind is None or replica.state is not ReplicaState.READY:
            continue
        device = device_class(node)
        peak = use.ram_bytes if device == CPU else use.vram_bytes
        key = FootprintKey(
            model=replica.model,
            revision=replica.revision,
            digest=replica.backend_digest,
            node_class=node_class(node),
            fitted_bytes=round_fitted(replica.memory_bytes, kind),
            device=device,
        )
        known = peaks.get(key) or stored.get(key)
        if peak and (known is None or peak > known.memory_bytes):
            peaks[key] = Peak(peak, use.slots)
    return peaks
