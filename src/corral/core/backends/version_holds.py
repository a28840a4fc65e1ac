"""What a rollback of the fleet means for machines that come later, or lose their disks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corral.core.backends.intents import BackendSpec
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node
from corral.core.nodes.targets import takes_backends


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHold:
    """One build's version on every node a selector fits, until a person asks for a newer one."""

    backend: str
    selector: Mapping[str, str]
    spec: BackendSpec
    """Which version, and how it is got; `left` are those that were rolled back from."""
    generation: int
    operation_id: str


def hold_for(node: Node, variant: str, holds: Iterable[VersionHold]) -> BackendSpec | None:
    """The newest that fits."""
    if not takes_backends(node):
        return None
    fitting = [hold for hold in holds if hold.spec.name == variant and matches(node, hold.selector)]
    newest = max(fitting, key=lambda hold: hold.generation, default=None)
    return newest.spec if newest is not None else None
