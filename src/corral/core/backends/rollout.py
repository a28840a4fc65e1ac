"""The rollout of a new version on one node: each replica's successor starts, takes over, and the old one is drained."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from corral.core.nodes.observed import RUNNING_STATUSES, ObservedProcess
from corral.core.replicas.replica import COMING, Replica, ReplicaState

STOP_FIRST_DRAIN_MS = 30_000
"""How long a replica that is stopped before its successor starts may finish its requests. New requests wait."""
STOP_FIRST_REASON = "stopping the old version first: not enough memory for both"
OTHERS_FIRST_REASON = "not enough memory for both versions; other replicas are replaced first"


def stop_first_at_once(serving: int, *, kept: int) -> int:
    """How many of a model's replicas may be stopped before their successors serve: at most a quarter, not below the
    minimum, and at least one."""
    return max(1, min(serving // 4, serving - kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedFirst:
    """A replica that was stopped before its successor served."""

    replica_id: str
    node_id: str
    model: str
    revision: str
    backend: str
    """The name under which it is installed on the node."""
    digest: str
    """Of the version it ran."""
    stopped_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedModel:
    """The model of a replica that was stopped first, over the whole fleet."""

    replicas: tuple[Replica, ...]
    loads: int
    desired: int
    """The minimum of replicas; 0 if the model was deleted."""


def is_served_again(stopped: StoppedFirst, model: StoppedModel, *, digest: str) -> bool:
    """Whether this version serves in its place, or the desired number serve elsewhere and no more are starting."""
    ready = [row for row in model.replicas if row.state is ReplicaState.READY]
    if any(row.node_id == stopped.node_id and row.backend_digest == digest for row in ready):
        return True
    if model.loads or any(row.state in COMING for row in model.replicas):
        return False
    return len(ready) >= model.desired


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    process: ObservedProcess
    digest: str
    """Of the version to start in its place."""


def plan_replicas(
    processes: Iterable[ObservedProcess], *, backend: str, digest: str, models: Collection[str] = ()
) -> tuple[ReplicaChange, ...]:
    """Processes that run another version of this backend. They are replaced one after another, as memory is scarce.
    `models`: those whose backend is a family with this build; their processes may still run its former build."""
    return tuple(
        ReplicaChange(process=process, digest=digest)
        for process in processes
        if (process.backend == backend or process.model in models)
        and process.digest
        and process.digest != digest
        and process.state in RUNNING_STATUSES
    )
