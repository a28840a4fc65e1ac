"""Edits of models as rollouts: what their revisions and replicas say."""

import pytest

from corral.core.models.model_rollouts import ModelRolloutState, RevisionChange, view_as_rollout
from corral.core.models.revisions import RevisionState


def change(state: RevisionState, *, reason: str = "", replicas: int = 0, others: int = 0) -> RevisionChange:
    return RevisionChange(
        model="tiny",
        number=3,
        previous=2,
        state=state,
        reason=reason,
        comment="",
        actor="ann",
        at=0,
        replicas=replicas,
        other_replicas=others,
    )


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        pytest.param(
            change(RevisionState.PENDING),
            ModelRolloutState.PROVING,
            "its first replica is loaded and proven; revision 2 serves meanwhile",
            id="pending",
        ),
        pytest.param(
            change(RevisionState.FAILED, reason="no such file"),
            ModelRolloutState.FAILED,
            "no such file; revision 2 kept serving",
            id="failed",
        ),
        pytest.param(
            change(RevisionState.CURRENT, replicas=1, others=2),
            ModelRolloutState.REPLACING,
            "1 of 3 replicas have it",
            id="some-replicas-are-older",
        ),
        pytest.param(
            change(RevisionState.CURRENT, replicas=1), ModelRolloutState.COMPLETED, "current, on 1 replica", id="all"
        ),
        pytest.param(
            change(RevisionState.CURRENT), ModelRolloutState.COMPLETED, "current, on no replicas", id="not-loaded"
        ),
        pytest.param(change(RevisionState.SUPERSEDED), ModelRolloutState.COMPLETED, "it served until", id="replaced"),
        pytest.param(change(RevisionState.DISCARDED), ModelRolloutState.DISCARDED, "it never served", id="discarded"),
    ],
)
def test_an_edit_is_told_as_a_rollout(found: RevisionChange, state: ModelRolloutState, words: str) -> None:
    told = view_as_rollout(found)
    assert told.state is state
    assert told.summary.startswith(words)
