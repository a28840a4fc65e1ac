"""Replicas, loads and verdicts as the API shows them."""

import pytest

from corral.core.replicas.availability import Availability, AvailabilityVerdict
from corral.core.replicas.load_jobs import LoadProgress, LoadState, loading_object
from corral.core.replicas.replica import Replica, ReplicaState
from corral.frontend.api.replicas.view import (
    CandidateView,
    DecisionView,
    LocalAiReplicaState,
    NodeVerdict,
    ReplicaViewState,
    state_of,
    verdict_on,
    view_load,
    view_replica,
)
from corral.frontend.api.times import time_of
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.http.json_response import omit_defaults
from corral.store.serving.replicas import ReplicaStatus

ROW = Replica(id="r", node_id="n", model="tiny", slot=0, revision="", state=ReplicaState.READY, created_at=1)


@pytest.mark.parametrize(
    ("row", "availability", "state", "localai"),
    [
        (ReplicaState.STARTING, None, "starting", "staging"),
        (ReplicaState.LOADING, None, "loading", "loading"),
        (ReplicaState.DRAINING, None, "draining", "unloading"),
        (ReplicaState.STOPPING, None, "stopping", "unloading"),
        (ReplicaState.FAILED, None, "failed", "unloading"),
        (ReplicaState.READY, Availability.SERVES, "ready", "loaded"),
        (ReplicaState.READY, Availability.RETURNING, "loading", "loading"),
        (ReplicaState.READY, Availability.OFFLINE, "offline", "loaded"),
        (ReplicaState.READY, Availability.LOST, "failed", "unloading"),
    ],
)
async def test_the_state_of_a_replica_follows_its_row_and_its_availability(
    row: ReplicaState, availability: Availability | None, state: str, localai: str
) -> None:
    replica = Replica(id="r", node_id="n", model="tiny", slot=0, revision="", state=row)
    found = ReplicaStatus(replica, AvailabilityVerdict(availability) if availability is not None else None)
    assert state_of(found) is ReplicaViewState(state)
    assert view_replica(found, InFlight("f", run="1")).state is LocalAiReplicaState(localai)


async def test_a_replica_shows_only_what_is_known_of_it() -> None:
    in_flight = InFlight("f", run="1")
    shown = omit_defaults(view_replica(ReplicaStatus(ROW, None), in_flight))
    assert isinstance(shown, dict)
    assert shown["last_used"] is None
    assert shown["created_at"] == time_of(1)
    assert {"reason", "memory_bytes", "ready_at", "node"}.isdisjoint(shown)


@pytest.mark.parametrize(
    "progress",
    [
        LoadProgress(model="tiny", state=LoadState.PENDING),
        LoadProgress(
            model="tiny", state=LoadState.STAGING, node="a", bytes_sent=1, total_bytes=3, file_index=1, total_files=2,
            eta_s=1.6, reason="waits", error="none",
        ),
    ],
)  # fmt: skip
def test_a_load_has_the_fields_of_the_gateways_loading_object(progress: LoadProgress) -> None:
    assert omit_defaults(view_load(progress)) == loading_object(progress)


def decision(*, nodes: int) -> DecisionView:
    candidate = CandidateView(node_id="a", node="a", verdict="chosen", reason="", score={"replicas": 0})
    return DecisionView(
        id=1, model="tiny", at=time_of(1), cause="a request", outcome={}, nodes=nodes, candidates=[candidate], others=[]
    )


def test_the_verdict_on_a_node_is_that_of_the_decision() -> None:
    assert verdict_on("a", decision(nodes=1)) == NodeVerdict(verdict="chosen", reason="", score={"replicas": 0})


@pytest.mark.parametrize(("nodes", "verdict"), [(1, "not considered"), (500, "not recorded")])
def test_a_node_without_a_verdict_was_absent_or_is_not_listed(nodes: int, verdict: str) -> None:
    assert verdict_on("b", decision(nodes=nodes)).verdict == verdict
