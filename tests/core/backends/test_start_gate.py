"""The gate `starts`: what counts as tried, by the class of nodes."""

from typing import Any

import pytest

from corral.core.backends.gates import GateOutcome
from corral.core.backends.intents import IntentState
from corral.core.backends.rollouts import RolloutMember, RolloutNode
from corral.core.backends.start_gate import judge_starts
from corral.core.backends.starts import StartEvidence, StartProof
from corral.core.nodes.node import NodeId

RUNS = StartProof(evidence=StartEvidence.REPLICAS)
TESTED = StartProof(evidence=StartEvidence.SMOKE_TEST, detail="its health check answered")
UNTRIED = StartProof(evidence=StartEvidence.NONE, detail="it has no `trial`")
DONE = IntentState.SUCCEEDED


def node(name: str, intent: IntentState | None = DONE, *, kind: str = "cpu", **changes: Any) -> RolloutNode:
    member = RolloutMember(
        node_id=NodeId(name), node_name=name, node_class=kind, build="echo", previous_version="1", previous_digest="old"
    )
    return RolloutNode(member=member, wave=0, intent=intent, **changes)


BROKEN = node("b", IntentState.PENDING, version_failed=True, error="the engine is on fire")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node("a", IntentState.PENDING)], [], id="a-node-that-is-not-done-is-not-judged"),
        pytest.param([node("a", proof=RUNS)], [("cpu", "passed", "it runs on a")], id="replicas-prove-it"),
        pytest.param(
            [node("a", proof=TESTED), node("b", proof=RUNS)],
            [("cpu", "passed", "no model uses it on a; a smoke test started it: its health check answered")],
            id="a-smoke-test-proves-it",
        ),
        pytest.param(
            [node("a", proof=TESTED), node("b", proof=UNTRIED)],
            [("cpu", "unjudged", "it was not started on b: it has no `trial`")],
            id="one-node-that-could-not-try-it-leaves-its-class-unjudged",
        ),
        pytest.param(
            [node("a")], [("cpu", "unjudged", "it was not started on a: nobody has started it there")],
            id="without-a-proof-nothing-is-known",
        ),
        pytest.param(
            [node("a", proof=UNTRIED), BROKEN], [("cpu", "failed", "b: the engine is on fire")], id="a-failure-decides"
        ),
        pytest.param(
            [node("b", IntentState.SUPERSEDED, version_failed=True)], [], id="a-node-that-has-left-fails-nothing"
        ),
        pytest.param(
            [node("g", kind="gpu", proof=TESTED), BROKEN],
            [
                ("cpu", "failed", "b: the engine is on fire"),
                ("gpu", "passed", "no model uses it on g; a smoke test started it: its health check answered"),
            ],
            id="classes-are-judged-apart",
        ),
        pytest.param(
            [node(name, proof=RUNS) for name in "abcde"], [("cpu", "passed", "it runs on a, b, c and 2 more")],
            id="many-nodes-are-counted",
        ),
    ],
)  # fmt: skip
def test_judge_starts(nodes: list[RolloutNode], expected: list[tuple[str, str, str]]) -> None:
    verdicts = judge_starts(nodes)
    assert [(one.node_class, one.outcome.value, one.detail) for one in verdicts] == expected
    assert {one.gate for one in verdicts} <= {"starts"}
    assert all(isinstance(one.outcome, GateOutcome) for one in verdicts)
