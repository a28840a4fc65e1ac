"""How many nodes' states make one operation, and how progress merges."""

import pytest

from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, Operation, OperationState, conclude
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Target

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


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("llama-cpp", "llama-cpp"),
        ("localai@llama-cpp", "llama-cpp"),
        ("llama-cpp@0.2", "llama-cpp@0.2"),
        ("localai@llama-cpp@0.2", "llama-cpp@0.2"),
        ("localai@LLAMA-cpp", "LLAMA-cpp"),
    ],
)
def test_the_name_of_an_operation_has_no_gallery_and_keeps_its_version(reference: str, name: str) -> None:
    operation = Operation(
        id="o",
        verb=Verb.INSTALL,
        backend="llama-cpp",
        reference=reference,
        node_id=None,
        target=Target(),
        generation=1,
        actor="key admin",
        cause="request",
        state=OperationState.RUNNING,
        cancel_requested=False,
        error="",
        created_at=0,
        changed_at=0,
        finished_at=None,
        dismissed_at=None,
    )
    assert operation.name == name
