"""What must hold on every node a selector fits, now and for machines that come later."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.core.backends.intents import BackendSpec
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node
from corral.core.nodes.targets import takes_backends


class Ensure(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"


class OnDrift(StrEnum):
    HEAL = "heal"
    """Mend what differs, and give it to machines that come."""
    REPORT = "report"
    """Show it, and touch nothing."""
    FREEZE = "freeze"
    """As report; and nobody upgrades it before the policy says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """What an operation makes of the policies."""

    selector: Mapping[str, str]
    ensure: Ensure
    spec: BackendSpec
    on_drift: OnDrift | None = None
    """None keeps what the policy said before, or heals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    id: str
    backend: str
    selector: Mapping[str, str]
    ensure: Ensure
    spec: BackendSpec
    on_drift: OnDrift
    generation: int
    operation_id: str
    created_by: str
    created_at: int
    changed_at: int


def policy_for(node: Node, backend: str, policies: Iterable[Policy]) -> Policy | None:
    """The newest that fits: who asks later knows better."""
    if not takes_backends(node):
        return None
    fitting = [policy for policy in policies if policy.backend == backend and matches(node, policy.selector)]
    return max(fitting, key=lambda policy: policy.generation, default=None)
