"""Which nodes may hand a backend's blobs to another, so that a registry is asked once and not by every machine."""

from collections.abc import Iterable, Mapping, Sequence

from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.observed import ObservedBackend

PEERS_MOST = 3


def can_hand_out(node: Node) -> bool:
    """One of our own workers, and there."""
    return node.key_hash is not None and node.status is NodeStatus.HEALTHY and bool(node.http_address)


def find_holders(
    nodes: Iterable[Node], backends: Mapping[NodeId, Iterable[ObservedBackend]]
) -> Mapping[str, tuple[Node, ...]]:
    """By digest, those of our own healthy workers that have that version whole."""
    holders: dict[str, list[Node]] = {}
    for node in nodes:
        if not can_hand_out(node):
            continue
        whole = [backend for backend in backends.get(node.id, ()) if not backend.problem]
        for digest in {digest for backend in whole for digest in (backend.digest, *backend.versions) if digest}:
            holders.setdefault(digest, []).append(node)
    return {digest: tuple(found) for digest, found in holders.items()}


def pick_peers(holders: Sequence[Node], *, besides: str, draw: float) -> list[Node]:
    """A few neighbours in the list, from a drawn place on: a thousand installs do not all ask the same three."""
    others = [node for node in holders if node.id != besides]
    first = min(int(draw * len(others)), len(others) - 1)
    return [others[(first + step) % len(others)] for step in range(min(PEERS_MOST, len(others)))]
