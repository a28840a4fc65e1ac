"""Who is asked to do what: the parts of an operation, decided from what nodes have and what was wanted before."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from corral.core.backends.conflicts import names_in
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb, version_mark
from corral.core.backends.operations import NewIntent
from corral.core.backends.policies import OnDrift, Policy, policy_for
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend, family_of, find_named
from corral.core.nodes.targets import Skipped


@dataclass(frozen=True, kw_only=True)
class NodeBackends:
    """What is known of one node when an operation is admitted."""

    node: Node
    backends: Sequence[ObservedBackend] | None
    """None when it has never told."""
    newest: Mapping[str, Intent]
    """Its last wish for every backend."""
    restored: Mapping[str, Intent] = field(default_factory=dict)
    """Where the last order was cancelled: the order before it, which holds again."""

    def key_of(self, name: str) -> str:
        """Under which name a backend's orders are kept here: the family it was installed for, if it was for one."""
        if name in self.newest:
            return name
        family = family_of(self.backends or (), name)
        return family if family in self.newest or family != name else name

    def find(self, name: str) -> ObservedBackend | None:
        if name not in self._found:
            key = self.key_of(name)
            wanted = self.newest.get(key)
            self._found[name] = find_named(self._by_name, wanted.spec.name if wanted is not None else "", key, name)
        return self._found[name]

    def holding(self, name: str) -> Intent | None:
        """The order that says what is to be here."""
        key = self.key_of(name)
        return self.restored.get(key) or self.newest.get(key)

    def waits_for(self, name: str) -> Intent | None:
        """The open order that is to bring it here for the first time."""
        wanted = self.newest.get(self.key_of(name))
        waits = wanted is not None and wanted.state.live and wanted.verb.ensures_presence
        return wanted if waits and self.find(name) is None else None

    def told_to_have(self, name: str) -> Intent | None:
        """The newest order for something that goes by this name, be it as its alias."""
        told = [
            intent
            for intent in self.newest.values()
            if intent.verb.ensures_presence and name in names_in(intent.backend, intent.spec)
        ]
        return max(told, key=lambda intent: intent.generation, default=None)

    def was_rolled_back_from(self, name: str, mark: str) -> bool:
        """And nobody has asked for it since."""
        wanted = self.holding(name)
        return wanted is not None and wanted.state is not IntentState.CANCELLED and mark in wanted.spec.left

    @cached_property
    def _by_name(self) -> Mapping[str, ObservedBackend]:
        return {backend.name: backend for backend in self.backends or ()}

    @cached_property
    def _found(self) -> dict[str, ObservedBackend | None]:
        """Who lists a whole fleet asks for each backend several times."""
        return {}


def pick_holders(states: Iterable[NodeBackends], backend: str) -> list[NodeBackends]:
    """Only nodes that have it."""
    return [state for state in states if state.find(backend) is not None]


def pick_upgrades(states: Iterable[NodeBackends], backend: str) -> list[NodeBackends]:
    """Nodes that have it, and those that are about to get it for the first time: they get the new version at once."""
    return [state for state in states if state.find(backend) is not None or state.waits_for(backend) is not None]


def skip_rolled_back(
    orders: Sequence[NewIntent], states: Iterable[NodeBackends]
) -> tuple[list[NewIntent], list[Skipped]]:
    """Without nodes that were rolled back from the very version they would get."""
    by_id = {state.node.id: state for state in states}
    wanted, spared = [], []
    for order in orders:
        if by_id[order.node_id].was_rolled_back_from(order.backend, order.spec.mark):
            again = f"corral backends upgrade {order.backend} --node {order.node_name}"
            reason = f"it was rolled back from this version; `{again}` upgrades it all the same"
            spared.append(Skipped(node_id=order.node_id, node_name=order.node_name, reason=reason))
        else:
            wanted.append(order)
    return wanted, spared


def skip_frozen_nodes(
    states: Iterable[NodeBackends], backend: str, policies: Sequence[Policy]
) -> tuple[list[NodeBackends], list[Skipped]]:
    """Without nodes on which a policy keeps it as it is."""
    free, frozen = [], []
    for state in states:
        policy = policy_for(state.node, state.key_of(backend), policies)
        if policy is None or policy.on_drift is not OnDrift.FREEZE:
            free.append(state)
            continue
        heal = f"corral backends policies --drift {policy.id} heal"
        reason = f"{backend} is frozen by a policy; `{heal}` lets it be upgraded again"
        frozen.append(Skipped(node_id=state.node.id, node_name=state.node.name, reason=reason))
    return free, frozen


def plan_deletes(states: Iterable[NodeBackends], backend: str) -> list[NewIntent]:
    """Nodes that have it, that were told to have it, or of which nobody knows; the others in case they are just now."""
    orders = []
    for state in states:
        key = state.key_of(backend)
        wanted, found = state.newest.get(key), state.find(backend)
        told = state.told_to_have(key)
        last = told or wanted
        build = found.name if found is not None else last.spec.name if last is not None else ""
        orders.append(
            NewIntent(
                node_id=state.node.id,
                node_name=state.node.name,
                backend=key,
                spec=BackendSpec(reference=key, name=build),
                only_if_desired=told is None and found is None and state.backends is not None,
            )
        )
    return orders


