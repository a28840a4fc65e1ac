"""Deletions in force: where a backend must stay absent, so that no load installs it there again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from corral.core.backends.desired import find_all_desired
from corral.core.backends.intents import Intent, Verb
from corral.core.backends.planning import NodeBackends, newest_by_node
from corral.core.backends.policies import Ensure, Policy, policy_for
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend, family_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    backend: str
    """The name given to the delete: a family, or one build."""
    by: str
    at_ms: int
    only_node: str = ""
    """The node's name, if the delete named nodes."""

    @property
    def reason(self) -> str:
        """For people: who deleted it, when, and how to install it again."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        where, only = (f" from {self.only_node}", f" --node {self.only_node}") if self.only_node else ("", "")
        return (
            f"its backend {self.backend} was deleted{where} by {self.by} at {at};"
            f" install it again with `corral backends install {self.backend}{only}`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBackends:
    """All deletions in force, with who requested them, from one read of the store."""

    policies: Sequence[Policy] = ()
    intents: Sequence[Intent] = ()
    """The newest intents: all deletes, those for backends that a policy keeps absent, and those that may have replaced
    one of them."""
    requesters: Mapping[str, tuple[str, int]] | None = None
    """By operation: who requested it, and when."""

    def find(self, nodes: Sequence[Node], names: Mapping[NodeId, Collection[str]]) -> dict[str, Deletion]:
        """By node. `names`: family, build and alias of the backend that a load needs there."""
        newest = newest_by_node(self.intents)
        found: dict[str, Deletion] = {}
        for node in nodes:
            state = NodeBackends(node=node, backends=None, newest=newest.get(node.id, {}))
            deletion = self._on(state, names.get(node.id, ()))
            if deletion is not None:
                found[node.id] = deletion
        return found

    def __bool__(self) -> bool:
        return bool(self.intents) or any(policy.ensure is Ensure.ABSENT for policy in self.policies)

    def marks(self) -> dict[str, frozenset[tuple[str, int]]]:
        """By node: a value that changes whenever its deletions change. Policies are under the empty name."""
        found: dict[str, set[tuple[str, int]]] = {
            "": {(policy.backend, policy.generation) for policy in self.policies if policy.ensure is Ensure.ABSENT}
        }
        for intent in self.intents:
            found.setdefault(intent.node_id, set()).add((intent.backend, intent.generation))
        return {node: frozenset(marks) for node, marks in found.items()}

    def _on(self, state: NodeBackends, names: Collection[str]) -> Deletion | None:
        """The latest deletion that applies: an install has to be newer than that one."""
        matching = {
            desired.generation: backend
            for backend, desired in find_all_desired(state, self.policies).items()
            if desired.verb is Verb.DELETE and (backend in names or desired.spec.build.name in names)
        }
        return self._describe(state, matching[max(matching)]) if matching else None

    def _describe(self, state: NodeBackends, backend: str) -> Deletion:
        policy = policy_for(state.node, backend, self.policies)
        if policy is not None and policy.ensure is Ensure.ABSENT:
            return Deletion(backend=backend, by=policy.created_by, at_ms=policy.created_at)
        intent = state.newest[backend]
        by, at_ms = (self.requesters or {}).get(intent.operation_id, ("an unknown user", intent.finished_at or 0))
        return Deletion(backend=backend, by=by, at_ms=at_ms, only_node=state.node.name)


def names_of_installed(backends: Sequence[ObservedBackend], found: ObservedBackend) -> set[str]:
    """Name, alias and family of an installed backend."""
    return {name for name in (found.name, found.alias, family_of(backends, found.name)) if name}
