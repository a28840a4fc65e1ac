"""The rollout of a version on one node: what is replaced, how many at once, and when a stopped replica is replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.backends.test_drift import NEW, OLD
from corral.core.backends.rollout import StoppedFirst, StoppedModel, is_served_again, plan_replicas, stop_first_at_once
from corral.core.nodes.observed import ObservedProcess, ProcessStatus
from corral.core.replicas.replica import Replica, ReplicaState


def process(key: str, digest: str = OLD, backend: str = "cpu-echo", state: str = "ready") -> ObservedProcess:
    return ObservedProcess(
        process_key=key, model="m", replica=0, backend=backend, digest=digest, state=ProcessStatus(state)
    )


@pytest.mark.parametrize(
    ("running", "replaced"),
    [
        pytest.param(process("m#0"), True, id="ready"),
        pytest.param(process("m#0", state="starting"), True, id="starting"),
        pytest.param(process("m#0", state="backing_off"), True, id="about-to-restart"),
        pytest.param(process("m#0", state="stopping"), False, id="stopping"),
        pytest.param(process("m#0", state="stopped"), False, id="stopped"),
        pytest.param(process("m#0", state="failed"), False, id="failed"),
        pytest.param(process("m#0", digest=NEW), False, id="of-the-new-version"),
        pytest.param(process("m#0", digest=""), False, id="of-an-unknown-version"),
        pytest.param(process("m#0", backend="other"), False, id="of-another-backend"),
    ],
)
def test_plan_replicas(running: ObservedProcess, replaced: bool) -> None:
    changes = plan_replicas([running], backend="cpu-echo", digest=NEW)
    assert [(change.process, change.digest) for change in changes] == ([(running, NEW)] if replaced else [])


@pytest.mark.parametrize(
    ("serving", "kept", "expected"),
    [
        pytest.param(1, 1, 1, id="the-only-one-has-to-be-stopped"),
        pytest.param(2, 1, 1, id="one-of-two"),
        pytest.param(8, 1, 2, id="a-quarter"),
        pytest.param(8, 7, 1, id="not-below-the-minimum"),
        pytest.param(8, 8, 1, id="but-one-in-any-case"),
        pytest.param(100, 0, 25, id="a-quarter-of-many"),
        pytest.param(0, 0, 1, id="none-serves"),
    ],
)
def test_stop_first_at_once(serving: int, kept: int, expected: int) -> None:
    assert stop_first_at_once(serving, kept=kept) == expected


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_minimum_keeps_serving_unless_only_one_can_be_stopped(serving: int, kept: int) -> None:
    stopped = stop_first_at_once(serving, kept=kept)
    assert stopped >= 1
    assert stopped == 1 or serving - stopped >= kept


STOPPED = StoppedFirst(
    replica_id="r", node_id="n", model="m", revision="1", backend="cpu-echo", digest=OLD, stopped_at_ms=0
)


def row(state: ReplicaState, node: str = "n", digest: str = NEW) -> Replica:
    return Replica(id="x", node_id=node, model="m", slot=0, revision="1", state=state, backend_digest=digest)


@pytest.mark.parametrize(
    ("replicas", "loads", "desired", "expected"),
    [
        pytest.param([row(ReplicaState.READY)], 0, 1, True, id="the-version-serves-in-its-place"),
        pytest.param([row(ReplicaState.READY)], 3, 9, True, id="whatever-else-is-missing"),
        pytest.param([row(ReplicaState.READY, digest=OLD)], 0, 2, False, id="another-version-in-its-place"),
        pytest.param([row(ReplicaState.READY, node="m")], 0, 1, True, id="enough-serve-elsewhere"),
        pytest.param([row(ReplicaState.READY, node="m")], 0, 2, False, id="too-few-serve-elsewhere"),
        pytest.param([row(ReplicaState.READY, node="m")], 1, 1, False, id="a-load-is-running"),
        pytest.param(
            [row(ReplicaState.READY, node="m"), row(ReplicaState.LOADING)], 0, 1, False, id="a-replica-is-starting"
        ),
        pytest.param([row(ReplicaState.DRAINING, node="m")], 0, 1, False, id="a-draining-one-does-not-count"),
        pytest.param([], 0, 0, True, id="the-model-was-deleted"),
        pytest.param([], 0, 1, False, id="nothing-serves"),
    ],
)
def test_is_served_again(replicas: list[Replica], loads: int, desired: int, expected: bool) -> None:
    model = StoppedModel(replicas=tuple(replicas), loads=loads, desired=desired)
    assert is_served_again(STOPPED, model, digest=NEW) is expected
