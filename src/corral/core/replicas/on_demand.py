"""What to do for a request without a replica: wait for an existing replica, or load one."""

from collections.abc import Iterable
from dataclasses import dataclass

from corral.core.replicas.availability import Availability, ClusterSnapshot
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.scaling import Scheduling


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemandPlan:
    wait: str = ""
    """Why to wait: a replica serves or will soon, or no more may be loaded. Empty: load."""
    replaces: str | None = None
    """The replica of an older revision that the load replaces."""


def plan_on_demand(
    revision: str, rows: Iterable[Replica], scheduling: Scheduling, snapshot: ClusterSnapshot
) -> OnDemandPlan:
    """A request never loads a second replica, nor more than `max_replicas`."""
    kept = [row for row in rows if row.state is ReplicaState.READY or row.state in COMING]
    selected = [row for row in kept if snapshot.is_selected(row, scheduling.selector)]
    verdicts = [snapshot.judge(row) for row in selected if row.state is ReplicaState.READY]
    for availability in (Availability.SERVES, Availability.RETURNING):
        why = next((one.why for one in verdicts if one.availability is availability), None)
        if why is not None:
            return OnDemandPlan(wait=why or "a replica is ready")
    current = [row for row in selected if row.revision == revision]
    if scheduling.max_replicas and len(current) >= scheduling.max_replicas:
        judged = (snapshot.judge(row) for row in current if row.state is ReplicaState.READY)
        why = next((one.why for one in judged), "replicas are loading")
        return OnDemandPlan(wait=f"max_replicas is {scheduling.max_replicas}, and {why}")
    old = [row.id for row in kept if row.revision != revision and row.state is ReplicaState.READY]
    return OnDemandPlan(replaces=min(old, default=None))


def check_limit(revision: str, rows: Iterable[Replica], scheduling: Scheduling) -> str:
    """Why no more replicas may be loaded on any node; empty when more may."""
    kept = [row for row in rows if row.state is ReplicaState.READY or row.state in COMING]
    current = sum(row.revision == revision for row in kept)
    if scheduling.max_replicas and current >= scheduling.max_replicas:
        return (
            f"max_replicas is {scheduling.max_replicas}, and it is reached ({current} running or loading); raise it"
            f" with `corral models scale {scheduling.model} --max {current + 1}`, or unload a replica elsewhere"
        )
    return ""
