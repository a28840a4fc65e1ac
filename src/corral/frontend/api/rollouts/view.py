"""A rollout as the API shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from corral.core.backends.build import short_digest
from corral.core.backends.gates import GateVerdict
from corral.core.backends.intents import IntentState
from corral.core.backends.rollout_progress import describe_install_wait
from corral.core.backends.rollouts import (
    PerNode,
    Rollout,
    RolloutNode,
    RolloutState,
    Statuses,
    Strategy,
    VersionChange,
    WaveRecord,
    describe_failed_version,
    list_names,
    waits_too_long,
)
from corral.core.models.model_rollouts import ModelRolloutState, RevisionChange, view_as_rollout
from corral.frontend.api.times import time_of
from corral.store.backends.rollouts import RolloutEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutNodeView:
    node_id: str
    node_name: str
    node_class: str
    variant: str
    previous_version: str
    method: str
    """How its replicas are expected to be replaced: `rolling` or `stop-first`; empty if it has none."""
    used_method: str
    """How they were replaced, as it was seen; empty before that."""
    state: str
    """`waiting` for its wave, `running`, `retrying`, `done`, `failed`, `rolling_back`, `rolled_back`,
    `not_rolled_back` where it keeps the new version, `not_reached` where the rollout ended before its wave, or `left`
    where something else replaced it."""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutWaveView:
    number: int
    """From 1."""
    state: str
    """`waiting`, `installing`, `soaking`, `passed`, `failed` or `stopped`."""
    began_at: datetime | None
    soak_ends_at: datetime | None
    nodes: list[RolloutNodeView]
    gates: list[GateVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChangeView:
    variant: str
    version: str
    digest: str
    previous_version: str
    previous_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEventView:
    at: datetime | None
    wave: int
    actor: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutView:
    id: str
    """The id of its operation."""
    backend: str
    verb: str
    actor: str
    strategy: Strategy
    state: RolloutState
    reason: str
    summary: str
    """For people: what it is doing."""
    waits_for: str
    """While a wave is being installed: which nodes it waits for, and why."""
    is_overdue: bool
    """Whether it waits for longer than the wave timeout, so that a person should look at it."""
    wave: int
    """The current wave, from 1."""
    wave_count: int
    soak_s: float
    per_node: PerNode
    unjudged_passes: bool
    """Whether a gate that cannot be judged counts as passed."""
    versions: list[VersionChangeView]
    waves: list[RolloutWaveView]
    held_back: bool
    """Whether its version failed and is not offered until someone allows it."""
    held_back_note: str
    """For people: what is not offered, and until when. Also where the version cannot be recognised, so that nothing is
    held back; empty otherwise."""
    allowed_by: str
    rollback_operation_id: str | None
    created_at: datetime | None
    changed_at: datetime | None
    ended_at: datetime | None
    events: list[RolloutEventView]
    """Only where one rollout is requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRolloutView:
    """An edit of a model: its revision is proven on one replica before it replaces the one that serves."""

    model: str
    number: int
    """Of the revision."""
    previous: int
    """The number of the revision that served when it was saved."""
    state: ModelRolloutState
    summary: str
    """For people."""
    comment: str
    actor: str
    replicas: int
    """That have this revision."""
    other_replicas: int
    created_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutList:
    rollouts: list[RolloutView]
    revisions: list[ModelRolloutView]
    """The last edits of models, newest first."""


def view_rollout(
    rollout: Rollout, events: Sequence[RolloutEvent] = (), *, statuses: Statuses, now_ms: int
) -> RolloutView:
    waits_for = describe_install_wait(rollout, statuses=statuses, now_ms=now_ms)
    held_back_note = describe_failed_version(rollout)
    records = {record.wave: record for record in rollout.waves}
    return RolloutView(
        id=rollout.operation_id,
        backend=rollout.backend,
        verb=rollout.verb,
        actor=rollout.actor,
        strategy=rollout.strategy,
        state=rollout.state,
        reason=rollout.reason,
        summary=_summary(rollout, waits_for),
        waits_for=waits_for,
        is_overdue=bool(waits_for) and waits_too_long(rollout, now_ms),
        wave=rollout.wave + 1,
        wave_count=rollout.wave_count,
        soak_s=rollout.options.soak_s,
        per_node=rollout.options.per_node,
        unjudged_passes=rollout.options.gates.unjudged_passes,
        versions=[_view_change(change) for change in rollout.builds],
        waves=[_view_wave(rollout, wave, records.get(wave)) for wave in range(rollout.wave_count)],
        held_back=bool(held_back_note) and any(change.is_known for change in rollout.builds),
        held_back_note=held_back_note,
        allowed_by=rollout.allowed_by,
        rollback_operation_id=rollout.rollback_operation_id,
        created_at=time_of(rollout.created_at),
        changed_at=time_of(rollout.changed_at),
        ended_at=time_of(rollout.ended_at),
        events=[
            RolloutEventView(at=time_of(one.at), wave=one.wave + 1, actor=one.actor, kind=one.kind, text=one.text)
            for one in events
        ],
    )


def _view_change(change: VersionChange) -> VersionChangeView:
    return VersionChangeView(
        variant=change.build,
        version=change.version or short_digest(change.digest),
        digest=change.digest,
        previous_version=change.previous.build.version or short_digest(change.previous.build.digest),
        previous_digest=change.previous.build.digest,
    )


