"""Which nodes lag behind what the galleries offer, and which have something else than they should."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from corral.core.backends.intents import version_mark
from corral.core.backends.planning import NodeBackends
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The build the galleries offer to one node now."""

    variant: str
    digest: str
    version: str
    uris: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        return self.digest or version_mark(self.version, self.uris[0] if self.uris else "")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell whether there is something newer."""

    reason: str
    passing: bool = False
    """It may be known when asked again."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    node_id: NodeId
    node_name: str
    reason: str


Offers = Mapping[tuple[str, NodeId], Offered | Unknown]
"""By backend and node."""


def find_upgrades(states: Iterable[NodeBackends], offers: Offers) -> dict[str, Upgrade]:
    lagging: dict[str, list[Lagging]] = {}
    for state, backend, offered in _pairs(states, offers):
        one = _compare(state, backend, offered)
        if isinstance(one, Lagging):
            lagging.setdefault(backend, []).append(one)
    return {backend: Upgrade(backend=backend, nodes=tuple(nodes)) for backend, nodes in sorted(lagging.items())}


def find_unchecked(states: Iterable[NodeBackends], offers: Offers) -> dict[str, list[Unchecked]]:
    """By backend: nodes of which nobody can tell whether there is something newer, and why."""
    found: dict[str, list[Unchecked]] = {}
    for state, backend, offered in _pairs(states, offers):
        one = _compare(state, backend, offered)
        if isinstance(one, Unknown):
            unchecked = Unchecked(node_id=state.node.id, node_name=state.node.name, reason=one.reason)
            found.setdefault(backend, []).append(unchecked)
    return dict(sorted(found.items()))


def _pairs(states: Iterable[NodeBackends], offers: Offers) -> Iterator[tuple[NodeBackends, str, Offered | Unknown]]:
    by_id = {state.node.id: state for state in states}
    for (backend, node_id), offered in offers.items():
        if node_id in by_id:
            yield by_id[node_id], backend, offered


def _compare(state: NodeBackends, backend: str, offered: Offered | Unknown) -> Lagging | Unknown | None:
    """None where the node has what is offered."""
    found = state.find(backend)
    if found is None or isinstance(offered, Unknown):
        return offered if found is not None and isinstance(offered, Unknown) else None
    differs = _differs(found, offered, tells_version=state.node.key_hash is not None)
    other_build = found.name != offered.variant
    if differs is not True:
        known_by_it = found.alias == offered.variant or not found.digest
        if not other_build or known_by_it:
            return differs or None
    return Lagging(
        node_id=state.node.id,
        node_name=state.node.name,
        version=found.version,
        digest=found.digest,
        available_version=offered.version,
        available_digest=offered.digest,
        cause="wrong_variant" if other_build else "wrong_version",
        rolled_back=state.was_rolled_back_from(backend, offered.mark),
    )


def _differs(found: ObservedBackend, offered: Offered, *, tells_version: bool) -> bool | Unknown:
    """By digest where both have one; else by what the gallery's entry says: its version and its address.

    `tells_version`: a node that tells no version was given none."""
    if offered.digest and found.digest:
        return offered.digest != found.digest
    if found.version and offered.version and (found.version != offered.version or not tells_version):
        return found.version != offered.version
    if not tells_version:
        return Unknown("the node tells neither a version nor a digest that could be compared")
    moved = bool(found.uri and offered.uris) and found.uri not in offered.uris
    if moved or bool(found.version) != bool(offered.version):
        return True
    if found.version or _says_version(found.uri):
        return False
    return Unknown(f"neither its gallery nor {found.uri or 'its source'} tells a version or a digest")


def _says_version(uri: str) -> bool:
    """A package of PyPI never changes once it is published."""
    return uri.startswith("pypi://") and "==" in uri


def installed_names(states: Iterable[NodeBackends]) -> dict[str, list[NodeBackends]]:
    """Every backend that is on some node, under the name its orders have there."""
    found: dict[str, list[NodeBackends]] = {}
    for state in states:
        keys = {
            state.key_of(backend.name)
            for backend in state.backends or ()
            if not backend.is_system and not (backend.is_meta and backend.concrete)
        }
        for key in sorted(keys):
            found.setdefault(key, []).append(state)
    return found
