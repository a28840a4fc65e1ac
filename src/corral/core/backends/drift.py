"""Drift: where a node differs from its desired state, why, and what corrects it. Other nodes are no measure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from corral.core.backends.build import short_digest
from corral.core.backends.desired import NO_PREVIEWS, Desired, PolicyPreviews, find_all_desired
from corral.core.backends.exhausted import DEFAULT_EXHAUSTED_RETRY, ExhaustedRetry, may_retry
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends, has_version
from corral.core.backends.policies import OnDrift, Policy
from corral.core.backends.rollout import plan_replicas
from corral.core.nodes.node import NodeId, NodeStatus
from corral.core.nodes.observed import ObservedBackend, ObservedProcess, families_of


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
    """What the nodes have and what is desired of them, read together."""

    states: Sequence[NodeBackends]
    policies: Sequence[Policy]
    processes: Mapping[NodeId, Sequence[ObservedProcess]]
    previews: PolicyPreviews
    models: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By family of backends: the models that name it."""

    def find_drift(self) -> list[Drift]:
        return find_drift(self.states, self.policies, self.processes, self.previews, models=self.models)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """An intent that nobody requested; it brings a node back to its desired state."""

    node_id: NodeId
    backend: str
    verb: Verb
    spec: BackendSpec
    resolved: bool
    """Whether the spec names an exact version. Otherwise it has to be looked up for the node first."""
    expected_generation: int | None
    desired_generation: int
    """Of the desired state it restores: whatever excludes that and was requested later takes precedence."""
    failed_before: bool = False
    """Whether the retries of an earlier attempt were exhausted, maybe because its source has deleted the version."""
    only_another_version: bool = False
    """Whether the version failed to start after it had replaced a serving one, so that only another may be tried."""


def find_drift(
    states: Iterable[NodeBackends],
    policies: Sequence[Policy],
    processes: Mapping[NodeId, Sequence[ObservedProcess]],
    previews: PolicyPreviews = NO_PREVIEWS,
    *,
    models: Mapping[str, Collection[str]] | None = None,
) -> list[Drift]:
    """Of nodes that have reported their backends, and of backends without a running intent; also of those that were
    lost while they wait for a wave of a rollout. `models`: by family of backends, those that name it."""
    found: list[Drift] = []
    for state in states:
        if state.backends is None:
            continue
        for backend, desired in find_all_desired(state, policies, previews).items():
            if desired.intent is not None and desired.intent.state.live:
                if desired.intent.held and state.find(backend) is None:
                    found.append(_missing_while_held(state, backend, desired))
                continue
            found += _compare(state, backend, desired)
            found += _find_old_processes(state, backend, desired, processes.get(state.node.id, ()), models or {})
    return found


def _missing_while_held(state: NodeBackends, backend: str, desired: Desired) -> Drift:
    """Not corrected: an intent for the version before would take the node out of the rollout."""
    name = desired.spec.build.name or backend
    detail = f"{name} is not installed; the node waits for its wave of a rollout, which installs it"
    return Drift(
        node_id=state.node.id, backend=backend, cause=DriftCause.MISSING, detail=detail, on_drift=desired.on_drift
    )


def _compare(state: NodeBackends, backend: str, desired: Desired) -> list[Drift]:
    """What is installed, against what is desired."""

    def drift(cause: DriftCause, detail: str) -> Drift:
        return Drift(node_id=state.node.id, backend=backend, cause=cause, detail=detail, on_drift=desired.on_drift)

    found = state.find(backend)
    if desired.verb is Verb.DELETE:
        return [drift(DriftCause.EXTRA, f"{found.name} was deleted but is installed")] if found is not None else []
    if found is None:
        return [drift(DriftCause.MISSING, f"{desired.spec.build.name or backend} is not installed")]
    build, digest = desired.spec.build, desired.spec.build.digest
    if desired.decides_version and digest and found.digest and found.digest != digest:
        if build.name and found.name != build.name:
            return [drift(DriftCause.WRONG_VARIANT, f"{found.name} is installed instead of {build.name}")]
        has, should = short_digest(found.digest), short_digest(digest)
        return [drift(DriftCause.WRONG_VERSION, f"{found.name} is at {has} instead of {should}")]
    if desired.decides_version and desired.version.spec is not None and not has_version(found, desired.spec):
        detail = f"{found.name} is at {found.version} instead of {build.version}"
        return [drift(DriftCause.WRONG_VERSION, detail)]
    return []


def _find_old_processes(
    state: NodeBackends,
    backend: str,
    desired: Desired,
    processes: Sequence[ObservedProcess],
    models: Mapping[str, Collection[str]],
) -> Iterator[Drift]:
    """Processes of another version than the installed one, or of the build before it."""
    found = state.find(backend)
    if desired.verb is Verb.DELETE or found is None or not found.digest:
        return
    families = families_of(state.backends or (), found.name)
    named = {model for family in families for model in models.get(family, ())}
    for change in plan_replicas(processes, backend=found.name, digest=found.digest, models=named):
        yield Drift(
            node_id=state.node.id,
            backend=backend,
            cause=DriftCause.OLD_PROCESS,
            detail=_describe_old(change.process, found),
            on_drift=desired.on_drift,
            process_key=change.process.process_key,
        )


