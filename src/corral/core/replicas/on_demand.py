"""What to do for requests that find no replica to go to: wait for one that is there, or load."""

from collections.abc import Iterable
from dataclasses import dataclass

from corral.core.replicas.availability import Availability, ClusterSnapshot
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.scaling import Scheduling


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemandPlan:
    wait: str = ""
    """There is one that serves, or will in a moment, or no more may be loaded: why to wait. Empty: load."""
    replaces: str | None = None
    """The replica of an older revision whose place the load takes."""


def plan_on_demand(revision: str, rows: Iterable[Replica], wanted: Scheduling, around: ClusterSnapshot) -> OnDemandPlan:
    """Asking loads nothing beside a replica that is there, nor more than `max_replicas`."""
    kept = [row for row in rows if row.state is ReplicaState.READY or row.state in COMING]
    chosen = [row for row in kept if around.is_chosen(row, wanted.selector)]
    found = [around.judge(row) for row in chosen if row.state is ReplicaState.READY]
    for standing in (Availability.SERVES, Availability.RETURNING):
        why = next((stands.why for stands in found if stands.standing is standing), None)
        if why is not None:
            return OnDemandPlan(wait=why or "a replica is ready")
    current = [row for row in chosen if row.revision == revision]
    if wanted.max_replicas and len(current) >= wanted.max_replicas:
        judged = (around.judge(row) for row in current if row.state is ReplicaState.READY)
        why = next((stands.why for stands in judged), "they are being loaded")
        return OnDemandPlan(wait=f"no more than {wanted.max_replicas} may run, and {why}")
    old = [row.id for row in kept if row.revision != revision and row.state is ReplicaState.READY]
    return OnDemandPlan(replaces=min(old, default=None))


def plan_named(revision: str, rows: Iterable[Replica], wanted: Scheduling) -> str:
    """Why no more of it may be loaded wherever that is; empty when more may."""
    kept = [row for row in rows if row.state is ReplicaState.READY or row.state in COMING]
    current = sum(row.revision == revision for row in kept)
    if wanted.max_replicas and current >= wanted.max_replicas:
        return (
            f"{current} run or are being loaded, and max_replicas is {wanted.max_replicas}; raise it with"
            f" `corral models scale {wanted.model} --max {current + 1}`, or unload one elsewhere"
        )
    return ""
