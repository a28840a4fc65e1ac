"""Where a node differs from what was wanted of it, why, and what to do: against the wish, never the majority."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corral.core.intents import IntentState, Verb, Wish, short_digest
from corral.core.nodes import NodeId, NodeStatus
from corral.core.observed import ObservedProcess
from corral.core.orders import NodeState
from corral.core.policies import OnDrift, Policy
from corral.core.rollout import plan_replicas
from corral.core.wants import NO_PROSPECTS, Prospects, Wanted, find_wants


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
    prospects: Prospects

    def find_drift(self) -> list[Drift]:
        return find_drift(self.states, self.policies, self.processes, self.prospects)


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


def find_drift(
    states: Iterable[NodeState],
    policies: Sequence[Policy],
    processes: Mapping[NodeId, Sequence[ObservedProcess]],
    prospects: Prospects = NO_PROSPECTS,
) -> list[Drift]:
    """Only of nodes that have told what they have, and of orders that are not being carried out."""
    found: list[Drift] = []
    for state in states:
        if state.backends is None:
            continue
        for backend, wanted in find_wants(state, policies, prospects).items():
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
    if wanted.by_policy:
        return True
    return intent.state is IntentState.SUCCEEDED and now_ms - (intent.finished_at or 0) >= settle_ms
