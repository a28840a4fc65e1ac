"""Plans an operation: one intent for each node, from what the nodes have and what was requested before."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from corral.core.backends.build import BuildRef, version_mark
from corral.core.backends.conflicts import names_in
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.operations import NewIntent
from corral.core.backends.policies import OnDrift, Policy, policy_for
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend, family_of, find_named
from corral.core.nodes.targets import Skipped


@dataclass(frozen=True, kw_only=True)
class NodeBackends:
    """One node with its installed backends and its intents."""

    node: Node
    backends: Sequence[ObservedBackend] | None
    """None if the node has never reported."""
    newest: Mapping[str, Intent]
    """The newest intent for each backend."""
    restored: Mapping[str, Intent] = field(default_factory=dict)
    """Where the newest intent was cancelled: the one before it, which is in effect again."""

    def key_of(self, name: str) -> str:
        """The name that the backend's intents have on this node: the family it was installed for, if there is one."""
        if name in self.newest:
            return name
        family = family_of(self.backends or (), name)
        return family if family in self.newest or family != name else name

    def find(self, name: str) -> ObservedBackend | None:
        """The installed backend of that name, family or alias."""
        if name not in self._found:
            key = self.key_of(name)
            newest = self.newest.get(key)
            build = newest.spec.build.name if newest is not None else ""
            self._found[name] = find_named(self._by_name, build, key, name)
        return self._found[name]

    def effective_intent(self, name: str) -> Intent | None:
        """The intent that determines what must be installed here."""
        key = self.key_of(name)
        return self.restored.get(key) or self.newest.get(key)

    def first_install(self, name: str) -> Intent | None:
        """The live intent that will install it here for the first time."""
        newest = self.newest.get(self.key_of(name))
        waits = newest is not None and newest.state.live and newest.verb.ensures_presence
        return newest if waits and self.find(name) is None else None

    def presence_intent(self, name: str) -> Intent | None:
        """The newest intent to have a backend of this name or alias."""
        installing = [
            intent
            for intent in self.newest.values()
            if intent.verb.ensures_presence and name in names_in(intent.backend, intent.spec)
        ]
        return max(installing, key=lambda intent: intent.generation, default=None)

    def was_rolled_back_from(self, name: str, mark: str) -> bool:
        """Whether the version was rolled back from and nobody has requested it since."""
        intent = self.effective_intent(name)
        if intent is None or intent.state is IntentState.CANCELLED:
            return False
        return mark in intent.spec.rolled_back_from

    @cached_property
    def _by_name(self) -> Mapping[str, ObservedBackend]:
        return {backend.name: backend for backend in self.backends or ()}

    @cached_property
    def _found(self) -> dict[str, ObservedBackend | None]:
        """A cache: a listing of the whole fleet looks up each backend several times."""
        return {}


def pick_holders(states: Iterable[NodeBackends], backend: str) -> list[NodeBackends]:
    """Nodes that have the backend."""
    return [state for state in states if state.find(backend) is not None]


def pick_upgrades(states: Iterable[NodeBackends], backend: str) -> list[NodeBackends]:
    """Nodes that have the backend, and those whose first install is unfinished: they get the new version directly."""
    return [state for state in states if state.find(backend) is not None or state.first_install(backend) is not None]


def skip_rolled_back(
    intents: Sequence[NewIntent], states: Iterable[NodeBackends]
) -> tuple[list[NewIntent], list[Skipped]]:
    """Skips nodes that were rolled back from the very version they would get."""
    by_id = {state.node.id: state for state in states}
    kept, skipped = [], []
    for intent in intents:
        if by_id[intent.node_id].was_rolled_back_from(intent.backend, intent.spec.mark):
            again = f"corral backends upgrade {intent.backend} --node {intent.node_name}"
            reason = f"the node was rolled back from this version; `{again}` upgrades it anyway"
            skipped.append(Skipped(node_id=intent.node_id, node_name=intent.node_name, reason=reason))
        else:
            kept.append(intent)
    return kept, skipped


def skip_frozen_nodes(
    states: Iterable[NodeBackends], backend: str, policies: Sequence[Policy]
) -> tuple[list[NodeBackends], list[Skipped]]:
    """Skips nodes on which a policy freezes the version."""
    free, frozen = [], []
    for state in states:
        policy = policy_for(state.node, state.key_of(backend), policies)
        if policy is None or policy.on_drift is not OnDrift.FREEZE:
            free.append(state)
            continue
        command = f"corral backends policies --drift {policy.id} correct"
        reason = f"{backend} is frozen by a policy; `{command}` allows upgrades again"
        frozen.append(Skipped(node_id=state.node.id, node_name=state.node.name, reason=reason))
    return free, frozen


def plan_deletes(states: Iterable[NodeBackends], backend: str) -> list[NewIntent]:
    """For nodes that have it, that were told to install it, or that have not reported. The others get an intent that is
    created only if an install is requested in the meantime."""
    intents = []
    for state in states:
        key = state.key_of(backend)
        newest, found = state.newest.get(key), state.find(backend)
        installing = state.presence_intent(key)
        last = installing or newest
        build = found.name if found is not None else last.spec.build.name if last is not None else ""
        intents.append(
            NewIntent(
                node_id=state.node.id,
                node_name=state.node.name,
                backend=key,
                spec=BackendSpec(reference=key, build=BuildRef(name=build)),
                only_if_desired=installing is None and found is None and state.backends is not None,
            )
        )
    return intents


