"""Explains a backend on a node: why this build, why this version, and why what differs from it is not corrected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from corral.core.backends.build import BuildRef, short_digest
from corral.core.backends.desired import Desired, PolicyPreviews, find_all_desired, find_desired
from corral.core.backends.drift import Drift, DriftCause
from corral.core.backends.exhausted import ExhaustedRetry, next_retry_ms
from corral.core.backends.intents import Intent, IntentState
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import OnDrift, Policy, policy_for
from corral.core.backends.rollout_progress import describe_for_node
from corral.core.backends.rollouts import HeldBack, Rollout, Statuses
from corral.core.backends.upgrades import Unknown, compare_offer
from corral.core.backends.variants import Unfit
from corral.core.backends.version_pins import FOLLOWS
from corral.core.nodes.node import NodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """What the whole fleet knows, for the explanation of one backend on one node."""

    policies: Sequence[Policy]
    previews: PolicyPreviews
    requesters: Mapping[str, tuple[str, int]]
    """By operation: who requested it, and when."""
    retry: ExhaustedRetry
    replacing: Mapping[str, str]
    """By process key: what keeps a replica of an old version from being replaced."""
    rollouts: Sequence[Rollout] = ()
    """Those that have not ended, with gates."""
    held: Sequence[HeldBack] = ()
    statuses: Statuses = field(default_factory=dict)
    now_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedDrift:
    cause: DriftCause
    detail: str
    not_corrected: str
    """Why it is still there, and what happens next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedBackend:
    node_id: str
    node_name: str
    build: str
    """Empty where it is neither installed nor desired."""
    build_reason: str
    version: str
    digest: str
    """Of the installed version."""
    desired: str
    """What is desired, by whom and since when."""
    version_reason: str
    """Why this version: a pin, or the galleries."""
    upgrade: str
    """Whether a newer version exists, and what holds it back."""
    rollout: str
    """The open rollout: the wave of this node, and what that waits for; empty without one."""
    last_change: str
    """The newest request or correction, and what became of it."""
    drift: list[ExplainedDrift]


def explain_backend(
    state: NodeBackends,
    backend: str,
    drifts: Sequence[Drift],
    offered: BuildRef | Unknown | None,
    context: BackendContext,
) -> ExplainedBackend:
    key = state.key_of(backend)
    found, newest = state.find(backend), state.newest.get(key)
    desired = find_all_desired(state, context.policies, context.previews).get(key)
    alone = find_desired(state, key, context.policies, context.previews)
    version = desired.version if desired is not None else state.desired_version(backend)
    build = found.name if found is not None else desired.spec.build.name if desired is not None else ""
    return ExplainedBackend(
        node_id=state.node.id,
        node_name=state.node.name,
        build=build,
        build_reason=_build_reason(state, key, desired),
        version=found.version if found is not None else "",
        digest=found.digest if found is not None else "",
        desired=_desired(state, key, desired, alone, context),
        version_reason=version.reason if build or desired is not None else FOLLOWS.reason,
        upgrade=_upgrade(state, backend, offered, context),
        rollout=_rollout(state, key, context),
        last_change=_last_change(newest, context) if newest is not None else "",
        drift=[
            ExplainedDrift(cause=one.cause, detail=one.detail, not_corrected=_why_not(state, one, desired, context))
            for one in drifts
        ],
    )


def _build_reason(state: NodeBackends, key: str, desired: Desired | None) -> str:
    intent = state.effective_intent(key)
    if intent is not None and intent.spec.reason:
        return intent.spec.reason
    if state.find(key) is not None:
        return "a load installed it, or it was there before the node joined"
    return "it is looked up in the galleries when it is installed" if desired is not None else ""


def _desired(
    state: NodeBackends, key: str, desired: Desired | None, alone: Desired | None, context: BackendContext
) -> str:
    if desired is None and alone is not None:
        return "nothing: a newer request for another name of the same build excludes it"
    if desired is None:
        newest = state.newest.get(key)
        if newest is not None and newest.state is IntentState.CANCELLED:
            return "nothing: the last request was cancelled, and there was none before it"
        preview = context.previews.get((key, state.node.id))
        if isinstance(preview, Unfit):
            return f"nothing: {preview.reason}"
        return "nothing: no policy and no request is about it on this node"
    what = "installed" if desired.verb.ensures_presence else "absent"
    policy = policy_for(state.node, key, context.policies)
    if desired.by_policy and policy is not None:
        where = " ".join(f"{label}={value}" for label, value in sorted(policy.selector.items()))
        return f"{what}, by the policy for {where or 'all nodes'} of {policy.created_by} since {_at(policy.created_at)}"
    intent = desired.intent
    assert intent is not None
    again = "" if intent is desired.newest else f"; the newer {state.newest[key].verb.value} was cancelled"
    return f"{what}, by {_requested(intent, context)}{again}"


