"""What is wanted of a node: of all that was asked for, under whichever name, what holds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from corral.core.backends.conflicts import exclude_each_other, names_in
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, OnDrift, Policy, policy_for
from corral.core.backends.variants import Unfit
from corral.core.nodes.node import Node, NodeId

PolicyPreviews = Mapping[tuple[str, NodeId], frozenset[str] | Unfit]
"""By backend and node: the names that what a policy wants would go by there, or why nothing fits, as galleries tell."""
NO_PREVIEWS: PolicyPreviews = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedPolicy:
    """Which build a policy means on a node: for galleries to answer, as one of `PolicyPreviews`."""

    backend: str
    spec: BackendSpec
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The newer of the node's last order and the policy that fits it."""

    verb: Verb
    spec: BackendSpec
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


def find_all_desired(
    state: NodeBackends, policies: Sequence[Policy], prospects: PolicyPreviews = NO_PREVIEWS
) -> dict[str, Desired]:
    """By backend. A wish that a newer one excludes, under whichever name, is none any more."""
    found = {backend: find_desired(state, backend, policies, prospects) for backend in _backends_of(state, policies)}
    wants = {backend: wanted for backend, wanted in found.items() if wanted is not None}
    return _share_versions(_without_excluded(wants))


def _without_excluded(wants: dict[str, Desired]) -> dict[str, Desired]:
    if len({wanted.verb.ensures_presence for wanted in wants.values()}) < 2:
        return wants
    taken: dict[bool, set[str]] = {True: set(), False: set()}
    for backend, wanted in sorted(wants.items(), key=lambda one: -one[1].generation):
        presence = wanted.verb.ensures_presence
        if wanted.names.isdisjoint(taken[not presence]):
            taken[presence] |= wanted.names
        else:
            del wants[backend]
    return wants


def _share_versions(wants: dict[str, Desired]) -> dict[str, Desired]:
    """A build has one version: of wishes for it under several names the newest says which."""
    newest: dict[str, Desired] = {}
    for backend, wanted in sorted(wants.items(), key=lambda one: -one[1].generation):
        if wanted.verb.ensures_presence and wanted.spec.name and wanted.spec.digest:
            first = newest.setdefault(wanted.spec.name, wanted)
            if first is not wanted:
                spec = replace(first.spec, reference=wanted.spec.reference)
                wants[backend] = replace(wanted, spec=spec, says_version=False)
    return wants


def find_conflict(wants: Mapping[str, Desired], verb: Verb, names: frozenset[str], generation: int) -> str | None:
    """The backend whose wish excludes this one, and is newer."""
    return next((backend for backend, one in wants.items() if one.excludes(verb, names, generation)), None)


def find_desired(
    state: NodeBackends, backend: str, policies: Sequence[Policy], prospects: PolicyPreviews = NO_PREVIEWS
) -> Desired | None:
    """Under this name alone, whatever is wanted under others."""
    newest = state.newest.get(backend)
    intent = state.restored.get(backend, newest)
    policy = policy_for(state.node, backend, policies)
    on_drift = policy.on_drift if policy is not None else OnDrift.HEAL
    if policy is not None and (intent is None or intent.generation < policy.generation or _is_void(intent, policy)):
        verb = _verb_of(policy)
        spec, generation, resolved = policy.spec, policy.generation, False
        prospect = prospects.get((backend, state.node.id), frozenset())
        if isinstance(prospect, Unfit):
            return None
    elif intent is None or not _holds(intent, restored=intent is not newest):
        return None
    else:
        verb, spec, generation = intent.verb, intent.spec, intent.generation
        resolved, prospect = bool(spec.uris or spec.galleries or spec.uri), frozenset()
    return Desired(
        verb=verb,
        spec=spec,
        resolved=resolved,
        intent=intent,
        newest=newest,
        on_drift=on_drift,
        generation=generation,
        names=names_in(backend, spec) | _names_there(state, backend, verb) | prospect,
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


def find_unresolved_policies(states: Iterable[NodeBackends], policies: Sequence[Policy]) -> list[UnresolvedPolicy]:
    """What is to be on a node by a policy alone and is not there."""
    return [
        UnresolvedPolicy(backend=backend, spec=wanted.spec, node=state.node)
        for state in states
        for backend in sorted({policy.backend for policy in policies})
        if (wanted := find_desired(state, backend, policies)) is not None
        and wanted.by_policy
        and wanted.verb.ensures_presence
        and state.find(backend) is None
    ]


def _names_there(state: NodeBackends, backend: str, verb: Verb) -> frozenset[str]:
    """A delete of one build says nothing of others that share its alias."""
    found = state.find(backend)
    if found is None:
        return frozenset()
    return frozenset({found.name, found.alias} - {""}) if verb.ensures_presence else frozenset({found.name})


def _backends_of(state: NodeBackends, policies: Iterable[Policy]) -> list[str]:
    return sorted({*state.newest, *(policy.backend for policy in policies)})
