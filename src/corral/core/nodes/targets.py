"""The nodes that an operation or a model may use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.core.errors import InvalidInput, NotFound
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node, NodeId, NodeStatus, NodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """All nodes, those that match a selector, or named ones. Only one of these."""

    selector: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    """Ids or names."""

    @property
    def is_lasting(self) -> bool:
        """Whether it includes nodes that join later."""
        return not self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    node_id: NodeId
    node_name: str
    reason: str


def takes_backends(node: Node) -> bool:
    """Agents and nodes that wait for approval get no backends."""
    return node.approved and node.node_type is NodeType.BACKEND


def pick_serving(nodes: Iterable[Node], selector: Mapping[str, str]) -> list[Node]:
    """The nodes where a model with this selector may run now."""
    return [
        node for node in nodes if takes_backends(node) and node.status is NodeStatus.HEALTHY and matches(node, selector)
    ]


def describe_no_match(selector: Mapping[str, str]) -> str:
    """The message for an empty result of `pick_serving`."""
    labels = ", ".join(f"{key}={value}" for key, value in selector.items())
    return f"no healthy node has the labels {labels}" if labels else "no node is healthy"


def pick_nodes(nodes: Sequence[Node], target: Target) -> list[Node]:
    """Raises for an unknown name, and for a named node that takes no backends. A selector without a match is no
    error."""
    if not target.nodes:
        return [node for node in nodes if takes_backends(node) and matches(node, target.selector)]
    found = []
    for id_or_name in dict.fromkeys(target.nodes):
        node = find_node(nodes, id_or_name)
        if node.node_type is not NodeType.BACKEND:
            raise InvalidInput(f"node {node.name} has the type {node.node_type}, which runs no backends")
        if not node.approved:
            raise InvalidInput(
                f"node {node.name} is waiting for approval; approve it first: `corral nodes approve {node.name}`"
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
        raise NotFound(f"there is no node {id_or_name!r}; list all nodes with `corral nodes list`")
    return by_name
