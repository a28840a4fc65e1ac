"""What a rollout means for one node, which versions are held back, and which options are refused."""

from dataclasses import replace

import pytest

from core.backends.test_drift import DONE, HAS_OLD, NEW, OLD, state
from corral.core.backends.build import BuildRef
from corral.core.backends.gates import GateSettings
from corral.core.backends.intents import BackendSpec, IntentState
from corral.core.backends.rollout_progress import describe_for_node
from corral.core.backends.rollouts import (
    Rollout,
    RolloutMember,
    RolloutNode,
    RolloutOptions,
    RolloutState,
    Strategy,
    VersionChange,
    WaveRecord,
    find_held_back_versions,
)
from corral.core.backends.upgrades import OutdatedNode, compare_offer
from corral.core.errors import InvalidInput
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Target

HERE = state(HAS_OLD, spec=DONE)
ME = HERE.node.id
OFFERED = BuildRef(name="cpu-echo", digest=NEW, version="2.0")


def node(node_id: str, wave: int, intent: IntentState, *, began: bool = False) -> RolloutNode:
    member = RolloutMember(
        node_id=NodeId(node_id),
        node_name=node_id,
        node_class="default",
        build="cpu-echo",
        previous_version="1.0",
        previous_digest=OLD,
    )
    return RolloutNode(member=member, wave=wave, intent=intent, began=began)


ROLLOUT = Rollout(
    operation_id="0123456789",
    backend="echo",
    verb="upgrade",
    actor="ann",
    strategy=Strategy.WAVES,
    state=RolloutState.RUNNING,
    outcome=None,
    wave=0,
    wave_count=2,
    options=RolloutOptions(soak_s=60.0),
    builds=(
        VersionChange(
            build="cpu-echo",
            version="2.0",
            digest=NEW,
            previous=BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", version="1.0", digest=OLD)),
        ),
    ),
    target=Target(),
    reason="",
    waves=(WaveRecord(wave=0, began_at=0, soak_began_at=0),),
    nodes=(node("canary", 0, IntentState.SUCCEEDED, began=True), node(ME, 1, IntentState.PENDING)),
    rollback_operation_id=None,
    promoted=False,
    allowed_by="",
    created_at=0,
    changed_at=0,
    ended_at=None,
)
CANARY = (node(ME, 0, IntentState.SUCCEEDED, began=True), node("other", 1, IntentState.PENDING))
BACK = {"state": RolloutState.ROLLING_BACK, "outcome": RolloutState.FAILED, "reason": "it crashed"}


@pytest.mark.parametrize(
    ("rollout", "words"),
    [
        pytest.param(
            ROLLOUT,
            "1.0 -> 2.0 by rollout 01234567: this node is in wave 2 of 2 and waits: watching wave 1 for another 50 s",
            id="a-later-wave",
        ),
        pytest.param(
            replace(ROLLOUT, state=RolloutState.PAUSED, reason="lunch"),
            "1.0 -> 2.0 by rollout 01234567: this node is in wave 2 of 2 and waits: lunch",
            id="paused",
        ),
        pytest.param(
            replace(ROLLOUT, nodes=CANARY),
            "1.0 -> 2.0 by rollout 01234567: this node, in wave 1 of 2, has it; watching wave 1 for another 50 s",
            id="a-canary",
        ),
        pytest.param(
            replace(ROLLOUT, nodes=CANARY, **BACK),  # type: ignore[arg-type] # fields of a table
            "1.0 -> 2.0 by rollout 01234567: this node, in wave 1 of 2, goes back to 1.0 (it crashed)",
            id="rolling-back",
        ),
        pytest.param(
            replace(ROLLOUT, nodes=(ROLLOUT.nodes[0],)),
            "rollout 01234567 is running without this node, which gets the previous version until it ends",
            id="joined-later",
        ),
        pytest.param(
            replace(ROLLOUT, nodes=(node(ME, 1, IntentState.SUPERSEDED),)), "", id="a-newer-operation-took-the-node"
        ),
    ],
)
def test_a_node_is_told_its_wave_and_what_that_waits_for(rollout: Rollout, words: str) -> None:
    assert describe_for_node(rollout, HERE.node, statuses={}, now_ms=10_000) == words


@pytest.mark.parametrize(
    ("rollout", "held_back", "rolling_out"),
    [
        pytest.param(ROLLOUT, "", "rollout 01234567 has not reached this node with 2.0 yet", id="running"),
        pytest.param(
            replace(ROLLOUT, state=RolloutState.FAILED, reason="it crashed", ended_at=0),
            "2.0 is held back since 1970-01-01 00:00 UTC: it failed in rollout 01234567 (it crashed);"
            " `corral rollouts allow 01234567` offers it again",
            "",
            id="failed",
        ),
        pytest.param(
            replace(ROLLOUT, state=RolloutState.FAILED, ended_at=0, allowed_by="ann"), "", "", id="allowed-again"
        ),
        pytest.param(replace(ROLLOUT, state=RolloutState.COMPLETED, ended_at=0), "", "", id="completed"),
    ],
)
def test_a_version_that_failed_or_is_rolled_out_is_no_plain_upgrade(
    rollout: Rollout, held_back: str, rolling_out: str
) -> None:
    found = compare_offer(HERE, "echo", OFFERED, find_held_back_versions([rollout]))
    assert isinstance(found, OutdatedNode)
    assert (found.held_back, found.rolling_out) == (held_back, rolling_out)
    assert found.is_skipped is bool(held_back or rolling_out)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(RolloutOptions(soak_s=float("nan")), "the soak of rollouts must be between", id="no-number"),
        pytest.param(RolloutOptions(soak_s=8 * 86_400.0), "between 0 s and 7 days", id="a-soak-of-eight-days"),
        pytest.param(RolloutOptions(wave_timeout_s=-1.0), "the wave timeout of rollouts", id="a-negative-time"),
        pytest.param(RolloutOptions(sizes=("0",)), "is not the size of a wave", id="an-empty-wave"),
        pytest.param(
            RolloutOptions(gates=GateSettings(min_throughput_ratio=2.0)), "min_throughput_ratio must be", id="a-gate"
        ),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: RolloutOptions, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        options.check()
    RolloutOptions().check()
