"""Which problems a request waits for, and which it does not."""

from dataclasses import replace
from typing import Any

import pytest

from core.replicas.test_placement import held, node
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.obstacles import find_obstacle
from corral.core.replicas.placement import GIB, Need

NEED = Need(model="m", weights_bytes=4 * GIB)
UNFIT = {"a": "no build of vllm runs on its platform"}


@pytest.mark.parametrize(
    ("need", "here", "reason"),
    [
        pytest.param({"weights_bytes": 40 * GIB}, {"total_memory": 16 * GIB}, "it has 16.0 GiB", id="memory"),
        pytest.param({}, {"total_memory": GIB, "budget": "1GiB"}, "within its budget of 1GiB", id="budget"),
        pytest.param({}, {"total_disk": 4 * GIB}, "its disk has 4.0 GiB", id="disk"),
        pytest.param({"variant_problems": UNFIT}, {}, "no build of vllm runs on its platform", id="no build"),
        pytest.param({"selector": {"tier": "slow"}}, {}, "its label tier is fast, not slow", id="label"),
        pytest.param({"deleted": {"a": "ann deleted it"}}, {}, "ann deleted it", id="deleted"),
        pytest.param({}, {"takes_backends": False}, "an agent node", id="agent"),
        pytest.param({}, {"status": NodeStatus.PENDING}, "`corral nodes approve a`", id="not approved"),
    ],
)
def test_what_no_request_waits_for(need: dict[str, Any], here: dict[str, Any], reason: str) -> None:
    found = find_obstacle(replace(NEED, **need), [node(**here)])
    assert found.startswith("no node can take it; a: ")
    assert reason in found


@pytest.mark.parametrize(
    ("need", "here"),
    [
        pytest.param({}, {}, id="it fits"),
        pytest.param({}, {"free_memory": 0, "total_memory": 16 * GIB}, id="memory in use"),
        pytest.param({}, {"free_memory": 0}, id="unknown memory"),
        pytest.param({}, {"free_disk": 0, "total_disk": 100 * GIB}, id="disk in use"),
        pytest.param({"weights_bytes": None}, {"total_memory": GIB}, id="unknown size"),
        pytest.param({"staged_on": frozenset("a")}, {"total_disk": GIB}, id="weights on disk"),
        pytest.param({}, {"status": NodeStatus.OFFLINE}, id="away"),
        pytest.param({}, {"status": NodeStatus.UNHEALTHY}, id="unhealthy"),
        pytest.param({}, {"status": NodeStatus.DRAINING}, id="draining"),
        pytest.param({}, {"conditions": ("no free port",)}, id="condition"),
        pytest.param({}, {"replicas": (held("one", "m"),)}, id="limit of replicas"),
        pytest.param({"variant_problems": UNFIT, "unresolved_on": frozenset("a")}, {}, id="registry away"),
        pytest.param({"variant_problems": UNFIT, "unreported_on": frozenset("a")}, {}, id="not reported yet"),
    ],
)
def test_what_a_request_waits_for(need: dict[str, Any], here: dict[str, Any]) -> None:
    assert find_obstacle(replace(NEED, **need), [node(**here)]) == ""


def test_one_node_that_could_take_it_is_enough() -> None:
    small, away = node("a", total_memory=GIB), node("b", status=NodeStatus.OFFLINE, total_memory=16 * GIB)
    assert find_obstacle(NEED, [small, away]) == ""
    assert "it has 1.0 GiB" in find_obstacle(NEED, [small, replace(away, total_memory=GIB)])


def test_a_fleet_without_nodes_cannot_take_anything() -> None:
    assert find_obstacle(NEED, []) == "the cluster has no nodes; add one with `corral worker --join`"
