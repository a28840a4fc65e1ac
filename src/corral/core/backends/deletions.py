"""Where a backend was deleted and is to stay away: nothing is placed there that would bring it back."""

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
    """As it was deleted: a family, or one build."""
    by: str
    at_ms: int
    only_node: str = ""
    """Its name, where the delete named machines."""

    @property
    def reason(self) -> str:
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        where, only = (f" from {self.only_node}", f" --node {self.only_node}") if self.only_node else ("", "")
        return (
            f"its backend {self.backend} was deleted{where} by {self.by} at {at};"
            f" install it again with `corral backends install {self.backend}{only}`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBackends:
    """What was deleted, where, and by whom, as one look at the store finds it."""

    policies: Sequence[Policy] = ()
    intents: Sequence[Intent] = ()
    """Last wishes: every delete, all for backends that a policy keeps away, and what may have been asked for since."""
    requesters: Mapping[str, tuple[str, int]] | None = None
    """By operation: who asked for it, and when."""

    def find(self, nodes: Sequence[Node], names: Mapping[NodeId, Collection[str]]) -> dict[str, Deletion]:
        """By node. `names`: all that a load would have there goes by, its family, its build and its alias."""
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
        """By node: differs when what is deleted there does. Policies are everybody's, under the empty name."""
        found: dict[str, set[tuple[str, int]]] = {
            "": {(policy.backend, policy.generation) for policy in self.policies if policy.ensure is Ensure.ABSENT}
        }
        for intent in self.intents:
            found.setdefault(intent.node_id, set()).add((intent.backend, intent.generation))
        return {node: frozenset(marks) for node, marks in found.items()}

    def _on(self, state: NodeBackends, names: Collection[str]) -> Deletion | None:
        """The latest of them: it is what an administrator remembers, and what an install has to come after."""
        matching = {
            wanted.generation: backend
            for backend, wanted in find_all_desired(state, self.policies).items()
            if wanted.verb is Verb.DELETE and (backend in names or wanted.spec.name in names)
        }
        return self._describe(state, matching[max(matching)]) if matching else None

    def _describe(self, state: NodeBackends, backend: str) -> Deletion:
        policy = policy_for(state.node, backend, self.policies)
        if policy is not None and policy.ensure is Ensure.ABSENT:
            return Deletion(backend=backend, by=policy.created_by, at_ms=policy.created_at)
        intent = state.newest[backend]
        by, at_ms = (self.requesters or {}).get(intent.operation_id, ("somebody", intent.finished_at or 0))
        return Deletion(backend=backend, by=by, at_ms=at_ms, only_node=state.node.name)


def names_of_installed(backends: Sequence[ObservedBackend], found: ObservedBackend) -> set[str]:
    return {name for name in (found.name, found.alias, family_of(backends, found.name)) if name}
