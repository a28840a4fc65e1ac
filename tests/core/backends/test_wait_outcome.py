"""What somebody who waits for an operation is told."""

import pytest

from corral.core.backends.wait_outcome import NodeStand, Outcome, judge


def stands(*statuses: str) -> list[NodeStand]:
    return [NodeStand(f"n{position}", status) for position, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("state", "statuses", "away", "expected"),
    [
        pytest.param("running", ["downloading", "success"], [], Outcome.GOING_ON, id="somebody-is-at-it"),
        pytest.param("running", ["queued"], [], Outcome.GOING_ON, id="a-queued-node-that-is-there-comes-soon"),
        pytest.param("running", ["success", "queued"], ["n1"], Outcome.UNFINISHED, id="nobody-waits-for-a-node-away"),
        pytest.param("running", ["downloading"], ["n0"], Outcome.UNFINISHED, id="a-node-that-went-away"),
        pytest.param("running", ["running_on_worker"], [], Outcome.UNFINISHED, id="a-worker-that-needs-longer"),
        pytest.param("running", ["error", "queued"], [], Outcome.GOING_ON, id="the-others-are-waited-for-first"),
        pytest.param("running", ["error", "success"], [], Outcome.FAILED, id="a-failure-that-is-tried-again-is-one"),
        pytest.param("running", ["error", "queued"], ["n1"], Outcome.FAILED, id="failure-goes-before-unfinished"),
        pytest.param("running", ["success"], [], Outcome.GOING_ON, id="all-done-but-not-yet-concluded"),
        pytest.param("running", [], [], Outcome.GOING_ON, id="no-nodes-yet"),
        pytest.param("completed", ["success", "not_applicable"], [], Outcome.DONE, id="misfits-are-no-failure"),
        pytest.param("completed", [], [], Outcome.DONE, id="nobody-to-do-it-and-that-is-fine"),
        pytest.param("failed", ["not_applicable"], [], Outcome.FAILED, id="it-fits-nowhere"),
        pytest.param("cancelled", ["cancelled", "success"], [], Outcome.CANCELLED, id="called-off"),
    ],
)  # fmt: skip
def test_judge(state: str, statuses: list[str], away: list[str], expected: Outcome) -> None:
    assert judge(state, stands(*statuses), away=away) is expected


def test_a_draining_node_finishes_what_it_has_begun_and_gets_nothing_new() -> None:
    assert judge("running", stands("success", "queued"), away=[], draining=["n1"]) is Outcome.UNFINISHED
    assert judge("running", stands("queued", "queued"), away=[], draining=["n1"]) is Outcome.GOING_ON
    assert judge("running", stands("success", "downloading"), away=[], draining=["n1"]) is Outcome.GOING_ON
