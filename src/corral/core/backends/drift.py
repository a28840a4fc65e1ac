"""Where a node differs from what was wanted of it, why, and what to do: against the wish, never the majority."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corral.core.backends.desired import NO_PREVIEWS, Desired, PolicyPreviews, find_all_desired
from corral.core.backends.exhausted import DEFAULT_EXHAUSTED_RETRY, ExhaustedRetry, may_retry
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb, short_digest
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import OnDrift, Policy
from corral.core.backends.rollout import plan_replicas
from corral.core.nodes.node import NodeId, NodeStatus
from corral.core.nodes.observed import ObservedProcess


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
class FleetSnapshot:
    """What nodes have and what is wanted of them, read together."""

    states: Sequence[NodeBackends]
    policies: Sequence[Policy]
    processes: Mapping[NodeId, Sequence[ObservedProcess]]
    prospects: PolicyPreviews

    def find_drift(self) -> list[Drift]:
        return find_drift(self.states, self.policies, self.processes, self.prospects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """An order nobody asked for, that makes a wish true again."""

    node_id: NodeId
    backend: str
    verb: Verb
    spec: BackendSpec
    resolved: bool
    """The wish names an exact version; otherwise it is to be looked up for the node first."""
    expected_generation: int | None
    desired_generation: int
    """Of the wish it makes true: what excludes it and was asked for later goes before it."""
    failed_before: bool = False
    """Its retries were exhausted, maybe because its version exists no more."""
    only_another_version: bool = False
    """The version it was for took down what served, and did not start: only another one is worth a try."""


def find_drift(
    states: Iterable[NodeBackends],
    policies: Sequence[Policy],
    processes: Mapping[NodeId, Sequence[ObservedProcess]],
    prospects: PolicyPreviews = NO_PREVIEWS,
) -> list[Drift]:
    """Only of nodes that have told what they have, and of orders that are not being carried out."""
    found: list[Drift] = []
    for state in states:
        if state.backends is None:
            continue
        for backend, wanted in find_all_desired(state, policies, prospects).items():
            if wanted.intent is not None and wanted.intent.state.live:
                continue
            found += _compare(state, backend, wanted, processes.get(state.node.id, ()))
    return found


def _compare(state: NodeBackends, backend: str, wanted: Desired, processes: Sequence[ObservedProcess]) -> list[Drift]:
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
        return [drift(DriftCause.MISSING, f"{wanted.spec.name or backend} is not on the node")]
    drifts = []
    digest = wanted.spec.digest
    if wanted.says_version and digest and found.digest and found.digest != digest:
        if wanted.spec.name and found.name != wanted.spec.name:
            drifts.append(drift(DriftCause.WRONG_VARIANT, f"it has {found.name}, not {wanted.spec.name}"))
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


def plan_corrections(
    states: Iterable[NodeBackends],
    policies: Sequence[Policy],
    *,
    now_ms: int,
    settle_ms: int,
    patience: ExhaustedRetry = DEFAULT_EXHAUSTED_RETRY,
    galleries_changed_ms: int = 0,
) -> list[Correction]:
    """Orders for healthy nodes. What has just ended is left to settle; what failed until its retries were exhausted is
    tried again after a while, or when something has changed that may help."""
    heals: list[Correction] = []
    for state in states:
        if state.backends is None or state.node.status is not NodeStatus.HEALTHY:
            continue
        for backend, wanted in find_all_desired(state, policies).items():
            if wanted.on_drift is not OnDrift.HEAL:
                continue
            drifts = [one for one in _compare(state, backend, wanted, ()) if one.cause in _HEALED]
            if not drifts or not _may_heal(wanted, drifts[0].cause, now_ms=now_ms, settle_ms=settle_ms):
                continue
            failed = _failed(wanted)
            if failed is not None and _is_settled(failed, drifts[0].cause):
                continue
            if failed is not None and not may_retry(
                failed,
                state.node,
                now_ms=now_ms,
                patience=patience,
                galleries_changed_ms=galleries_changed_ms,
                changes_version=_changes_version(failed, drifts[0].cause),
            ):
                continue
            heals.append(_heal(state, backend, wanted, drifts[0].cause, failed, galleries_changed_ms))
    return heals


def _heal(
    state: NodeBackends,
    backend: str,
    wanted: Desired,
    cause: DriftCause,
    failed: Intent | None,
    galleries_changed_ms: int,
) -> Correction:
    verb = Verb.INSTALL if wanted.verb.ensures_presence else Verb.DELETE
    outdated = failed is not None and galleries_changed_ms > (failed.finished_at or 0) and not wanted.spec.is_exact
    final = failed is not None and failed.final and _changes_version(failed, cause)
    return Correction(
        node_id=state.node.id,
        backend=backend,
        verb=failed.verb if failed is not None and _changes_version(failed, cause) else verb,
        spec=wanted.spec,
        resolved=wanted.resolved and not outdated and not final,
        failed_before=failed is not None,
        only_another_version=final,
        expected_generation=wanted.newest.generation if wanted.newest is not None else None,
        desired_generation=wanted.generation,
    )


def _failed(wanted: Desired) -> Intent | None:
    """The order that holds, where its retries were exhausted."""
    intent = wanted.intent
    dead = intent is not None and not wanted.by_policy and intent.state is IntentState.DEAD_LETTERED
    return intent if dead else None


def _changes_version(failed: Intent, cause: DriftCause) -> bool:
    """Where the backend is not there at all, it is installed."""
    return failed.verb in (Verb.UPGRADE, Verb.ROLLBACK) and cause is not DriftCause.MISSING


def _is_settled(failed: Intent, cause: DriftCause) -> bool:
    """A person named the very version that does not start, or it was only the worker that knew what it would be."""
    foreign = bool(failed.spec.galleries) and not failed.spec.uris
    return failed.final and _changes_version(failed, cause) and (failed.spec.is_exact or foreign)


def _may_heal(wanted: Desired, cause: DriftCause, *, now_ms: int, settle_ms: int) -> bool:
    newest = wanted.newest
    if newest is None:
        return True
    if newest.state.live:
        # Of a disk that was wiped meanwhile nothing can be rolled back; what it is to have is installed instead.
        tried = newest.state is IntentState.PENDING and newest.attempts > 0
        return newest.verb is Verb.ROLLBACK and tried and cause is DriftCause.MISSING
    return wanted.by_policy or now_ms - (newest.finished_at or 0) >= settle_ms


def find_stuck(states: Iterable[NodeBackends]) -> list[Intent]:
    """Open orders that failed and whose version may exist no more: it was looked up when they were given, and nobody
    asked for this very one."""
    return [
        intent
        for state in states
        if state.node.status is NodeStatus.HEALTHY
        for intent in state.newest.values()
        if intent.state is IntentState.PENDING
        and intent.attempts > 0
        and intent.verb in (Verb.INSTALL, Verb.UPGRADE)
        and intent.spec.digest
        and intent.spec.uris
        and not intent.spec.is_exact
    ]
