"""Who is asked to do what: the parts of an operation, decided from what nodes have and what was wanted before."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from corral.core.backends.conflicts import names_in
from corral.core.backends.intents import Intent, IntentState, Verb, Wish, version_mark
from corral.core.backends.operations import Order
from corral.core.backends.policies import OnDrift, Policy, policy_for
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend, family_of, find_named
from corral.core.nodes.targets import Skipped


@dataclass(frozen=True, kw_only=True)
class NodeState:
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
            self._found[name] = find_named(self._by_name, wanted.wish.name if wanted is not None else "", key, name)
        return self._found[name]

    def holding(self, name: str) -> Intent | None:
        """The order that says what is to be here."""
        key = self.key_of(name)
        return self.restored.get(key) or self.newest.get(key)

    def waits_for(self, name: str) -> Intent | None:
        """The open order that is to bring it here for the first time."""
        wanted = self.newest.get(self.key_of(name))
        waits = wanted is not None and wanted.state.live and wanted.verb.wants_presence
        return wanted if waits and self.find(name) is None else None

    def told_to_have(self, name: str) -> Intent | None:
        """The newest order for something that goes by this name, be it as its alias."""
        told = [
            intent
            for intent in self.newest.values()
            if intent.verb.wants_presence and name in names_in(intent.backend, intent.wish)
        ]
        return max(told, key=lambda intent: intent.generation, default=None)

    def was_rolled_back_from(self, name: str, mark: str) -> bool:
        """And nobody has asked for it since."""
        wanted = self.holding(name)
        return wanted is not None and wanted.state is not IntentState.CANCELLED and mark in wanted.wish.left

    @cached_property
    def _by_name(self) -> Mapping[str, ObservedBackend]:
        return {backend.name: backend for backend in self.backends or ()}

    @cached_property
    def _found(self) -> dict[str, ObservedBackend | None]:
        """Who lists a whole fleet asks for each backend several times."""
        return {}


def pick_holders(states: Iterable[NodeState], backend: str) -> list[NodeState]:
    """Only nodes that have it."""
    return [state for state in states if state.find(backend) is not None]


def pick_upgrades(states: Iterable[NodeState], backend: str) -> list[NodeState]:
    """Nodes that have it, and those that are about to get it for the first time: they get the new version at once."""
    return [state for state in states if state.find(backend) is not None or state.waits_for(backend) is not None]


def spare_rolled_back(orders: Sequence[Order], states: Iterable[NodeState]) -> tuple[list[Order], list[Skipped]]:
    """Without nodes that were rolled back from the very version they would get."""
    by_id = {state.node.id: state for state in states}
    wanted, spared = [], []
    for order in orders:
        if by_id[order.node_id].was_rolled_back_from(order.backend, order.wish.mark):
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
                left=_left(state.holding(key), found, earlier),
            )
            orders.append(Order(node_id=node.id, node_name=node.name, backend=key, wish=wish))
            continue
        skipped.append(Skipped(node_id=node.id, node_name=node.name, reason=reason))
    return orders, skipped


def plan_held(states: Iterable[NodeState], backend: str, holds: Sequence[Wish]) -> list[Order]:
    """For nodes that wait for their first install of a version that is being rolled back from."""
    orders = []
    for state in states:
        waiting = state.waits_for(backend)
        if waiting is None:
            continue
        hold = next((one for one in holds if one.name == waiting.wish.name and waiting.wish.mark in one.left), None)
        if hold is not None:
            key = state.key_of(backend)
            order = Order(node_id=state.node.id, node_name=state.node.name, backend=key, wish=hold, verb=Verb.INSTALL)
            orders.append(order)
    return orders


def find_holds(orders: Iterable[Order]) -> list[Wish]:
    """For each build what it was rolled back to, on most nodes; and all that was left."""
    by_build: dict[str, list[Wish]] = {}
    for order in orders:
        by_build.setdefault(order.wish.name, []).append(order.wish)
    holds = []
    for _, wishes in sorted(by_build.items()):
        digests = [wish.digest for wish in wishes]
        kept = max(wishes, key=lambda wish: (digests.count(wish.digest), wish.digest))
        left = {mark for wish in wishes for mark in wish.left} - {kept.digest}
        holds.append(replace(kept, left=tuple(sorted(left))))
    return holds


def as_known(element: str, states: Sequence[NodeState], policies: Sequence[Policy] = ()) -> str:
    """As the fleet writes it, in whichever case it was asked for."""
    gallery, at, name = element.rpartition("@")
    known = {policy.backend for policy in policies}
    for state in states:
        known |= {*state.newest, *(backend.name for backend in state.backends or ())}
        known |= {backend.alias for backend in state.backends or ()} - {""}
    if name in known:
        return element
    alike = sorted(one for one in known if one.lower() == name.lower())
    return f"{gallery}{at}{alike[0]}" if alike else element


def complete_digest(wanted: str, states: Iterable[NodeState], backend: str) -> str:
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
        and bool(wanted.wish.digest and found.digest)
        and wanted.wish.digest != found.digest
    )


def _left(before: Intent | None, found: ObservedBackend, earlier: str) -> tuple[str, ...]:
    """Who goes back twice wants neither of the versions left behind."""
    left = {found.digest}
    if before is not None:
        left |= {*before.wish.left, *([before.wish.digest] if _is_on_its_way(before, found) else ())}
    if found.digest != earlier:
        # Where no digest is known beforehand, the version is offered under its number and its address.
        left |= {version_mark(found.version, found.uri), *([before.wish.mark] if before is not None else ())}
    return tuple(sorted(left - {earlier, ""}))


def newest_by_node(intents: Iterable[Intent]) -> dict[NodeId, dict[str, Intent]]:
    found: dict[NodeId, dict[str, Intent]] = {}
    for intent in intents:
        found.setdefault(intent.node_id, {})[intent.backend] = intent
    return found
