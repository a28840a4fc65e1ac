"""Whether a model runs as wanted."""

from typing import Any

import pytest

from corral.cli.display.replica_summary import is_as_wanted, notes, problems


def running(*loads: dict[str, Any], ready: int = 1, wanted: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"ready": ready, "replicas": [], "loads": list(loads)}
    return found if wanted is None else {**found, "desired": {"min_replicas": wanted}}


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


AT = "2026-01-02T03:04:05.678000Z"
EVERYWHERE = {"min_replicas": 0, "max_replicas": 0, "spread_all": True}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(running(ready=2, wanted=2), [], id="as-wanted"),
        pytest.param({**running(ready=2), "desired": {**EVERYWHERE, "nodes": 2}}, [], id="everywhere"),
        pytest.param(
            {**running(ready=1), "desired": {**EVERYWHERE, "nodes": 2}},
            ["1 more is wanted and will be loaded in a moment"],
            id="not-yet-everywhere",
        ),
        pytest.param(
            {**running(ready=0), "desired": {**EVERYWHERE, "nodes": 0}},
            ["it is wanted on every machine that its selector fits, and no healthy one is such"],
            id="everywhere-is-nowhere",
        ),
        pytest.param(
            running({"state": "staging", "node": "b", "progress": 40.0}, wanted=2),
            ["another is being loaded on b: fetching weights, 40 %"],
            id="starting",
        ),
        pytest.param(
            running({"state": "pending"}, wanted=2), ["another is being loaded: waiting for a place"], id="new"
        ),
        pytest.param(
            running({"state": "pending", "reason": "no room", "next_attempt_at": AT}, wanted=2),
            ["no room (tried again from 03:04:05 UTC on)"],
            id="waiting-for-a-place",
        ),
        pytest.param(
            running({"state": "failed", "error": "no disk", "next_attempt_at": AT}, wanted=2),
            ["no disk (tried again from 03:04:05 UTC on)"],
            id="backing-off",
        ),
        pytest.param(
            running(
                {"state": "pending", "reason": "no room", "next_attempt_at": "2026-01-02T03:04:09Z"},
                {"state": "pending", "reason": "no room", "next_attempt_at": AT},
                {"state": "staging", "node": "b", "progress": 40.0},
                wanted=4,
            ),
            ["another is being loaded on b: fetching weights, 40 %", "no room (tried again from 03:04:05 UTC on)"],
            id="several-wait-for-the-same",
        ),
        pytest.param(
            {**running(wanted=2), "replicas": [{"node": "b", "slot": 0, "state": "away", "reason": "b is unhealthy"}]},
            ["the one on b is away: b is unhealthy"],
            id="away",
        ),
        pytest.param(running(wanted=3), ["2 more are wanted and will be loaded in a moment"], id="not-begun"),
    ],
)
def test_fewer_than_wanted_is_never_left_without_a_word(found: dict[str, Any], told: list[str]) -> None:
    assert notes(found) == told
