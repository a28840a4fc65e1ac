"""An edit of a model as a rollout: its revision is proven on one replica, then replaces the others one by one."""

from dataclasses import dataclass
from enum import StrEnum

from corral.core.models.revisions import RevisionState


class ModelRolloutState(StrEnum):
    PROVING = "proving"
    """Its first replica is loaded, while the previous revision serves."""
    REPLACING = "replacing"
    """It serves; replicas of earlier revisions are being replaced."""
    COMPLETED = "completed"
    FAILED = "failed"
    """It could not be loaded or did not answer; the previous revision serves."""
    DISCARDED = "discarded"
    """It was taken back, or edited again, before it served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionChange:
    """A revision of a model that had one before, and the replicas of the model."""

    model: str
    number: int
    previous: int
    """The number of the revision that served when it was saved."""
    state: RevisionState
    reason: str
    comment: str
    actor: str
    at: int
    replicas: int = 0
    """That have this revision."""
    other_replicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRollout:
    change: RevisionChange
    state: ModelRolloutState
    summary: str
    """For people."""


def view_as_rollout(change: RevisionChange) -> ModelRollout:
    state, summary = _judge(change)
    return ModelRollout(change=change, state=state, summary=summary)


def _judge(change: RevisionChange) -> tuple[ModelRolloutState, str]:
    match change.state:
        case RevisionState.PENDING:
            doing = change.reason or "its first replica is loaded and proven"
            return ModelRolloutState.PROVING, f"{doing}; revision {change.previous} serves meanwhile"
        case RevisionState.FAILED:
            return ModelRolloutState.FAILED, f"{change.reason}; revision {change.previous} kept serving"
        case RevisionState.CURRENT if change.other_replicas:
            total = change.replicas + change.other_replicas
            return ModelRolloutState.REPLACING, f"{change.replicas} of {total} replicas have it"
        case RevisionState.CURRENT:
            return ModelRolloutState.COMPLETED, f"current, on {_count(change.replicas)}"
        case RevisionState.SUPERSEDED:
            return ModelRolloutState.COMPLETED, "it served until a newer revision replaced it"
        case RevisionState.DISCARDED | RevisionState.DELETED:
            return ModelRolloutState.DISCARDED, f"it never served; revision {change.previous} kept serving"


def _count(replicas: int) -> str:
    return f"{replicas or 'no'} {'replica' if replicas == 1 else 'replicas'}"