def _requested(intent: Intent, context: BackendContext) -> str:
    by, at_ms = context.requesters.get(intent.operation_id, ("", 0))
    who = f" of {by} at {_at(at_ms)}" if by else ""
    return f"the {intent.verb.value}{who} (operation {intent.operation_id})"


def _rollout(state: NodeBackends, key: str, context: BackendContext) -> str:
    mine = [one for one in context.rollouts if one.backend == key]
    texts = (
        describe_for_node(one, state.node, statuses=context.statuses, now_ms=context.now_ms) for one in reversed(mine)
    )
    return next((text for text in texts if text), "")


def _upgrade(state: NodeBackends, backend: str, offered: BuildRef | Unknown | None, context: BackendContext) -> str:
    if offered is None or state.find(backend) is None:
        return ""
    outdated = compare_offer(state, backend, offered, context.held)
    if isinstance(outdated, Unknown):
        return f"it is unknown whether a newer version exists: {outdated.reason}"
    if outdated is None:
        return "it is up to date"
    available = outdated.available_version or short_digest(outdated.available_digest)
    if outdated.pinned:
        return f"held back: {outdated.pinned}; {available} available"
    if outdated.held_back or outdated.rolling_out:
        return outdated.held_back or outdated.rolling_out
    policy = policy_for(state.node, state.key_of(backend), context.policies)
    if policy is not None and policy.on_drift is OnDrift.FREEZE:
        return f"held back: its policy freezes the version; {available} available"
    return f"{available} available; `corral backends upgrade {state.key_of(backend)}` installs it"


def _last_change(newest: Intent, context: BackendContext) -> str:
    text = _requested(newest, context)
    match newest.state:
        case IntentState.SUCCEEDED:
            return f"{text} is done"
        case IntentState.DEAD_LETTERED:
            return f"{text} failed {newest.attempts} times: {newest.last_error}"
        case IntentState.CANCELLED | IntentState.SUPERSEDED:
            return f"{text} was cancelled: {newest.last_error}"
        case _:
            tried = f", failed {newest.attempts} times" if newest.attempts else ""
            error = f": {newest.last_error}" if newest.last_error else ""
            again = f"; next attempt at {_at(newest.due_at)}" if newest.attempts else ""
            return f"{text} is {newest.state.value}{tried}{error}{again}"


def _why_not(state: NodeBackends, drift: Drift, desired: Desired | None, context: BackendContext) -> str:
    if drift.on_drift is not OnDrift.CORRECT:
        return f"its policy only reports drift (`corral backends policies --drift {drift.backend} correct` corrects it)"
    if drift.cause is DriftCause.OLD_PROCESS:
        reason = context.replacing.get(drift.process_key)
        return reason or "the replica is replaced when one of the installed version serves"
    if state.node.status is not NodeStatus.HEALTHY:
        return f"the node is {state.node.status.value}; it is corrected when the node is healthy"
    newest = desired.newest if desired is not None else None
    if newest is not None and newest.state is IntentState.DEAD_LETTERED and not (desired and desired.by_policy):
        at_ms = next_retry_ms(newest, context.retry)
        failed = f"retries are exhausted: {newest.last_error}"
        if at_ms is None:
            return f"{failed}; it stopped the version that served, so only another version is tried"
        soon = "at once when the node registers again, its disk has room or a gallery changes"
        return f"{failed}; it is tried again at {_at(at_ms)}, and {soon}"
    if newest is not None and newest.state.live:
        return "the request in progress has to end first"
    if drift.cause is DriftCause.WRONG_VERSION and not state.node.speaks_corral:
        return f"a LocalAI worker cannot go back to it; `corral backends upgrade {drift.backend}` installs the newest"
    return "it is being corrected"


def _at(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
