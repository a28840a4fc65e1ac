"""Upgrades: which nodes have another build or version than the galleries offer them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corral.core.backends.build import BuildRef, short_digest
from corral.core.backends.intents import BackendSpec
from corral.core.backends.planning import NodeBackends
from corral.core.backends.rollouts import HeldBack, find_held_back
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why it is unknown whether a newer version exists."""

    reason: str
    transient: bool = False
    """Whether a later lookup may find out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutdatedNode:
    node_id: NodeId
    node_name: str
    version: str
    digest: str
    available_version: str
    available_digest: str
    cause: str
    """`wrong_version` or `wrong_variant`."""
    pinned: str = ""
    """To which version the node is pinned, since when, by whom and why; upgrades skip it. Empty where it is not."""
    held_back: str = ""
    """Why the available version is not offered: in which rollout it failed, when and why. Empty where it is."""
    rolling_out: str = ""
    """The running rollout that has not reached the node with the available version; empty without one."""

    @property
    def is_skipped(self) -> bool:
        """Whether an upgrade of all backends leaves the node alone."""
        return bool(self.pinned or self.held_back or self.rolling_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    backend: str
    nodes: tuple[OutdatedNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    node_id: NodeId
    node_name: str
    reason: str


Offers = Mapping[tuple[str, NodeId], BuildRef | Unknown]
"""By backend and node: the build that the galleries offer."""


def find_upgrades(states: Iterable[NodeBackends], offers: Offers, held: Sequence[HeldBack] = ()) -> dict[str, Upgrade]:
    outdated: dict[str, list[OutdatedNode]] = {}
    for state, backend, offered in _pairs(states, offers):
        one = compare_offer(state, backend, offered, held)
        if isinstance(one, OutdatedNode):
            outdated.setdefault(backend, []).append(one)
    return {backend: Upgrade(backend=backend, nodes=tuple(nodes)) for backend, nodes in sorted(outdated.items())}


def find_unchecked(states: Iterable[NodeBackends], offers: Offers) -> dict[str, list[Unchecked]]:
    """By backend: nodes for which it is unknown whether a newer version exists, and why."""
    found: dict[str, list[Unchecked]] = {}
    for state, backend, offered in _pairs(states, offers):
        one = compare_offer(state, backend, offered)
        if isinstance(one, Unknown):
            unchecked = Unchecked(node_id=state.node.id, node_name=state.node.name, reason=one.reason)
            found.setdefault(backend, []).append(unchecked)
    return dict(sorted(found.items()))


def _pairs(states: Iterable[NodeBackends], offers: Offers) -> Iterator[tuple[NodeBackends, str, BuildRef | Unknown]]:
    by_id = {state.node.id: state for state in states}
    for (backend, node_id), offered in offers.items():
        if node_id in by_id:
            yield by_id[node_id], backend, offered


def compare_offer(
    state: NodeBackends, backend: str, offered: BuildRef | Unknown, held: Sequence[HeldBack] = ()
) -> OutdatedNode | Unknown | None:
    """None if the node has the offered build."""
    found = state.find(backend)
    if found is None or isinstance(offered, Unknown):
        return offered if found is not None and isinstance(offered, Unknown) else None
    differs = _differs(found, offered, reports_version=state.node.speaks_corral)
    other_build = found.name != offered.name
    if differs is not True:
        same_build = found.alias == offered.name or not found.digest
        if not other_build or same_build:
            return differs or None
    spec = BackendSpec(reference=backend, build=offered)
    held_back = find_held_back(state.node, {offered.name: spec}, held)
    return OutdatedNode(
        node_id=state.node.id,
        node_name=state.node.name,
        version=found.version,
        digest=found.digest,
        available_version=offered.version,
        available_digest=offered.digest,
        cause="wrong_variant" if other_build else "wrong_version",
        pinned=desired.reason if (desired := state.desired_version(backend)).pin is not None else "",
        held_back=held_back.describe() if held_back is not None and held_back.failed else "",
        rolling_out=held_back.describe() if held_back is not None and not held_back.failed else "",
    )


def _differs(found: ObservedBackend, offered: BuildRef, *, reports_version: bool) -> bool | Unknown:
    """By digest if both are known, otherwise by version and source of the gallery's entry.

    `reports_version`: if the node of such a worker reports no version, it was given none."""
    if offered.digest and found.digest:
        return offered.digest != found.digest
    if found.version and offered.version and (found.version != offered.version or not reports_version):
        return found.version != offered.version
    if not reports_version:
        return Unknown("the node reports neither a version nor a digest to compare")
    moved = bool(found.uri and offered.uris) and found.uri not in offered.uris
    if moved or bool(found.version) != bool(offered.version):
        return True
    if found.version or _names_version(found.uri):
        return False
    return Unknown(f"neither its gallery nor {found.uri or 'its source'} specifies a version or a digest")


def _names_version(uri: str) -> bool:
    """Whether the source is immutable: a PyPI package never changes once it is published."""
    return uri.startswith("pypi://") and "==" in uri


def describe_pinned(nodes: Iterable[OutdatedNode]) -> str:
    """`pinned to 1.2 since ... by admin; 1.3 available`, once for nodes that share it."""
    texts = {
        f"{node.pinned}; {node.available_version or short_digest(node.available_digest)} available"
        for node in nodes
        if node.pinned
    }
    return "; ".join(sorted(texts))


def describe_held_back(nodes: Iterable[OutdatedNode]) -> str:
    """Which version failed or is being rolled out, since when and why, once for nodes that share it."""
    return "; ".join(sorted({text for node in nodes for text in (node.held_back, node.rolling_out) if text}))


def installed_names(states: Iterable[NodeBackends]) -> dict[str, list[NodeBackends]]:
    """By the name of their intents: every installed backend, with the nodes that have it."""
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
