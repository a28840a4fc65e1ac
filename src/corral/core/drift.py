"""Where a node differs from what was wanted of it, why, and what to do: against the wish, never the majority."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from corral.core.intents import Intent, IntentState, Verb, Wish, short_digest
from corral.core.nodes import NodeId, NodeStatus
from corral.core.observed import ObservedProcess
from corral.core.orders import NodeState
from corral.core.policies import Ensure, OnDrift, Policy, policy_for
from corral.core.rivals import exclude_each_other, names_in
from corral.core.rollout import plan_replicas


class DriftCause(StrEnum):
    MISSING = "missing"
    EXTRA = "extra"
    WRONG_VERSION = "wrong_version"
    WRONG_VARIANT = "wrong_variant"
    OLD_PROCESS = "old_process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    node_id: NodeId
    backend: str
    cause: DriftCause
    detail: str
    on_drift: OnDrift
    process_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPicture:
    """What nodes have and what is wanted of them, read together."""

    states: Sequence[NodeState]
    policies: Sequence[Policy]
    processes: Mapping[NodeId, Sequence[ObservedProcess]]

    def find_drift(self) -> list[Drift]:
        return find_drift(self.states, self.policies, self.processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """An order nobody asked for, that makes a wish true again."""

    node_id: NodeId
    backend: str
    verb: Verb
    wish: Wish
    resolved: bool
    """The wish names an exact version; otherwise it is to be looked up for the node first."""
    expected_generation: int | None
    asked_generation: int
    """Of the wish it makes true: what excludes it and was asked for later goes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The newer of the node's last order and the policy that fits it."""

    verb: Verb
    wish: Wish
    resolved: bool
    intent: Intent | None
    on_drift: OnDrift
    generation: int
    names: frozenset[str]
    """All that what is to be there, or away, goes by on the node."""
    says_version: bool = True
    """No newer wish for the same build does."""

    def excludes(self, verb: Verb, names: frozenset[str], generation: int) -> bool:
        """And was asked for later."""
        return self.generation > generation and exclude_each_other((self.verb, self.names), (verb, names))


def find_wants(state: NodeState, policies: Sequence[Policy]) -> dict[str, Wanted]:
    """By backend. A wish that a newer one excludes, under whichever name, is none any more."""
    found = {backend: _find_wanted(state, backend, policies) for backend in _backends_of(state, policies)}
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


def _find_wanted(state: NodeState, backend: str, policies: Sequence[Policy]) -> Wanted | None:
    intent = state.newest.get(backend)
    policy = policy_for(state.node, backend, policies)
    on_drift = policy.on_drift if policy is not None else OnDrift.HEAL
    if policy is not None and (intent is None or intent.generation < policy.generation):
        verb = Verb.INSTALL if policy.ensure is Ensure.PRESENT else Verb.DELETE
        wish, generation, resolved = policy.wish, policy.generation, False
    elif intent is None or intent.state in (IntentState.CANCELLED, IntentState.SUPERSEDED):
        return None
    else:
        verb, wish, generation = intent.verb, intent.wish, intent.generation
        resolved = bool(wish.uris or wish.galleries or wish.uri)
    return Wanted(
        verb=verb,
        wish=wish,
        resolved=resolved,
        intent=intent,
        on_drift=on_drift,
        generation=generation,
        names=names_in(backend, wish) | _names_there(state, backend, verb),
    )


def _names_there(state: NodeState, backend: str, verb: Verb) -> frozenset[str]:
    """A delete of one build says nothing of others that share its alias."""
    found = state.find(backend)
    if found is None:
        return frozenset()
    return frozenset({found.name, found.alias} - {""}) if verb.wants_presence else frozenset({found.name})


def _backends_of(state: NodeState, policies: Iterable[Policy]) -> list[str]:
    return sorted({*state.newest, *(policy.backend for policy in policies)})


def find_drift(
    states: Iterable[NodeState], policies: Sequence[Policy], processes: Mapping[NodeId, Sequence[ObservedProcess]]
) -> list[Drift]:
    """Only of nodes that have told what they have, and of orders that are not being carried out."""
    found: list[Drift] = []
    for state in states:
        if state.backends is None:
            continue
        for backend, wanted in find_wants(state, policies).items():
            if wanted.intent is not None and wanted.intent.state.live:
                continue
            found += _compare(state, backend, wanted, processes.get(state.node.id, ()))
    return found


def _compare(state: NodeState, backend: str, wanted: Wanted, processes: Sequence[ObservedProcess]) -> list[Drift]:
    def drift(cause: DriftCause, detail: str, process_key: str = "") -> Drift:
        return Drift(
            node_id=state.node.id,
            backend=backend,
            cause=cause,
            detail=detail,
            on_drift=wanted.on_drift,
            process_key=process_key,
        )

    found = state.find(backend)
    if wanted.verb is Verb.DELETE:
        return [drift(DriftCause.EXTRA, f"{found.name} was deleted, and is there")] if found is not None else []
    if found is None:
        return [drift(DriftCause.MISSING, f"{wanted.wish.name or backend} is not on the node")]
    drifts = []
    digest = wanted.wish.digest
    if wanted.says_version and digest and found.digest and found.digest != digest:
        if wanted.wish.name and found.name != wanted.wish.name:
            drifts.append(drift(DriftCause.WRONG_VARIANT, f"it has {found.name}, not {wanted.wish.name}"))
        else:
            has, should = short_digest(found.digest), short_digest(digest)
            drifts.append(drift(DriftCause.WRONG_VERSION, f"it has {has} of {found.name}, not {should}"))
    if found.digest:
        drifts += [
            drift(
                DriftCause.OLD_PROCESS,
                f"{change.process.process_key} runs {short_digest(change.process.digest)}, not the current version",
                change.process.process_key,
            )
            for change in plan_replicas(processes, backend=found.name, digest=found.digest)
        ]
    return drifts


_HEALED = (DriftCause.MISSING, DriftCause.EXTRA, DriftCause.WRONG_VERSION, DriftCause.WRONG_VARIANT)


def plan_heal(states: Iterable[NodeState], policies: Sequence[Policy], *, now_ms: int, settle_ms: int) -> list[Heal]:
    """Orders for healthy nodes. Whatever ended without success is left to people; what has just ended, to settle."""
    heals: list[Heal] = []
    for state in states:
        if state.backends is None or state.node.status is not NodeStatus.HEALTHY:
            continue
        for backend, wanted in find_wants(state, policies).items():
            if wanted.on_drift is not OnDrift.HEAL or not _may_heal(wanted, now_ms, settle_ms):
                continue
            drifts = [one for one in _compare(state, backend, wanted, ()) if one.cause in _HEALED]
            if drifts:
                heals.append(
                    Heal(
                        node_id=state.node.id,
                        backend=backend,
                        verb=Verb.INSTALL if wanted.verb.wants_presence else Verb.DELETE,
                        wish=wanted.wish,
                        resolved=wanted.resolved,
                        expected_generation=wanted.intent.generation if wanted.intent is not None else None,
                        asked_generation=wanted.generation,
                    )
                )
    return heals


def _may_heal(wanted: Wanted, now_ms: int, settle_ms: int) -> bool:
    intent = wanted.intent
    if intent is None:
        return True
    if intent.state.live:
        return False
    by_policy = intent.generation != wanted.generation
    if by_policy:
        return True
    return intent.state is IntentState.SUCCEEDED and now_ms - (intent.finished_at or 0) >= settle_ms
