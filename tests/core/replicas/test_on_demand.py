"""What a request without a replica does: it waits for one, or one is loaded."""

from dataclasses import replace

import pytest

from core.replicas.test_availability import RESTARTED, ROW, node, row, snapshot, table
from corral.core.nodes.node import Node
from corral.core.nodes.observed import ProcessTable
from corral.core.nodes.presence import Presence
from corral.core.replicas.on_demand import OnDemandPlan, check_limit, plan_on_demand
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.scaling import Scheduling

ONE = Scheduling(model="m", max_replicas=1)
ANY = Scheduling(model="m")
UNHEALTHY = node(presence=Presence.SUSPECT)
LOADING = replace(ROW, state=ReplicaState.LOADING)


@pytest.mark.parametrize(
    ("rows", "scheduling", "where", "reported", "wait"),
    [
        pytest.param([], ONE, node(), None, "", id="a-model-without-replicas-is-loaded"),
        pytest.param([ROW], ANY, node(), table("ready"), "a replica is ready", id="a-ready-replica-is-used"),
        pytest.param(
            [ROW], ANY, RESTARTED, table("ready"), "n has not reported its processes yet", id="its-worker-restarted"
        ),
        pytest.param([ROW], ANY, node(), table("backing_off"), "its process on n is restarting", id="its-process-too"),
        pytest.param([ROW], ANY, node(), table(), "", id="a-lost-replica-is-loaded-again"),
        pytest.param([ROW], ONE, node(), table(), "max_replicas is 1, and n no longer runs it", id="within-the-limit"),
        pytest.param([ROW], ANY, UNHEALTHY, None, "", id="a-replica-on-an-unhealthy-node-is-not-waited-for"),
        pytest.param(
            [ROW], ONE, UNHEALTHY, None, "max_replicas is 1, and n is unhealthy", id="unless-no-more-may-be-loaded"
        ),
        pytest.param(
            [replace(ROW, state=ReplicaState.STOPPING)],
            ONE,
            node(),
            table("ready"),
            "",
            id="a-stopping-replica-does-not-count-towards-the-limit",
        ),
        pytest.param([LOADING], ONE, node(), None, "max_replicas is 1, and replicas are loading", id="one-is-loading"),
        pytest.param([LOADING], ANY, node(), None, "", id="a-loading-replica-has-a-load-of-its-own"),
        pytest.param(
            [ROW],
            Scheduling(model="m", selector={"rack": "2"}),
            node(),
            table("ready"),
            "",
            id="its-node-does-not-match",
        ),
        pytest.param(
            [replace(ROW, revision="0"), ROW],
            Scheduling(model="m", max_replicas=2),
            UNHEALTHY,
            None,
            "",
            id="replicas-of-an-older-revision-do-not-count-towards-the-limit",
        ),
    ],
)
def test_a_request_waits_for_an_existing_replica_or_loads_one(
    rows: list[Replica], scheduling: Scheduling, where: Node, reported: ProcessTable | None, wait: str
) -> None:
    assert plan_on_demand("1", rows, scheduling, snapshot(where, reported=reported)).wait == wait


OLD, OLDER = row("n", revision="0"), replace(row("n", revision="0"), id="a")


@pytest.mark.parametrize(
    ("rows", "reported", "expected"),
    [
        pytest.param([OLD], table("ready"), OnDemandPlan(wait="a replica is ready"), id="an-older-revision-serves-on"),
        pytest.param([OLD], table(), OnDemandPlan(replaces=OLD.id), id="a-lost-one-of-an-older-revision-is-replaced"),
        pytest.param([OLD, OLDER], table(), OnDemandPlan(replaces="a"), id="always-the-same-one-of-several"),
        pytest.param(
            [replace(OLD, state=ReplicaState.LOADING)], table(), OnDemandPlan(), id="one-that-loads-is-not-replaced"
        ),
    ],
)
def test_replicas_of_an_older_revision(rows: list[Replica], reported: ProcessTable, expected: OnDemandPlan) -> None:
    assert plan_on_demand("1", rows, ONE, snapshot(node(), reported=reported)) == expected


@pytest.mark.parametrize(
    ("rows", "scheduling", "allowed"),
    [
        pytest.param([ROW], ANY, True, id="without-a-maximum-any-number-may-run"),
        pytest.param([], ONE, True, id="the-first-may-run"),
        pytest.param([ROW], ONE, False, id="the-maximum-is-reached"),
        pytest.param([LOADING], ONE, False, id="a-loading-replica-counts"),
        pytest.param([replace(ROW, state=ReplicaState.DRAINING)], ONE, True, id="a-draining-replica-does-not"),
        pytest.param([replace(ROW, revision="0")], ONE, True, id="nor-does-one-of-an-older-revision"),
    ],
)
def test_a_load_on_a_chosen_node_keeps_to_the_maximum(
    rows: list[Replica], scheduling: Scheduling, allowed: bool
) -> None:
    reason = check_limit("1", rows, scheduling)
    assert (reason == "") is allowed
    if not allowed:
        assert reason == (
            "max_replicas is 1, and it is reached (1 running or loading); raise it with"
            " `corral models scale m --max 2`, or unload a replica elsewhere"
        )
