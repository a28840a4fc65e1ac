"""Which nodes can serve a backend's blobs to another, so that not every node asks the registry."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.core.backends.site_downloads import site_of
from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.observed import ObservedBackend

PEERS_MOST = 3


def can_serve_blobs(node: Node) -> bool:
    """Whether it is a healthy Corral worker with a file server."""
    return node.speaks_corral and node.status is NodeStatus.HEALTHY and bool(node.http_address)


def find_holders(
    nodes: Iterable[Node], backends: Mapping[NodeId, Iterable[ObservedBackend]]
) -> Mapping[str, tuple[Node, ...]]:
    """By digest: the healthy Corral workers that have that version complete."""
    holders: dict[str, list[Node]] = {}
    for node in nodes:
        if not can_serve_blobs(node):
            continue
        whole = [backend for backend in backends.get(node.id, ()) if not backend.problem]
        for digest in {digest for backend in whole for digest in (backend.digest, *backend.versions) if digest}:
            holders.setdefault(digest, []).append(node)
    return {digest: tuple(found) for digest, found in holders.items()}


def site_of_node(node: Node) -> str:
    return site_of({**node.worker_labels, **node.operator_labels})


@dataclass(frozen=True, slots=True)
class PickedPeers:
    near: tuple[Node, ...]
    """Nodes of the same site, asked before the source."""
    far: tuple[Node, ...]
    """Nodes of other sites, asked only if the source is unavailable: the way to them may be slow or cost money."""


def pick_peers(holders: Sequence[Node], *, excluding: str, site: str, draw: float) -> PickedPeers:
    others = [node for node in holders if node.id != excluding]
    near = [node for node in others if site_of_node(node) == site]
    return PickedPeers(_some(near, draw), _some([node for node in others if site_of_node(node) != site], draw))


def _some(nodes: Sequence[Node], draw: float) -> tuple[Node, ...]:
    """A few neighbours in the list, from a random position: a thousand installs do not all ask the same three nodes."""
    first = min(int(draw * len(nodes)), len(nodes) - 1)
    return tuple(nodes[(first + step) % len(nodes)] for step in range(min(PEERS_MOST, len(nodes))))
