"""A node: the status that routing uses, the state that people see, and whether it may return soon."""

from typing import Any

import pytest

from core.replicas.test_availability import NOW, node
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.node import LEAVE_GRACE_MS, NodeState, NodeStatus, just_left
from corral.core.nodes.presence import Presence

SKEW = Condition(kind=ConditionKind.CLOCK_SKEW, reason="its clock is off", remedy="")


@pytest.mark.parametrize(
    ("fields", "status", "state", "localai"),
    [
        pytest.param({}, "healthy", "healthy", "healthy", id="a-live-node-is-healthy"),
        pytest.param({"approved": False}, "pending", "pending", "pending", id="a-node-without-approval-is-pending"),
        pytest.param(
            {"approved": False, "presence": Presence.GONE},
            "pending",
            "pending",
            "pending",
            id="also-when-it-is-offline",
        ),
        pytest.param(
            {"presence": Presence.JOINING}, "unhealthy", "joining", "unhealthy", id="a-joining-node-is-not-healthy-yet"
        ),
        pytest.param(
            {"presence": Presence.SUSPECT}, "unhealthy", "unhealthy", "unhealthy", id="a-suspect-node-is-unhealthy"
        ),
        pytest.param({"presence": Presence.GONE}, "offline", "offline", "offline", id="a-gone-node-is-offline"),
        pytest.param({"presence": Presence.LEFT}, "offline", "offline", "offline", id="a-node-that-left-is-offline"),
        pytest.param({"drain_requested": True}, "draining", "draining", "draining", id="a-requested-drain"),
        pytest.param({"worker_draining": True}, "draining", "draining", "draining", id="a-worker-that-stops"),
        pytest.param(
            {"drain_requested": True, "presence": Presence.GONE},
            "offline",
            "offline",
            "offline",
            id="offline-comes-before-draining",
        ),
        pytest.param(
            {"conditions": (SKEW,)},
            "healthy",
            "unhealthy",
            "unhealthy",
            id="a-condition-is-shown-but-replicas-serve-on",
        ),
        pytest.param(
            {"conditions": (SKEW,), "drain_requested": True},
            "draining",
            "draining",
            "draining",
            id="a-draining-node-with-a-condition",
        ),
    ],
)
def test_status_and_state(fields: dict[str, Any], status: str, state: str, localai: str) -> None:
    here = node(**fields)
    assert (here.status, here.state, here.localai_status) == (NodeStatus(status), NodeState(state), NodeStatus(localai))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, False, id="nobody-requested-it"),
        pytest.param({"drain_requested": True}, True, id="an-administrator-requested-it"),
        pytest.param({"worker_draining": True}, True, id="its-worker-is-about-to-stop"),
        pytest.param({"worker_draining": True, "presence": Presence.LEFT}, False, id="its-worker-has-stopped"),
        pytest.param(
            {"drain_requested": True, "presence": Presence.GONE}, True, id="a-request-stays-while-the-node-is-offline"
        ),
    ],
)
def test_whether_a_node_drains(fields: dict[str, Any], expected: bool) -> None:
    assert node(**fields).draining is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"presence": Presence.LEFT, "presence_since": NOW - 1}, True, id="its-worker-left-moments-ago"),
        pytest.param(
            {"presence": Presence.LEFT, "presence_since": NOW - LEAVE_GRACE_MS}, False, id="its-worker-left-long-ago"
        ),
        pytest.param({"worker_draining": True, "drain_since": NOW - 1}, True, id="its-worker-is-stopping"),
        pytest.param({"worker_draining": True, "drain_since": 0}, False, id="its-worker-does-not-finish-stopping"),
        pytest.param(
            {"worker_draining": True, "drain_since": None, "changed_at": NOW - 1},
            True,
            id="an-older-frontend-stored-no-time",
        ),
        pytest.param(
            {"worker_draining": True, "drain_since": NOW - 1, "drain_requested": True},
            False,
            id="an-administrator-wants-it-empty",
        ),
        pytest.param({"presence": Presence.GONE, "presence_since": NOW - 1}, False, id="it-was-lost"),
        pytest.param({}, False, id="it-is-live"),
    ],
)
def test_whether_a_node_may_return_soon(fields: dict[str, Any], expected: bool) -> None:
    assert just_left(node(**fields), now_ms=NOW) is expected


@pytest.mark.parametrize(
    ("fields", "limit", "budget"),
    [
        pytest.param(
            {"max_replicas_reported": 2, "vram_budget_reported": "50%"}, 2, "50%", id="what-the-worker-reports"
        ),
        pytest.param(
            {
                "max_replicas_reported": 2,
                "max_replicas_override": 4,
                "vram_budget_reported": "50%",
                "vram_budget_override": "80%",
            },
            4,
            "80%",
            id="an-administrator-overrides-it",
        ),
        pytest.param({}, 1, None, id="neither"),
    ],
)
def test_limits_of_a_node(fields: dict[str, Any], limit: int, budget: str | None) -> None:
    here = node(**fields)
    assert (here.max_replicas_per_model, here.vram_budget) == (limit, budget)
