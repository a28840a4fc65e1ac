"""How many nodes' states make one operation, and how progress merges."""

import pytest

from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, OperationState, conclude
from corral.core.nodes.node import NodeId

S = NodeProgressStatus


def node(status: NodeProgressStatus, name: str = "n", error: str = "") -> NodeProgress:
    return NodeProgress(node_id=NodeId(name), node_name=name, status=status, error=error)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node(S.SUCCESS), node(S.SUCCESS)], (OperationState.COMPLETED, ""), id="all-done"),
        pytest.param(
            [node(S.SUCCESS), node(S.ERROR, "b", "disk full"), node(S.ERROR, "c", "no route")],
            (OperationState.FAILED, "b: disk full; c: no route"),
            id="one-that-failed-fails-it-and-every-reason-is-kept",
        ),
        pytest.param(
            [node(S.SUCCESS), node(S.NOT_APPLICABLE, "b", "no build")],
            (OperationState.COMPLETED, ""),
            id="a-node-that-nothing-fits-does-not-fail-it",
        ),
        pytest.param(
            [node(S.NOT_APPLICABLE, "b", "no build")],
            (OperationState.FAILED, "b: no build"),
            id="but-nothing-anywhere-is-no-success",
        ),
        pytest.param([node(S.SUCCESS), node(S.CANCELLED, "b", "x")], (OperationState.CANCELLED, "x"), id="cancelled"),
        pytest.param([], (OperationState.COMPLETED, ""), id="a-policy-for-machines-to-come"),
    ],
)
def test_conclude(nodes: list[NodeProgress], expected: tuple[OperationState, str]) -> None:
    assert conclude(nodes, verb=Verb.INSTALL, cancel_requested=False, holds=True) == expected