def view_model_rollout(change: RevisionChange) -> ModelRolloutView:
    found = view_as_rollout(change)
    return ModelRolloutView(
        model=change.model,
        number=change.number,
        previous=change.previous,
        state=found.state,
        summary=found.summary,
        comment=change.comment,
        actor=change.actor,
        replicas=change.replicas,
        other_replicas=change.other_replicas,
        created_at=time_of(change.at),
    )


def _summary(rollout: Rollout, waits_for: str) -> str:
    place = f"wave {rollout.wave + 1} of {rollout.wave_count}"
    match rollout.state:
        case RolloutState.RUNNING:
            record = rollout.current
            if not rollout.is_gated:
                return "all nodes at once"
            doing = "soaking" if record is not None and record.soak_began_at is not None else "installing"
            return f"{place}: {doing}" + (f" ({waits_for})" if waits_for else "")
        case RolloutState.PAUSED:
            return f"paused in {place}: {rollout.reason}"
        case RolloutState.AWAITING_PROMOTION:
            return f"{place} passed; waiting for promotion"
        case RolloutState.ROLLING_BACK:
            return f"rolling back from {place}: {rollout.reason}"
        case RolloutState.COMPLETED:
            return "completed"
        case RolloutState.FAILED:
            return (
                f"failed in {place}{_describe_back(rollout)}: {rollout.reason}" if rollout.is_gated else rollout.reason
            )
        case RolloutState.ABORTED:
            return f"aborted in {place}{_describe_back(rollout)}: {rollout.reason}"


def _describe_back(rollout: Rollout) -> str:
    """Which nodes went back after the rollout failed or was aborted."""
    states = {node.member.node_name: _node_state(node, rollout) for node in rollout.nodes}
    late = [name for name, state in states.items() if state == "rolling_back"]
    kept = [name for name, state in states.items() if state == "not_rolled_back"]
    if kept:
        return f", but {list_names(kept)} {'keeps' if len(kept) == 1 else 'keep'} the new version"
    if late:
        return f", and {list_names(late)} {'goes' if len(late) == 1 else 'go'} back on return"
    return " and was rolled back" if "rolled_back" in states.values() else ""


def _view_wave(rollout: Rollout, wave: int, record: WaveRecord | None) -> RolloutWaveView:
    soak_began = record.soak_began_at if record is not None else None
    return RolloutWaveView(
        number=wave + 1,
        state=_wave_state(rollout, wave, record),
        began_at=time_of(record.began_at) if record is not None else None,
        soak_ends_at=time_of(soak_began + int(rollout.options.soak_s * 1000)) if soak_began is not None else None,
        nodes=[_view_node(node, rollout) for node in rollout.nodes_of(wave)],
        gates=list(record.verdicts) if record is not None else [],
    )


def _wave_state(rollout: Rollout, wave: int, record: WaveRecord | None) -> str:
    if record is None:
        return "stopped" if rollout.ended_at is not None or _is_over(rollout) or wave < rollout.wave else "waiting"
    if wave < rollout.wave or rollout.state in (RolloutState.COMPLETED, RolloutState.AWAITING_PROMOTION):
        return "passed"
    if RolloutState.FAILED in (rollout.state, rollout.outcome):
        return "failed"
    if RolloutState.ABORTED in (rollout.state, rollout.outcome):
        return "stopped"
    return "soaking" if record.soak_began_at is not None else "installing"


def _view_node(node: RolloutNode, rollout: Rollout) -> RolloutNodeView:
    member, state = node.member, _node_state(node, rollout)
    explained = node.version_failed or state in ("running", "retrying", "failed", "left")
    went_back = state in ("rolling_back", "not_rolled_back")
    return RolloutNodeView(
        node_id=member.node_id,
        node_name=member.node_name,
        node_class=member.node_class,
        variant=member.build,
        previous_version=member.previous_version or short_digest(member.previous_digest),
        method=member.method,
        used_method=node.used_method,
        state=state,
        error=node.rollback_error if went_back else node.error if explained else "",
    )


def _node_state(node: RolloutNode, rollout: Rollout) -> str:
    if node.rollback is not None and node.rollback.live:
        return "rolling_back"
    if node.rollback is IntentState.SUCCEEDED:
        return "rolled_back"
    if node.rollback is IntentState.DEAD_LETTERED or (
        node.rollback is None and node.was_reached and _went_back(rollout)
    ):
        return "not_rolled_back"
    if not node.began and node.wave > rollout.wave and _is_over(rollout):
        return "not_reached"
    if node.version_failed or node.intent is IntentState.DEAD_LETTERED:
        return "failed"
    if node.is_done:
        return "done"
    if node.has_left:
        return "left"
    if node.wave > rollout.wave:
        return "waiting"
    return "retrying" if node.attempts else "running"


def _went_back(rollout: Rollout) -> bool:
    return rollout.is_gated and rollout.state in (RolloutState.FAILED, RolloutState.ABORTED)


def _is_over(rollout: Rollout) -> bool:
    return rollout.state in (RolloutState.ROLLING_BACK, RolloutState.FAILED, RolloutState.ABORTED)
