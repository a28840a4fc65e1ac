"""How long the replicas of a model that is gone may stay."""

import pytest

from corral.core.replicas.endings import Ending, plan_ending
from corral.core.replicas.replica import Replica, ReplicaState

WITHIN_MS = 60_000
NOW_MS = 1_000_000


def replica(state: ReplicaState, *, since_ms: int = 0) -> Replica:
    return Replica(id="r", node_id="n", model="m", slot=0, revision="1", state=state, changed_at=NOW_MS - since_ms)


@pytest.mark.parametrize(
    ("row", "in_flight", "expected"),
    [
        pytest.param(replica(ReplicaState.READY), 0, Ending(drain=("r",)), id="nothing-new-comes"),
        pytest.param(replica(ReplicaState.READY), 3, Ending(drain=("r",)), id="what-is-answered-goes-on"),
        pytest.param(replica(ReplicaState.DRAINING), 3, Ending(), id="for-a-while"),
        pytest.param(replica(ReplicaState.DRAINING), 0, Ending(stop=("r",)), id="an-idle-one-ends-at-once"),
        pytest.param(
            replica(ReplicaState.DRAINING, since_ms=WITHIN_MS), 3, Ending(stop=("r",)), id="and-a-busy-one-in-time"
        ),
        pytest.param(replica(ReplicaState.LOADING), 0, Ending(stop=("r",)), id="what-is-not-there-yet-never-comes"),
        pytest.param(replica(ReplicaState.FAILED), 0, Ending(stop=("r",)), id="what-failed-is-cleared-away"),
        pytest.param(replica(ReplicaState.STOPPING), 3, Ending(), id="what-is-being-ended-is-left-alone"),
    ],
)
def test_plan_ending(row: Replica, in_flight: int, expected: Ending) -> None:
    found = plan_ending([row], in_flight=lambda _: in_flight, now_ms=NOW_MS, within_ms=WITHIN_MS)
    assert found == expected
