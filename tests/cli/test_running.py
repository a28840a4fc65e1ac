"""Whether a model runs as wanted."""

from typing import Any

import pytest

from corral.cli.running import is_as_wanted, problems


def running(*loads: dict[str, Any], ready: int = 1, wanted: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"ready": ready, "replicas": [], "loads": list(loads)}
    return found if wanted is None else {**found, "wanted": {"min_replicas": wanted}}


@pytest.mark.parametrize(
    ("found", "expected", "told"),
    [
        pytest.param(running(), True, [], id="nothing-wanted"),
        pytest.param(running(ready=2, wanted=2), True, [], id="all-there"),
        pytest.param(running(ready=1, wanted=2), False, [], id="one-away"),
        pytest.param(running({"state": "loading", "reason": "it is being started"}), True, [], id="under-way"),
        pytest.param(running({"state": "pending", "reason": "no room"}), False, ["no room"], id="waits"),
        pytest.param(running({"state": "failed", "error": "no disk"}), False, ["no disk"], id="failed"),
    ],
)
def test_a_model_is_as_wanted_when_enough_is_ready_and_nothing_stands_in_the_way(
    found: dict[str, Any], expected: bool, told: list[str]
) -> None:
    assert is_as_wanted(found) is expected
    assert problems(found) == told
