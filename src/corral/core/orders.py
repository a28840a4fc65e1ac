"""Who is asked to do what: the parts of an operation, decided from what nodes have and what was wanted before."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from corral.core.intents import Intent, IntentState, Verb, Wish
from corral.core.nodes import Node, NodeId
from corral.core.observed import ObservedBackend, family_of, find_named
from corral.core.operations import Order
from corral.core.policies import OnDrift, Policy, policy_for
from corral.core.rivals import names_in
from corral.core.targets import Skipped


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """What is known of one node when an operation is admitted."""

    node: Node
    backends: Sequence[ObservedBackend] | None
    """None when it has never told."""
    newest: Mapping[str, Intent]
    """Its last wish for every backend."""

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
            self._found[name] = find_named(self._by_name, wanted.wish.name if wanted is not None else "", key, name)
        return self._found[name]

    def told_to_have(self, name: str) -> Intent | None:
        """The newest order for something that goes by this name, be it as its alias."""
        told = [
            intent
            for intent in self.newest.values()
            if intent.verb.wants_presence and name in names_in(intent.backend, intent.wish)
        ]
        return max(told, key=lambda intent: intent.generation, default=None)

    def was_rolled_back_from(self, name: str, digest: str) -> bool:
        """And nobody has asked for it since."""
        wanted = self.newest.get(self.key_of(name))
        return wanted is not None and wanted.state is not IntentState.CANCELLED and digest in wanted.wish.left

    @cached_property
    def _by_name(self) -> Mapping[str, ObservedBackend]:
        return {backend.name: backend for backend in self.backends or ()}

    @cached_property
    def _found(self) -> dict[str, ObservedBackend | None]:
        """Who lists a whole fleet asks for each backend several times."""
        return {}


def pick_upgrades(states: Iterable[NodeState], backend: str) -> list[NodeState]:
    """Only nodes that have it."""
    return [state for state in states if state.find(backend) is not None]


def spare_rolled_back(orders: Sequence[Order], states: Iterable[NodeState]) -> tuple[list[Order], list[Skipped]]:
    """Without nodes that were rolled back from the very version they would get."""
    by_id = {state.node.id: state for state in states}
    wanted, spared = [], []
    for order in orders:
        if by_id[order.node_id].was_rolled_back_from(order.backend, order.wish.digest):
            again = f"corral backends upgrade {order.backend} --node {order.node_name}"
            reason = f"it was rolled back from this version; `{again}` upgrades it all the same"
            spared.append(Skipped(node_id=order.node_id, node_name=order.node_name, reason=reason))
        else:
            wanted.append(order)
    return wanted, spared


def spare_frozen(
    states: Iterable[NodeState], backend: str, policies: Sequence[Policy]
) -> tuple[list[NodeState], list[Skipped]]:
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


def plan_deletes(states: Iterable[NodeState], backend: str) -> list[Order]:
    """Nodes that have it, that were told to have it, or of which nobody knows; the others in case they are just now."""
    orders = []
    for state in states:
        key = state.key_of(backend)
        wanted, found = state.newest.get(key), state.find(backend)
        told = state.told_to_have(key)
        last = told or wanted
        build = found.name if found is not None else last.wish.name if last is not None else ""
        orders.append(
            Order(
                node_id=state.node.id,
                node_name=state.node.name,
                backend=key,
                wish=Wish(element=key, name=build),
                only_if_wanted=told is None and found is None and state.backends is not None,
            )
        )
    return orders


def plan_rollbacks(
    states: Iterable[NodeState], backend: str, *, to: str | None, wishes: Mapping[str, Wish]
) -> tuple[list[Order], list[Skipped]]:
    """`wishes` by digest: versions that once were as wanted, and how they were installed, so that they can be again."""
    orders, skipped = [], []
    for state in states:
        found = state.find(backend)
        node = state.node
        if found is None:
            continue
        wanted = state.newest.get(state.key_of(backend))
        earlier = found.digest if to is None and _is_on_its_way(wanted, found) else _earlier(found, to, wishes)
        if node.key_hash is None:
            reason = "a LocalAI worker keeps no earlier version"
        elif earlier is None:
            reason = f"{to} is not on this node" if to else f"it has no earlier version of {found.name} to go back to"
        else:
            key = state.key_of(backend)
            before = wishes.get(earlier) or Wish(element=key)
            wish = Wish(
                element=key,
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
                left=_left(state.newest.get(key), found, earlier),
            )
            orders.append(Order(node_id=node.id, node_name=node.name, backend=key, wish=wish))
            continue
        skipped.append(Skipped(node_id=node.id, node_name=node.name, reason=reason))
    return orders, skipped


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
        and bool(wanted.wish.digest and found.digest)
        and wanted.wish.digest != found.digest
    )


def _left(before: Intent | None, found: ObservedBackend, earlier: str) -> tuple[str, ...]:
    """Who goes back twice wants neither of the versions left behind."""
    left = {found.digest}
    if before is not None:
        left |= {*before.wish.left, *([before.wish.digest] if _is_on_its_way(before, found) else ())}
    return tuple(sorted(left - {earlier}))


def newest_by_node(intents: Iterable[Intent]) -> dict[NodeId, dict[str, Intent]]:
    found: dict[NodeId, dict[str, Intent]] = {}
    for intent in intents:
        found.setdefault(intent.node_id, {})[intent.backend] = intent
    return found