def plan_rollbacks(
    states: Iterable[NodeBackends], backend: str, *, to: str | None, specs: Mapping[str, BackendSpec]
) -> tuple[list[NewIntent], list[Skipped]]:
    """`specs` by digest: versions that once were as wanted, and how they were installed, so that they can be again."""
    orders, skipped = [], []
    for state in states:
        found = state.find(backend)
        node = state.node
        if found is None:
            continue
        wanted = state.newest.get(state.key_of(backend))
        earlier = found.digest if to is None and _is_on_its_way(wanted, found) else _earlier(found, to, specs)
        if node.key_hash is None:
            reason = "a LocalAI worker keeps no earlier version"
        elif earlier is None:
            reason = f"{to} is not on this node" if to else f"it has no earlier version of {found.name} to go back to"
        else:
            key = state.key_of(backend)
            before = specs.get(earlier) or BackendSpec(reference=key)
            spec = BackendSpec(
                reference=key,
                name=found.name,
                uri=before.uri,
                alias=before.alias,
                galleries=before.galleries,
                uris=before.uris,
                digest=earlier,
                version=before.version,
                sha256=before.sha256,
                manifest=before.manifest,
                reason="an administrator went back to it",
                left=_left(state.holding(key), found, earlier),
            )
            orders.append(NewIntent(node_id=node.id, node_name=node.name, backend=key, spec=spec))
            continue
        skipped.append(Skipped(node_id=node.id, node_name=node.name, reason=reason))
    return orders, skipped


def plan_held(states: Iterable[NodeBackends], backend: str, holds: Sequence[BackendSpec]) -> list[NewIntent]:
    """For nodes that wait for their first install of a version that is being rolled back from."""
    orders = []
    for state in states:
        waiting = state.waits_for(backend)
        if waiting is None:
            continue
        hold = next((one for one in holds if one.name == waiting.spec.name and waiting.spec.mark in one.left), None)
        if hold is not None:
            key = state.key_of(backend)
            order = NewIntent(
                node_id=state.node.id, node_name=state.node.name, backend=key, spec=hold, verb=Verb.INSTALL
            )
            orders.append(order)
    return orders


def find_holds(orders: Iterable[NewIntent]) -> list[BackendSpec]:
    """For each build what it was rolled back to, on most nodes; and all that was left."""
    by_build: dict[str, list[BackendSpec]] = {}
    for order in orders:
        by_build.setdefault(order.spec.name, []).append(order.spec)
    holds = []
    for _, specs in sorted(by_build.items()):
        digests = [spec.digest for spec in specs]
        kept = max(specs, key=lambda spec: (digests.count(spec.digest), spec.digest))
        left = {mark for spec in specs for mark in spec.left} - {kept.digest}
        holds.append(replace(kept, left=tuple(sorted(left))))
    return holds


def as_known(reference: str, states: Sequence[NodeBackends], policies: Sequence[Policy] = ()) -> str:
    """As the fleet writes it, in whichever case it was asked for."""
    gallery, at, name = reference.rpartition("@")
    known = {policy.backend for policy in policies}
    for state in states:
        known |= {*state.newest, *(backend.name for backend in state.backends or ())}
        known |= {backend.alias for backend in state.backends or ()} - {""}
    if name in known:
        return reference
    alike = sorted(one for one in known if one.lower() == name.lower())
    return f"{gallery}{at}{alike[0]}" if alike else reference


def complete_digest(wanted: str, states: Iterable[NodeBackends], backend: str) -> str:
    """The version that this digest, or the beginning of one, means on these nodes. One that none of them has is left as
    it is."""
    start = wanted.strip().lower().removeprefix("sha256:")
    there = {digest for state in states if (found := state.find(backend)) for digest in found.versions}
    if wanted in there or not start:
        return wanted
    fitting = sorted(digest for digest in there if digest.removeprefix("sha256:").startswith(start))
    if len(fitting) > 1:
        raise InvalidInput(
            f"{wanted!r} fits several versions of {backend}: {', '.join(fitting)}; give more of its digest"
        )
    return fitting[0] if fitting else wanted


def _earlier(found: ObservedBackend, to: str | None, good: Container[str]) -> str | None:
    """A version that never worked is still on the disk; one that did goes before it."""
    if to is not None:
        return to if to in found.versions else None
    if found.digest not in found.versions:
        return None
    later = found.versions[found.versions.index(found.digest) + 1 :]
    return next((digest for digest in later if digest in good), later[0] if later else None)


def _is_on_its_way(wanted: Intent | None, found: ObservedBackend) -> bool:
    """To another version than it has: going back means staying where it is."""
    return (
        wanted is not None
        and wanted.state.live
        and wanted.verb in (Verb.INSTALL, Verb.UPGRADE)
        and bool(wanted.spec.digest and found.digest)
        and wanted.spec.digest != found.digest
    )


def _left(before: Intent | None, found: ObservedBackend, earlier: str) -> tuple[str, ...]:
    """Who goes back twice wants neither of the versions left behind."""
    left = {found.digest}
    if before is not None:
        left |= {*before.spec.left, *([before.spec.digest] if _is_on_its_way(before, found) else ())}
    if found.digest != earlier:
        # Where no digest is known beforehand, the version is offered under its number and its address.
        left |= {version_mark(found.version, found.uri), *([before.spec.mark] if before is not None else ())}
    return tuple(sorted(left - {earlier, ""}))


def newest_by_node(intents: Iterable[Intent]) -> dict[NodeId, dict[str, Intent]]:
    found: dict[NodeId, dict[str, Intent]] = {}
    for intent in intents:
        found.setdefault(intent.node_id, {})[intent.backend] = intent
    return found
