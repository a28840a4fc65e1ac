"""An operation as LocalAI's clients see it, which poll until it is `processed`."""

import pytest

from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, Operation, OperationState
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Target
from corral.frontend.api.localai.jobs import UNCONFIRMED, job_status


def operation(*nodes: tuple[str, str], state: OperationState = OperationState.RUNNING) -> Operation:
    ended = None if state is OperationState.RUNNING else 1
    return Operation(
        id="o", verb=Verb.INSTALL, backend="echo", reference="echo", node_id=None, target=Target(), generation=1,
        actor="me", cause="request", state=state, cancel_requested=False, error="", created_at=1, changed_at=1,
        finished_at=ended, dismissed_at=None,
        nodes=tuple(
            NodeProgress(node_id=NodeId(str(at)), node_name=f"n{at}", status=NodeProgressStatus(status), error=error)
            for at, (status, error) in enumerate(nodes)
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "processed", "message", "error"),
    [
        ([("running_on_worker", "")], True, UNCONFIRMED, None),
        ([("running_on_worker", ""), ("success", "")], True, UNCONFIRMED, None),
        ([("running_on_worker", ""), ("queued", "")], True, UNCONFIRMED, None),
        ([("running_on_worker", ""), ("downloading", "")], False, "1 being installed, 1 running on worker", None),
        ([("running_on_worker", ""), ("error", "full")], True, "1 running on worker, 1 error", "n1: full"),
        ([("queued", "")], False, "1 queued", None),
    ],
)
def test_a_job_with_only_unconfirmed_workers_has_ended(
    nodes: list[tuple[str, str]], processed: bool, message: str, error: str | None
) -> None:
    job = job_status(operation(*nodes))
    assert (job.processed, job.message, job.error) == (processed, message, error)
    assert job.progress < 100


def test_a_job_that_is_done_is_completed() -> None:
    job = job_status(operation(("success", ""), state=OperationState.COMPLETED))
    assert (job.processed, job.message, job.progress) == (True, "completed", 100.0)
