"""What is wanted of a node: of all that was asked for, under whichever name, what holds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from corral.core.backends.conflicts import exclude_each_other, names_in
from corral.core.backends.intents import Intent, IntentState, Verb, Wish
from corral.core.backends.planning import NodeState
from corral.core.backends.policies import Ensure, OnDrift, Policy, policy_for
from corral.core.backends.variants import Unfit
from corral.core.nodes.node import Node, NodeId

Prospects = Mapping[tuple[str, NodeId], frozenset[str] | Unfit]
"""By backend and node: the names that what a policy wants would go by there, or why nothing fits, as galleries tell."""
NO_PROSPECTS: Prospects = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """Which build a policy means on a node: for galleries to answer, as one of `Prospects`."""

    backend: str
    wish: Wish
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The newer of the node's last order and the policy that fits it."""

    verb: Verb
    wish: Wish
    resolved: bool
    intent: Intent | None
    """The order that holds: the last one or, where that was cancelled, the one it had replaced."""
    newest: Intent | None
    """The last order, whatever became of it."""
    on_drift: OnDrift
    generation: int
    names: frozenset[str]
    """All that what is to be there, or away, goes by on the node."""
    says_version: bool = True
    """No newer wish for the same build does."""

    @property
    def by_policy(self) -> bool:
        return self.intent is None or self.intent.generation != self.generation

    def excludes(self, verb: Verb, names: frozenset[str], generation: int) -> bool:
        """And was asked for later."""
        return self.generation > generation and exclude_each_other((self.verb, self.names), (verb, names))


def find_wants(state: NodeState, policies: Sequence[Policy], prospects: Prospects = NO_PROSPECTS) -> dict[str, Wanted]:
    """By backend. A wish that a newer one excludes, under whichever name, is none any more."""
    found = {backend: find_wanted(state, backend, policies, prospects) for backend in _backends_of(state, policies)}
    wants = {backend: wanted for backend, wanted in found.items() if wanted is not None}
    return _share_versions(_without_excluded(wants))


def _without_excluded(wants: dict[str, Wanted]) -> dict[str, Wanted]:
    if len({wanted.verb.wants_presence for wanted in wants.values()}) < 2:
        return wants
    taken: dict[bool, set[str]] = {True: set(), False: set()}
    for backend, wanted in sorted(wants.items(), key=lambda one: -one[1].generation):
        presence = wanted.verb.wants_presence
        if wanted.names.isdisjoint(taken[not presence]):
            taken[presence] |= wanted.names
        else:
            del wants[backend]
    return wants


def _share_versions(wants: dict[str, Wanted]) -> dict[str, Wanted]:
    """A build has one version: of wishes for it under several names the newest says which."""
    newest: dict[str, Wanted] = {}
    for backend, wanted in sorted(wants.items(), key=lambda one: -one[1].generation):
        if wanted.verb.wants_presence and wanted.wish.name and wanted.wish.digest:
            first = newest.setdefault(wanted.wish.name, wanted)
            if first is not wanted:
                wish = replace(first.wish, element=wanted.wish.element)
                wants[backend] = replace(wanted, wish=wish, says_version=False)
    return wants


def find_rival(wants: Mapping[str, Wanted], verb: Verb, names: frozenset[str], generation: int) -> str | None:
    """The backend whose wish excludes this one, and is newer."""
    return next((backend for backend, one in wants.items() if one.excludes(verb, names, generation)), None)


def find_wanted(
    state: NodeState, backend: str, policies: Sequence[Policy], prospects: Prospects = NO_PROSPECTS
) -> Wanted | None:
    """Under this name alone, whatever is wanted under others."""
    newest = state.newest.get(backend)
    intent = state.restored.get(backend, newest)
    policy = policy_for(state.node, backend, policies)
    on_drift = policy.on_drift if policy is not None else OnDrift.HEAL
    if policy is not None and (intent is None or intent.generation < policy.generation or _is_void(intent, policy)):
        verb = _verb_of(policy)
        wish, generation, resolved = policy.wish, policy.generation, False
        prospect = prospects.get((backend, state.node.id), frozenset())
        if isinstance(prospect, Unfit):
            return None
    elif intent is None or not _holds(intent, restored=intent is not newest):
        return None
    else:
        verb, wish, generation = intent.verb, intent.wish, intent.generation
        resolved, prospect = bool(wish.uris or wish.galleries or wish.uri), frozenset()
    return Wanted(
        verb=verb,
        wish=wish,
        resolved=resolved,
        intent=intent,
        newest=newest,
        on_drift=on_drift,
        generation=generation,
        names=names_in(backend, wish) | _names_there(state, backend, verb) | prospect,
    )


def _holds(intent: Intent, *, restored: bool) -> bool:
    """What was replaced holds again where whatever had replaced it was cancelled."""
    return intent.state is not IntentState.CANCELLED and (restored or intent.state is not IntentState.SUPERSEDED)


def _verb_of(policy: Policy) -> Verb:
    return Verb.INSTALL if policy.ensure is Ensure.PRESENT else Verb.DELETE


def _is_void(intent: Intent, policy: Policy) -> bool:
    """It was called off, and was something else than what the policy itself gives orders for: of that, the policy would
    only give the next one."""
    return intent.state is IntentState.CANCELLED and intent.verb is not _verb_of(policy)


def find_open_questions(states: Iterable[NodeState], policies: Sequence[Policy]) -> list[OpenQuestion]:
    """What is to be on a node by a policy alone and is not there."""
    return [
        OpenQuestion(backend=backend, wish=wanted.wish, node=state.node)
        for state in states
        for backend in sorted({policy.backend for policy in policies})
        if (wanted := find_wanted(state, backend, policies)) is not None
        and wanted.by_policy
        and wanted.verb.wants_presence
        and state.find(backend) is None
    ]


def _names_there(state: NodeState, backend: str, verb: Verb) -> frozenset[str]:
    """A delete of one build says nothing of others that share its alias."""
    found = state.find(backend)
    if found is None:
        return frozenset()
    return frozenset({found.name, found.alias} - {""}) if verb.wants_presence else frozenset({found.name})


def _backends_of(state: NodeState, policies: Iterable[Policy]) -> list[str]:
    return sorted({*state.newest, *(policy.backend for policy in policies)})
