"""Which nodes an operation is for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.core.errors import InvalidInput, NotFound
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node, NodeId, NodeStatus, NodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Every node, those a selector fits, or those named. Only one of these."""

    selector: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    """Ids."""

    @property
    def is_lasting(self) -> bool:
        """It also means machines that come later."""
        return not self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    node_id: NodeId
    node_name: str
    reason: str


def takes_backends(node: Node) -> bool:
    """Machines that wait for approval and agents get no commands about backends."""
    return node.approved and node.node_type is NodeType.BACKEND


def pick_serving(nodes: Iterable[Node], selector: Mapping[str, str]) -> list[Node]:
    """Where a model with such a selector may run now."""
    return [
        node for node in nodes if takes_backends(node) and node.status is NodeStatus.HEALTHY and matches(node, selector)
    ]


def why_nowhere(selector: Mapping[str, str]) -> str:
    """Where `pick_serving` finds nobody."""
    labels = ", ".join(f"{key}={value}" for key, value in selector.items())
    return f"no healthy machine has the labels {labels}" if labels else "no machine is healthy"


def pick_nodes(nodes: Sequence[Node], target: Target) -> list[Node]:
    """Raises for a name nobody has, and for a node that may not be asked; a selector that fits none is no error."""
    if not target.nodes:
        return [node for node in nodes if takes_backends(node) and matches(node, target.selector)]
    found = []
    for wanted in dict.fromkeys(target.nodes):
        node = find_node(nodes, wanted)
        if node.node_type is not NodeType.BACKEND:
            raise InvalidInput(f"node {node.name} is of the type {node.node_type}, which runs no backends")
        if not node.approved:
            raise InvalidInput(
                f"node {node.name} waits for approval; approve it first: `corral nodes approve {node.name}`"
            )
        found.append(node)
    return found


def find_node(nodes: Iterable[Node], id_or_name: str) -> Node:
    by_name = alike = None
    for node in nodes:
        if node.id == id_or_name:
            return node
        if node.name == id_or_name:
            by_name = node
        elif node.name.lower() == id_or_name.lower():
            alike = node
    by_name = by_name or alike
    if by_name is None:
        raise NotFound(f"there is no node {id_or_name!r}; `corral nodes list` shows the ones there are")
    return by_name
