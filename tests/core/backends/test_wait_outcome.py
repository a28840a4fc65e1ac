"""What somebody who waits for an operation is told."""

import pytest

from corral.core.backends.wait_outcome import WaitedNode, WaitOutcome, judge_wait


def stands(*statuses: str) -> list[WaitedNode]:
    return [WaitedNode(f"n{position}", status) for position, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("state", "statuses", "offline", "expected"),
    [
        pytest.param("running", ["downloading", "success"], [], WaitOutcome.RUNNING, id="a-node-is-in-progress"),
        pytest.param("running", ["queued"], [], WaitOutcome.RUNNING, id="an-online-node-is-queued"),
        pytest.param("running", ["success", "queued"], ["n1"], WaitOutcome.UNFINISHED, id="a-queued-node-is-offline"),
        pytest.param("running", ["downloading"], ["n0"], WaitOutcome.UNFINISHED, id="a-node-that-went-offline"),
        pytest.param("running", ["running_on_worker"], [], WaitOutcome.UNFINISHED, id="a-worker-that-needs-longer"),
        pytest.param("running", ["error", "queued"], [], WaitOutcome.RUNNING, id="the-others-are-waited-for-first"),
        pytest.param("running", ["error", "success"], [], WaitOutcome.FAILED, id="a-retried-failure-is-one"),
        pytest.param("running", ["error", "queued"], ["n1"], WaitOutcome.FAILED, id="failure-goes-before-unfinished"),
        pytest.param("running", ["success"], [], WaitOutcome.RUNNING, id="all-done-but-not-yet-concluded"),
        pytest.param("running", [], [], WaitOutcome.RUNNING, id="no-nodes-yet"),
        pytest.param("completed", ["success", "not_applicable"], [], WaitOutcome.DONE, id="misfits-are-no-failure"),
        pytest.param("completed", [], [], WaitOutcome.DONE, id="nobody-to-do-it-and-that-is-fine"),
        pytest.param("failed", ["not_applicable"], [], WaitOutcome.FAILED, id="it-fits-nowhere"),
        pytest.param("cancelled", ["cancelled", "success"], [], WaitOutcome.CANCELLED, id="called-off"),
    ],
)  # fmt: skip
def test_judge(state: str, statuses: list[str], offline: list[str], expected: WaitOutcome) -> None:
    assert judge_wait(state, stands(*statuses), offline=offline) is expected


def test_a_draining_node_finishes_what_it_has_begun_and_gets_nothing_new() -> None:
    assert judge_wait("running", stands("success", "queued"), offline=[], draining=["n1"]) is WaitOutcome.UNFINISHED
    assert judge_wait("running", stands("queued", "queued"), offline=[], draining=["n1"]) is WaitOutcome.RUNNING
    assert judge_wait("running", stands("success", "downloading"), offline=[], draining=["n1"]) is WaitOutcome.RUNNING