def plan_rollbacks(
    states: Iterable[NodeBackends], backend: str, *, to: str | None, specs: Mapping[str, BackendSpec]
) -> tuple[list[NewIntent], list[Skipped]]:
    """`specs`, by digest: versions that were installed successfully, and how to install them again."""
    intents, skipped = [], []
    for state in states:
        found = state.find(backend)
        node = state.node
        if found is None:
            continue
        newest = state.newest.get(state.key_of(backend))
        earlier = found.digest if to is None and _is_changing(newest, found) else _earlier(found, to, specs)
        if not node.speaks_corral:
            reason = "a LocalAI worker does not keep earlier versions"
        elif earlier is None:
            reason = f"{to} is not on this node" if to else f"the node has no earlier version of {found.name}"
        else:
            key = state.key_of(backend)
            before = specs.get(earlier) or BackendSpec(reference=key)
            spec = replace(
                before,
                reference=key,
                build=replace(before.build, name=found.name, digest=earlier),
                force=False,
                reason="an administrator rolled back to it",
                rolled_back_from=_rolled_back_from(state.effective_intent(key), found, earlier),
            )
            intents.append(NewIntent(node_id=node.id, node_name=node.name, backend=key, spec=spec))
            continue
        skipped.append(Skipped(node_id=node.id, node_name=node.name, reason=reason))
    return intents, skipped


def plan_held(states: Iterable[NodeBackends], backend: str, holds: Sequence[BackendSpec]) -> list[NewIntent]:
    """For nodes whose first install, of a version that is being rolled back from, has not finished."""
    intents = []
    for state in states:
        waiting = state.first_install(backend)
        if waiting is None:
            continue
        hold = next((one for one in holds if _replaces(one, waiting.spec)), None)
        if hold is not None:
            key = state.key_of(backend)
            intent = NewIntent(
                node_id=state.node.id, node_name=state.node.name, backend=key, spec=hold, verb=Verb.INSTALL
            )
            intents.append(intent)
    return intents


def _replaces(hold: BackendSpec, spec: BackendSpec) -> bool:
    """Whether the hold was rolled back from the very version of the spec."""
    return hold.build.name == spec.build.name and spec.mark in hold.rolled_back_from


def find_holds(intents: Iterable[NewIntent]) -> list[BackendSpec]:
    """For each build the version that most nodes are rolled back to, and all versions that any is rolled back from."""
    by_build: dict[str, list[BackendSpec]] = {}
    for intent in intents:
        by_build.setdefault(intent.spec.build.name, []).append(intent.spec)
    holds = []
    for _, specs in sorted(by_build.items()):
        digests = [spec.build.digest for spec in specs]
        kept = max(specs, key=lambda spec: (digests.count(spec.build.digest), spec.build.digest))
        marks = {mark for spec in specs for mark in spec.rolled_back_from} - {kept.build.digest}
        holds.append(replace(kept, rolled_back_from=tuple(sorted(marks))))
    return holds


def as_known(reference: str, states: Sequence[NodeBackends], policies: Sequence[Policy] = ()) -> str:
    """The reference in the spelling that the fleet knows, whatever its case."""
    gallery, at, name = reference.rpartition("@")
    known = {policy.backend for policy in policies}
    for state in states:
        known |= {*state.newest, *(backend.name for backend in state.backends or ())}
        known |= {backend.alias for backend in state.backends or ()} - {""}
    if name in known:
        return reference
    alike = sorted(one for one in known if one.lower() == name.lower())
    return f"{gallery}{at}{alike[0]}" if alike else reference


def complete_digest(given: str, states: Iterable[NodeBackends], backend: str) -> str:
    """The complete digest that begins like this on one of the nodes. One that no node has is returned unchanged."""
    start = given.strip().lower().removeprefix("sha256:")
    there = {digest for state in states if (found := state.find(backend)) for digest in found.versions}
    if given in there or not start:
        return given
    matching = sorted(digest for digest in there if digest.removeprefix("sha256:").startswith(start))
    if len(matching) > 1:
        raise InvalidInput(
            f"{given!r} matches several versions of {backend}: {', '.join(matching)}. Give more digits of the digest."
        )
    return matching[0] if matching else given


def _earlier(found: ObservedBackend, to: str | None, good: Container[str]) -> str | None:
    """Prefers a version that was installed successfully to one that is only on the disk."""
    if to is not None:
        return to if to in found.versions else None
    if found.digest not in found.versions:
        return None
    later = found.versions[found.versions.index(found.digest) + 1 :]
    return next((digest for digest in later if digest in good), later[0] if later else None)


def _is_changing(newest: Intent | None, found: ObservedBackend) -> bool:
    """Whether a live intent replaces the installed version: then a rollback means to stay at it."""
    return (
        newest is not None
        and newest.state.live
        and newest.verb in (Verb.INSTALL, Verb.UPGRADE)
        and bool(newest.spec.build.digest and found.digest)
        and newest.spec.build.digest != found.digest
    )


def _rolled_back_from(before: Intent | None, found: ObservedBackend, earlier: str) -> tuple[str, ...]:
    """Marks of all versions to avoid: a second rollback avoids both versions."""
    marks = {found.digest}
    if before is not None:
        marks |= {*before.spec.rolled_back_from, *([before.spec.build.digest] if _is_changing(before, found) else ())}
    if found.digest != earlier:
        # Where no digest is known in advance, galleries offer the version under its number and source.
        marks |= {version_mark(found.version, found.uri), *([before.spec.mark] if before is not None else ())}
    return tuple(sorted(marks - {earlier, ""}))


def newest_by_node(intents: Iterable[Intent]) -> dict[NodeId, dict[str, Intent]]:
    found: dict[NodeId, dict[str, Intent]] = {}
    for intent in intents:
        found.setdefault(intent.node_id, {})[intent.backend] = intent
    return found
