"""Version holds: after a rollback of the fleet, nodes that join later or lose their disk get the same version."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.backends.intents import BackendSpec
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node
from corral.core.nodes.targets import takes_backends


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHold:
    """One version of a build for every node that a selector matches, until a person requests an upgrade."""

    backend: str
    selector: Mapping[str, str]
    spec: BackendSpec
    """The version and its source; `rolled_back_from` lists the versions to avoid."""
    generation: int
    operation_id: str


def hold_for(node: Node, build: str, holds: Iterable[VersionHold]) -> BackendSpec | None:
    """The newest hold for the build that matches the node."""
    if not takes_backends(node):
        return None
    matching = [hold for hold in holds if hold.spec.build.name == build and matches(node, hold.selector)]
    newest = max(matching, key=lambda hold: hold.generation, default=None)
    return newest.spec if newest is not None else None
