"""What the API says about rollouts, from values alone: only what is true of their nodes."""

from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_rollouts import BEGAN, HEALTHY, done, node, rollout, soaking
from corral.core.backends.intents import IntentState
from corral.core.backends.rollouts import Rollout, RolloutNode, RolloutState
from corral.core.nodes.node import NodeId, NodeStatus
from corral.frontend.api.rollouts.view import RolloutView, view_rollout

STATUSES = dict.fromkeys(HEALTHY, NodeStatus.HEALTHY)


def show(given: Rollout, *, after_s: float = 0, **statuses: NodeStatus) -> RolloutView:
    known = STATUSES | {NodeId(name): status for name, status in statuses.items()}
    return view_rollout(given, statuses=known, now_ms=BEGAN + round(after_s * 1000))


def gone_back(name: str, state: IntentState | None, error: str = "") -> RolloutNode:
    return node(name, 0, IntentState.CANCELLED, began=True, rollback=state, rollback_error=error)


def test_it_says_how_replicas_were_replaced_beside_what_was_planned() -> None:
    stopped = done("a")
    planned = replace(stopped, member=replace(stopped.member, method="rolling"))
    [wave, _] = show(rollout(planned, replace(planned, used_method="stop-first"), node("c", 1))).waves
    assert [(one.method, one.used_method) for one in wave.nodes] == [("rolling", ""), ("rolling", "stop-first")]


@pytest.mark.parametrize(
    ("nodes", "summary", "states"),
    [
        pytest.param(
            (gone_back("a", IntentState.SUCCEEDED), gone_back("b", IntentState.SUCCEEDED)),
            "failed in wave 1 of 2 and was rolled back: slow",
            ["rolled_back", "rolled_back"],
            id="all-went-back",
        ),
        pytest.param(
            (gone_back("a", IntentState.SUCCEEDED), gone_back("b", IntentState.DEAD_LETTERED, "gone")),
            "failed in wave 1 of 2, but b keeps the new version: slow",
            ["rolled_back", "not_rolled_back"],
            id="one-could-not",
        ),
        pytest.param(
            (gone_back("a", IntentState.SUCCEEDED), gone_back("b", IntentState.PENDING)),
            "failed in wave 1 of 2, and b goes back on return: slow",
            ["rolled_back", "rolling_back"],
            id="one-is-away",
        ),
        pytest.param(
            (gone_back("a", None), node("b", 0, IntentState.CANCELLED)),
            "failed in wave 1 of 2, but a keeps the new version: slow",
            ["not_rolled_back", "left"],
            id="no-version-before-is-known",
        ),
        pytest.param(
            (node("a", 0, IntentState.CANCELLED), node("b", 1, IntentState.CANCELLED)),
            "failed in wave 1 of 2: slow",
            ["left", "not_reached"],
            id="no-node-had-it",
        ),
    ],
)
def test_it_says_which_nodes_went_back(nodes: tuple[RolloutNode, ...], summary: str, states: list[str]) -> None:
    shown = show(rollout(*nodes, state=RolloutState.FAILED, reason="slow", ended_at=BEGAN))
    assert shown.summary == summary
    assert [one.state for wave in shown.waves for one in wave.nodes] == states


def test_the_reason_why_a_node_did_not_go_back_is_shown_with_it() -> None:
    shown = show(rollout(gone_back("a", IntentState.DEAD_LETTERED, "gone"), state=RolloutState.FAILED, ended_at=BEGAN))
    assert shown.waves[0].nodes[0].error == "gone"


@pytest.mark.parametrize(
    ("given", "after_s", "waits_for", "is_overdue"),
    [
        (rollout(node("a", 0), node("c", 1)), 599, "a is offline", False),
        (rollout(node("a", 0)), 600, "a is offline; no other healthy node of its class can stand in", True),
        (rollout(done("a"), node("b", 0), node("c", 1)), 599, "b: in progress", False),
        (soaking(), 10_000, "", False),
        (rollout(node("a", 0), state=RolloutState.PAUSED), 10_000, "", False),
        (rollout(node("a", 0), state=RolloutState.ABORTED, ended_at=BEGAN), 10_000, "", False),
    ],
)
def test_what_an_install_waits_for_is_shown_and_whether_that_takes_too_long(
    given: Rollout, after_s: float, waits_for: str, is_overdue: bool
) -> None:
    away: dict[str, Any] = {"a": NodeStatus.OFFLINE}
    shown = show(given, after_s=after_s, **away)
    assert (shown.waits_for, shown.is_overdue) == (waits_for, is_overdue)
    assert (waits_for in shown.summary) is True
