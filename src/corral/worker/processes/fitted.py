"""How a gRPC backend should load its model on this machine: slots, context, threads and the like, by name.

The frontend sends the call that loads the model, and is told with the reply to a start. A label of the process keeps
the values, so that the next worker still knows what the engine takes.
"""

from collections.abc import Mapping

import msgspec

from corral.core.nodes.engine_capacity import EngineCapacity, limit_of_slots
from corral.core.processes.process import ProcessSpec

LABEL = "fitted"
_decode = msgspec.json.Decoder(dict[str, int]).decode


def label_fitted(values: Mapping[str, int]) -> dict[str, str]:
    return {LABEL: msgspec.json.encode(values, order="sorted").decode()} if values else {}


def fitted_of(spec: ProcessSpec) -> dict[str, int]:
    """Empty for a backend that is not fitted."""
    return _decode(spec.labels.get(LABEL) or "{}")


def capacity_of_fitted(spec: ProcessSpec) -> EngineCapacity | None:
    """What the engine takes, if it was told how many slots to have."""
    values = fitted_of(spec)
    slots = values.get("slots")
    if not slots:
        return None
    return EngineCapacity(slots=slots, context=values.get("context") or None, limit=limit_of_slots(slots))
