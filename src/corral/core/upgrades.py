"""Which nodes lag behind what the galleries offer, and which have something else than they should."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.nodes import NodeId
from corral.core.orders import NodeState
from corral.core.variants import Unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The build the galleries offer to one node now."""

    variant: str
    digest: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lagging:
    node_id: NodeId
    node_name: str
    version: str
    digest: str
    available_version: str
    available_digest: str
    cause: str
    """`wrong_version` or `wrong_variant`."""
    rolled_back: bool = False
    """From the very version that is available: an upgrade of everything leaves it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    backend: str
    nodes: tuple[Lagging, ...]


def find_upgrades(
    states: Iterable[NodeState], offers: Mapping[tuple[str, NodeId], Offered | Unfit]
) -> dict[str, Upgrade]:
    """`offers` by backend and node; a backend nobody offers any more has no upgrade."""
    lagging: dict[str, list[Lagging]] = {}
    by_id = {state.node.id: state for state in states}
    for (backend, node_id), offered in offers.items():
        if node_id in by_id and not isinstance(offered, Unfit):
            one = _lagging(by_id[node_id], backend, offered)
            if one is not None:
                lagging.setdefault(backend, []).append(one)
    return {backend: Upgrade(backend=backend, nodes=tuple(nodes)) for backend, nodes in sorted(lagging.items())}


def _lagging(state: NodeState, backend: str, offered: Offered) -> Lagging | None:
    found = state.find(backend)
    if found is None:
        return None
    if offered.digest and found.digest:
        current = found.digest == offered.digest
    else:
        current = not offered.version or not found.version or found.version == offered.version
    cause = "wrong_version" if found.name == offered.variant else "wrong_variant"
    if current and cause == "wrong_version":
        return None
    if current and (found.alias == offered.variant or not found.digest):
        return None
    return Lagging(
        node_id=state.node.id,
        node_name=state.node.name,
        version=found.version,
        digest=found.digest,
        available_version=offered.version,
        available_digest=offered.digest,
        cause=cause,
        rolled_back=state.was_rolled_back_from(backend, offered.digest),
    )


def installed_names(states: Iterable[NodeState]) -> dict[str, list[NodeState]]:
    """Every backend that is on some node, under the name its orders have there."""
    found: dict[str, list[NodeState]] = {}
    for state in states:
        keys = {
            state.key_of(backend.name)
            for backend in state.backends or ()
            if not backend.is_system and not (backend.is_meta and backend.concrete)
        }
        for key in sorted(keys):
            found.setdefault(key, []).append(state)
    return found
