"""Policies: the desired state of a backend on every node that a selector matches, also on nodes that join later."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.core.backends.intents import BackendSpec
from corral.core.backends.rollouts import RolloutRequest
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node
from corral.core.nodes.targets import takes_backends


class Ensure(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"


class OnDrift(StrEnum):
    CORRECT = "correct"
    """Correct drift, and install on nodes that join later."""
    REPORT = "report"
    """Show drift, and change nothing."""
    FREEZE = "freeze"
    """As report, and reject upgrades as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """The policy that an operation creates or replaces."""

    selector: Mapping[str, str]
    ensure: Ensure
    spec: BackendSpec
    on_drift: OnDrift | None = None
    """None keeps the previous setting; a new policy corrects drift."""
    rollout: RolloutRequest | None = None
    """How versions change on its nodes. None keeps the previous setting."""


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
    rollout: RolloutRequest | None = None
    """How versions change on its nodes, if commands do not say otherwise."""


def policy_for(node: Node, backend: str, policies: Iterable[Policy]) -> Policy | None:
    """The newest policy for the backend that matches the node."""
    if not takes_backends(node):
        return None
    matching = [policy for policy in policies if policy.backend == backend and matches(node, policy.selector)]
    return max(matching, key=lambda policy: policy.generation, default=None)
