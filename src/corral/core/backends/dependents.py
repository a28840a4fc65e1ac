"""Models that depend on a backend, and how many of their replicas stop when it is deleted."""

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
    """How many stop when the backend is deleted."""


def find_dependents(
    states: Sequence[NodeBackends], backend: str, models: Mapping[str, str], replicas: Iterable[Replica]
) -> list[Dependent]:
    """Models that use the backend on these nodes. `models`: the backend that each model names."""
    names = {str(state.node.id): _names(state, backend) for state in states}
    everywhere = {backend}.union(*names.values())
    stop = dict.fromkeys((model for model, needed in sorted(models.items()) if needed in everywhere), 0)
    for replica in replicas:
        here = names.get(replica.node_id, frozenset())
        if replica.state in RUNS and (replica.backend in here or models.get(replica.model) in here):
            stop[replica.model] = stop.get(replica.model, 0) + 1
    return [Dependent(model=model, replicas=count) for model, count in stop.items()]


def describe_dependents(dependents: Sequence[Dependent]) -> str:
    return "; ".join(f"{one.model} uses it: {_describe_stops(one.replicas)}" for one in dependents)


def _describe_stops(count: int) -> str:
    if not count:
        return "none of its replicas runs there"
    return "1 replica stops" if count == 1 else f"{count} replicas stop"


def _names(state: NodeBackends, backend: str) -> frozenset[str]:
    found = state.find(backend)
    installed = names_of_installed(state.backends or (), found) if found is not None else set()
    return frozenset({backend, state.key_of(backend), *installed})
