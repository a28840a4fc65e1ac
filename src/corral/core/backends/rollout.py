"""How an upgrade proceeds: over the fleet in waves, and on one node replica by replica. Plans are values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedProcess
from corral.core.replicas.replica import COMING, Replica, ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """Nodes of a later wave wait for all earlier ones. For now there is one: every node at once."""

    waves: tuple[tuple[NodeId, ...], ...]

    def wave_of(self, node_id: NodeId) -> int:
        return next(number for number, wave in enumerate(self.waves) if node_id in wave)


def plan_upgrade(nodes: Sequence[NodeId]) -> UpgradePlan:
    return UpgradePlan(waves=(tuple(nodes),))


STOP_FIRST_DRAIN_MS = 30_000
"""A replica that is stopped before its successor starts may finish what it answers for this long: whoever comes
meanwhile has to wait."""
STOP_FIRST_REASON = "stopping the old version first: not enough memory for both"

OTHERS_FIRST_REASON = "not enough memory for both versions; other replicas are replaced first"


def stop_first_at_once(serving: int, *, kept: int) -> int:
    """How many of a model's replicas may be stopped before their successors serve: a quarter, as long as the minimum
    serves, and one in any case."""
    return max(1, min(serving // 4, serving - kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedFirst:
    """A replica that was stopped before its successor served."""

    replica_id: str
    node_id: str
    model: str
    revision: str
    backend: str
    """By the name under which its node has it."""
    digest: str
    """Of the version it served from."""
    stopped_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedModel:
    """The model of such a replica, over the whole fleet."""

    replicas: tuple[Replica, ...]
    loads: int
    wanted: int
    """At least; 0 also where the model was deleted."""


def is_served_again(stopped: StoppedFirst, model: StoppedModel, *, digest: str) -> bool:
    """Whether this version serves in its place, or as many as are wanted serve elsewhere and no more are to come."""
    ready = [row for row in model.replicas if row.state is ReplicaState.READY]
    if any(row.node_id == stopped.node_id and row.backend_digest == digest for row in ready):
        return True
    if model.loads or any(row.state in COMING for row in model.replicas):
        return False
    return len(ready) >= model.wanted


class SwitchStep(StrEnum):
    START_NEW = "start_new"
    """Beside the old one, and wait until it is ready and has shown whose it is."""
    SWITCH_ROUTE = "switch_route"
    DRAIN_OLD = "drain_old"
    STOP_OLD = "stop_old"


SWITCH_STEPS = (SwitchStep.START_NEW, SwitchStep.SWITCH_ROUTE, SwitchStep.DRAIN_OLD, SwitchStep.STOP_OLD)
"""In this order, so that the model answers at every moment. A step that fails leaves the old one serving."""

_SERVING = frozenset({"starting", "ready", "backing_off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    process: ObservedProcess
    digest: str
    """Of the version to start in its place."""
    steps: tuple[SwitchStep, ...] = SWITCH_STEPS


def plan_replicas(processes: Iterable[ObservedProcess], *, backend: str, digest: str) -> tuple[ReplicaChange, ...]:
    """What serves from another version of this backend, one after another: memory is scarce."""
    return tuple(
        ReplicaChange(process=process, digest=digest)
        for process in processes
        if process.backend == backend and process.digest and process.digest != digest and process.state in _SERVING
    )
