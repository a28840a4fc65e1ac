"""The desired state of a node: which of all intents and policies hold, whatever name they are kept under."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from corral.core.backends.conflicts import exclude_each_other, names_in
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, OnDrift, Policy, policy_for
from corral.core.backends.variants import Unfit
from corral.core.backends.version_pins import FOLLOWS, DesiredVersion, as_pinned, desired_version
from corral.core.nodes.node import Node, NodeId

PolicyPreviews = Mapping[tuple[str, NodeId], frozenset[str] | Unfit]
"""By backend and node: the names that the build a policy would install has there, or why no build fits."""
NO_PREVIEWS: PolicyPreviews = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedPolicy:
    """A policy whose build for a node has to be looked up in the galleries; the answer is a `PolicyPreviews` entry."""

    backend: str
    spec: BackendSpec
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The desired state of one backend on one node: the newer of the node's last intent and the matching policy."""

    verb: Verb
    spec: BackendSpec
    resolved: bool
    """Whether the spec names a source. Otherwise it has to be looked up for the node."""
    intent: Intent | None
    """The effective intent: the newest one or, where that was cancelled, the one it had replaced."""
    newest: Intent | None
    """The newest intent, whatever its state."""
    on_drift: OnDrift
    generation: int
    names: frozenset[str]
    """All names of the build on the node that must be present or absent."""
    decides_version: bool = True
    """False where a newer desired state of the same build decides its version."""
    version: DesiredVersion = FOLLOWS

    @property
    def by_policy(self) -> bool:
        """Whether it comes from the policy and not from the intent."""
        return self.intent is None or self.intent.generation != self.generation

    def excludes(self, verb: Verb, names: frozenset[str], generation: int) -> bool:
        """Whether this contradicts an older intent of that verb and generation for one of those names."""
        return self.generation > generation and exclude_each_other((self.verb, self.names), (verb, names))


def find_all_desired(
    state: NodeBackends, policies: Sequence[Policy], previews: PolicyPreviews = NO_PREVIEWS
) -> dict[str, Desired]:
    """By backend, without those that a newer one excludes, under whichever name."""
    found = {backend: find_desired(state, backend, policies, previews) for backend in _backends_of(state, policies)}
    return _share_versions(_without_excluded({backend: one for backend, one in found.items() if one is not None}))


def _without_excluded(desired: dict[str, Desired]) -> dict[str, Desired]:
    if len({one.verb.ensures_presence for one in desired.values()}) < 2:
        return desired
    taken: dict[bool, set[str]] = {True: set(), False: set()}
    for backend, one in sorted(desired.items(), key=lambda item: -item[1].generation):
        presence = one.verb.ensures_presence
        if one.names.isdisjoint(taken[not presence]):
            taken[presence] |= one.names
        else:
            del desired[backend]
    return desired


def _share_versions(desired: dict[str, Desired]) -> dict[str, Desired]:
    """A node has one version of a build: if several names refer to the build, the newest desired state decides it."""
    newest: dict[str, Desired] = {}
    for backend, one in sorted(desired.items(), key=lambda item: -item[1].generation):
        if one.verb.ensures_presence and one.spec.build.name and one.spec.build.digest:
            first = newest.setdefault(one.spec.build.name, one)
            if first is not one:
                spec = replace(first.spec, reference=one.spec.reference)
                desired[backend] = replace(one, spec=spec, decides_version=False)
    return desired


def find_conflict(desired: Mapping[str, Desired], verb: Verb, names: frozenset[str], generation: int) -> str | None:
    """The backend whose desired state is newer and excludes an intent of that verb for one of those names."""
    return next((backend for backend, one in desired.items() if one.excludes(verb, names, generation)), None)


def find_desired(
    state: NodeBackends, backend: str, policies: Sequence[Policy], previews: PolicyPreviews = NO_PREVIEWS
) -> Desired | None:
    """Of this name alone, whatever is desired under other names."""
    newest = state.newest.get(backend)
    intent = state.restored.get(backend, newest)
    policy = policy_for(state.node, backend, policies)
    on_drift = policy.on_drift if policy is not None else OnDrift.CORRECT
    if policy is not None and (intent is None or intent.generation < policy.generation or _is_void(intent, policy)):
        verb = _verb_of(policy)
        spec, generation, resolved = policy.spec, policy.generation, False
        preview = previews.get((backend, state.node.id), frozenset())
        if isinstance(preview, Unfit):
            return None
    elif intent is None or not _is_effective(intent, restored=intent is not newest):
        return None
    else:
        verb, spec, generation = intent.verb, intent.spec, intent.generation
        resolved, preview = bool(spec.build.uris or spec.galleries or spec.uri), frozenset()
    found = state.find(backend)
    build = spec.build.name or (found.name if found is not None else "")
    version = desired_version(state.node, state.key_of(backend), build, state.pins, state.held)
    if verb.ensures_presence and version.spec is not None:
        spec, resolved = as_pinned(version.spec, spec.reference), True
    return Desired(
        verb=verb,
        spec=spec,
        resolved=resolved,
        intent=intent,
        newest=newest,
        on_drift=on_drift,
        generation=generation,
        names=names_in(backend, spec) | _installed_names(state, backend, verb) | preview,
        version=version,
    )


def _is_effective(intent: Intent, *, restored: bool) -> bool:
    """A superseded intent is in effect again if the one that had replaced it was cancelled."""
    return intent.state is not IntentState.CANCELLED and (restored or intent.state is not IntentState.SUPERSEDED)


def _verb_of(policy: Policy) -> Verb:
    return Verb.INSTALL if policy.ensure is Ensure.PRESENT else Verb.DELETE


def _is_void(intent: Intent, policy: Policy) -> bool:
    """A cancelled intent no longer overrides the policy, unless it did what the policy does: then the policy would only
    repeat what was cancelled."""
    return intent.state is IntentState.CANCELLED and intent.verb is not _verb_of(policy)


def find_unresolved_policies(states: Iterable[NodeBackends], policies: Sequence[Policy]) -> list[UnresolvedPolicy]:
    """Policies that must install a backend where it is missing."""
    return [
        UnresolvedPolicy(backend=backend, spec=desired.spec, node=state.node)
        for state in states
        for backend in sorted({policy.backend for policy in policies})
        if (desired := find_desired(state, backend, policies)) is not None
        and desired.by_policy
        and desired.verb.ensures_presence
        and state.find(backend) is None
    ]


def _installed_names(state: NodeBackends, backend: str, verb: Verb) -> frozenset[str]:
    """Without the alias for a delete: other builds that share it stay."""
    found = state.find(backend)
    if found is None:
        return frozenset()
    return frozenset({found.name, found.alias} - {""}) if verb.ensures_presence else frozenset({found.name})


def _backends_of(state: NodeBackends, policies: Iterable[Policy]) -> list[str]:
    return sorted({*state.newest, *(policy.backend for policy in policies)})
