"""Replicas, loads and decisions as the API shows them: LocalAI's fields, and Corral's beside them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from corral.core.nodes.node import Node
from corral.core.nodes.targets import pick_serving
from corral.core.replicas.availability import Availability
from corral.core.replicas.load_jobs import LoadState, loading_object
from corral.core.replicas.replica import ReplicaState
from corral.core.replicas.scaling import Scheduling
from corral.store.serving.decisions import RecordedDecision
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.replicas import StandingReplica

# LocalAI's words for what a replica is doing.
_STATES = {
    "starting": "staging",
    "loading": "loading",
    "ready": "loaded",
    "away": "loaded",
    "draining": "unloading",
    "stopping": "unloading",
    "failed": "unloading",
}
# A row says what is wanted of a process; where it stands says whether the process is there.
_STANDINGS = {
    Availability.SERVES: "ready",
    Availability.RETURNING: "loading",
    Availability.AWAY: "away",
    Availability.LOST: "failed",
}


class InFlight(Protocol):
    def total(self, replica: Any) -> int: ...


def show_time(ms: int | None) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z") if ms else None


def state_of(replica: StandingReplica) -> str:
    """What it is doing now; `ready` only if requests can go there."""
    return _STANDINGS[replica.stands.standing] if replica.stands is not None else replica.row.state.value


def reason_of(replica: StandingReplica) -> str:
    return replica.row.reason or (replica.stands.why if replica.stands is not None else "")


def node_model(found: StandingReplica, in_flight: int) -> dict[str, Any]:
    """LocalAI's NodeModel, with Corral's own fields beside it."""
    replica, state = found.row, state_of(found)
    shown: dict[str, Any] = {
        "id": replica.id,
        "node_id": replica.node_id,
        "model_name": replica.model,
        "replica_index": replica.slot,
        "address": replica.address,
        "state": _STATES[state],
        "in_flight": in_flight,
        "last_used": show_time(replica.last_used),
        "created_at": show_time(replica.created_at),
        "updated_at": show_time(replica.changed_at),
        "corral_state": state,
    }
    optional = {
        "backend_type": replica.backend,
        "config_revision": replica.revision,
        "reason": reason_of(found),
        "backend_digest": replica.backend_digest,
        "protocol": replica.protocol,
        "cleanup_error": replica.stop_error,
        "cleanup_attempts": replica.stop_attempts,
        "cleanup_next_retry_at": show_time(replica.stop_due_at) if replica.stop_attempts else None,
        "memory_bytes": replica.memory_bytes,
        "capacity": replica.capacity,
        "ready_at": show_time(replica.ready_at),
    }
    return shown | {name: value for name, value in optional.items() if value}


def show_replicas(found: Iterable[StandingReplica], in_flight: InFlight) -> list[dict[str, Any]]:
    return [node_model(replica, in_flight.total(replica.row.id)) for replica in found]


def summarise(
    found: Sequence[StandingReplica], jobs: Sequence[LoadJob], wanted: Scheduling | None, nodes: Mapping[str, Node]
) -> dict[str, Any]:
    """Of one model."""
    states = [state_of(replica) for replica in found]
    shown: dict[str, Any] = {
        "ready": states.count(ReplicaState.READY.value),
        "replicas": [
            {
                "node": node.name if (node := nodes.get(replica.row.node_id)) else replica.row.node_id,
                "slot": replica.row.slot,
                "state": state,
                "reason": reason_of(replica),
            }
            for replica, state in zip(found, states, strict=True)
        ],
        "loads": [_show_load(job) for job in jobs],
    }
    if wanted is not None:
        limits = {"min_replicas": wanted.min_replicas, "max_replicas": wanted.max_replicas}
        shown["wanted"] = limits | {"spread_all": wanted.spread_all}
        if wanted.spread_all:
            shown["wanted"]["nodes"] = len(pick_serving(nodes.values(), wanted.selector))
    return shown


def _show_load(job: LoadJob) -> dict[str, Any]:
    shown = loading_object(job.progress())
    is_quiet = not job.active or (job.state is LoadState.PENDING and bool(job.reason) and not job.owner)
    return {**shown, "next_attempt_at": show_time(job.due_at)} if is_quiet else shown


def show_decision(decision: RecordedDecision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "model": decision.model,
        "at": show_time(decision.at),
        "cause": decision.cause,
        "outcome": decision.outcome,
        **decision.candidates,
    }


def verdict_on(node_id: str, candidates: Mapping[str, Any]) -> dict[str, Any]:
    for candidate in candidates["candidates"]:
        if candidate["node_id"] == node_id:
            return {key: candidate[key] for key in ("verdict", "reason", "score")}
    left_out = candidates["nodes"] - len(candidates["candidates"])
    if left_out:
        reason = f"of {candidates['nodes']} machines only the best are kept one by one, and it was not among them"
        return {"verdict": "not kept", "reason": reason, "score": None}
    return {"verdict": "not considered", "reason": "it was not there", "score": None}