def _describe_old(process: ObservedProcess, found: ObservedBackend) -> str:
    version = short_digest(process.digest)
    if process.backend == found.name:
        return f"{process.process_key} runs the old version {version}"
    return f"{process.process_key} runs {process.backend} {version} instead of {found.name}"


def plan_corrections(
    states: Iterable[NodeBackends],
    policies: Sequence[Policy],
    *,
    now_ms: int,
    settle_ms: int,
    exhausted_retry: ExhaustedRetry = DEFAULT_EXHAUSTED_RETRY,
    galleries_changed_ms: int = 0,
) -> list[Correction]:
    """For healthy nodes. An intent that has just ended is left alone for `settle_ms`. One whose retries were exhausted
    is retried after a while, or after a change that may help."""
    corrections: list[Correction] = []
    for state in states:
        if state.backends is None or state.node.status is not NodeStatus.HEALTHY:
            continue
        for backend, desired in find_all_desired(state, policies).items():
            if desired.on_drift is not OnDrift.CORRECT:
                continue
            drifts = _compare(state, backend, desired)
            if not drifts or not _may_correct(desired, drifts[0].cause, now_ms=now_ms, settle_ms=settle_ms):
                continue
            failed = _failed(desired)
            if failed is None and drifts[0].cause is DriftCause.WRONG_VERSION and not state.node.speaks_corral:
                continue  # an install would change nothing: a LocalAI worker has only the version its gallery offers
            if failed is not None and _is_decided(failed, drifts[0].cause):
                continue
            wiped = failed is not None and failed.verb.changes_version and drifts[0].cause is DriftCause.MISSING
            if (
                failed is not None
                and not wiped
                and not may_retry(
                    failed,
                    state.node,
                    now_ms=now_ms,
                    retry=exhausted_retry,
                    galleries_changed_ms=galleries_changed_ms,
                    changes_version=_changes_version(failed, drifts[0].cause),
                )
            ):
                continue
            corrections.append(_correct(state, backend, desired, drifts[0].cause, failed, galleries_changed_ms))
    return corrections


def _correct(
    state: NodeBackends,
    backend: str,
    desired: Desired,
    cause: DriftCause,
    failed: Intent | None,
    galleries_changed_ms: int,
) -> Correction:
    verb = Verb.DELETE
    if desired.verb.ensures_presence:
        replaces = cause is not DriftCause.MISSING and state.node.speaks_corral
        verb = Verb.UPGRADE if replaces else Verb.INSTALL  # a version that replaces another one is tried first
    outdated = failed is not None and galleries_changed_ms > (failed.finished_at or 0) and not desired.spec.is_exact
    final = failed is not None and failed.final and _changes_version(failed, cause)
    return Correction(
        node_id=state.node.id,
        backend=backend,
        verb=failed.verb if failed is not None and _changes_version(failed, cause) else verb,
        spec=desired.spec,
        resolved=desired.resolved and not outdated and not final,
        failed_before=failed is not None,
        only_another_version=final,
        expected_generation=desired.newest.generation if desired.newest is not None else None,
        desired_generation=desired.generation,
    )


def _failed(desired: Desired) -> Intent | None:
    """The effective intent, if its retries were exhausted and it was about this version: a pin may have changed."""
    intent = desired.intent
    if intent is None or desired.by_policy or intent.state is not IntentState.DEAD_LETTERED:
        return None
    return intent if not intent.verb.ensures_presence or _is_same_build(intent.spec, desired.spec) else None


def _is_same_build(one: BackendSpec, other: BackendSpec) -> bool:
    return (one.build.name, one.build.digest, one.build.version) == (
        other.build.name,
        other.build.digest,
        other.build.version,
    )


def _changes_version(failed: Intent, cause: DriftCause) -> bool:
    """Whether the retry changes the version of an installed backend; a missing one is installed instead."""
    return failed.verb.changes_version and cause is not DriftCause.MISSING


def _is_decided(failed: Intent, cause: DriftCause) -> bool:
    """Whether no other version may be tried: a person named the one that does not start, or only the worker resolves
    the name."""
    foreign = bool(failed.spec.galleries) and not failed.spec.build.uris
    return failed.final and _changes_version(failed, cause) and (failed.spec.is_exact or foreign)


def _may_correct(desired: Desired, cause: DriftCause, *, now_ms: int, settle_ms: int) -> bool:
    newest = desired.newest
    if newest is None:
        return True
    if newest.state.live:
        # Nothing can be rolled back on a disk that was wiped meanwhile; the desired version is installed instead.
        tried = newest.state is IntentState.PENDING and newest.attempts > 0
        return newest.verb is Verb.ROLLBACK and tried and cause is DriftCause.MISSING
    return desired.by_policy or now_ms - (newest.finished_at or 0) >= settle_ms


def find_stuck(states: Iterable[NodeBackends]) -> list[Intent]:
    """Intents that failed and whose version may no longer exist: it was looked up when they were created. An exact
    version whose retries are exhausted is looked up as well, for the reason."""
    return [
        intent
        for state in states
        if state.node.status is NodeStatus.HEALTHY
        for intent in state.newest.values()
        if intent.state is IntentState.PENDING or (intent.state is IntentState.DEAD_LETTERED and intent.spec.is_exact)
        if intent.attempts > 0
        and intent.verb in (Verb.INSTALL, Verb.UPGRADE)
        and intent.spec.build.digest
        and intent.spec.build.uris
    ]
