"""Which models a backend is for, and what its deletion ends."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.core.backends.deletions import names_of_installed
from corral.core.backends.planning import NodeBackends
from corral.core.replicas.replica import COMING, Replica, ReplicaState

RUNS = (ReplicaState.READY, ReplicaState.DRAINING, *COMING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependent:
    model: str
    replicas: int
    """That stop when it is deleted."""


def find_dependents(
    states: Sequence[NodeBackends], backend: str, models: Mapping[str, str], replicas: Iterable[Replica]
) -> list[Dependent]:
    """On these nodes. `models`: the backend that each names."""
    names = {str(state.node.id): _names(state, backend) for state in states}
    everywhere = {backend}.union(*names.values())
    stop = dict.fromkeys((model for model, wanted in sorted(models.items()) if wanted in everywhere), 0)
    for replica in replicas:
        here = names.get(replica.node_id, frozenset())
        if replica.state in RUNS and (replica.backend in here or models.get(replica.model) in here):
            stop[replica.model] = stop.get(replica.model, 0) + 1
    return [Dependent(model=model, replicas=count) for model, count in stop.items()]


def describe_dependents(uses: Sequence[Dependent]) -> str:
    return "; ".join(f"{use.model} uses it: {_describe_stops(use.replicas)}" for use in uses)


def _describe_stops(count: int) -> str:
    if not count:
        return "none of its replicas runs there"
    return "1 replica stops" if count == 1 else f"{count} replicas stop"


def _names(state: NodeBackends, backend: str) -> frozenset[str]:
    found = state.find(backend)
    installed = names_of_installed(state.backends or (), found) if found is not None else set()
    return frozenset({backend, state.key_of(backend), *installed})
