"""Whether a model has its desired replicas, and what is noted if not."""

from typing import Any

import pytest

from corral.cli.display.replicas import is_as_desired, notes, problems


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
def test_a_model_is_as_desired_when_enough_replicas_are_ready_and_no_load_is_blocked(
    found: dict[str, Any], expected: bool, told: list[str]
) -> None:
    assert is_as_desired(found) is expected
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
            ["1 more replica will be loaded shortly"],
            id="not-yet-everywhere",
        ),
        pytest.param(
            {**running(ready=0), "desired": {**EVERYWHERE, "nodes": 0}},
            ["no healthy node matches its selector"],
            id="everywhere-is-nowhere",
        ),
        pytest.param(
            running({"state": "staging", "node": "b", "progress": 40.0}, wanted=2),
            ["loading another replica on b: downloading weights, 40 %"],
            id="starting",
        ),
        pytest.param(
            running({"state": "pending"}, wanted=2), ["loading another replica: waiting for capacity"], id="new"
        ),
        pytest.param(
            running({"state": "pending", "reason": "no room", "next_attempt_at": AT}, wanted=2),
            ["no room (next attempt at 03:04:05 UTC)"],
            id="waiting-for-a-place",
        ),
        pytest.param(
            running({"state": "failed", "error": "no disk", "next_attempt_at": AT}, wanted=2),
            ["no disk (next attempt at 03:04:05 UTC)"],
            id="backing-off",
        ),
        pytest.param(
            running(
                {"state": "pending", "reason": "no room", "next_attempt_at": "2026-01-02T03:04:09Z"},
                {"state": "pending", "reason": "no room", "next_attempt_at": AT},
                {"state": "staging", "node": "b", "progress": 40.0},
                wanted=4,
            ),
            ["loading another replica on b: downloading weights, 40 %", "no room (next attempt at 03:04:05 UTC)"],
            id="several-wait-for-the-same",
        ),
        pytest.param(
            {
                **running(wanted=2),
                "replicas": [{"node": "b", "slot": 0, "state": "offline", "reason": "b is unhealthy"}],
            },
            ["the replica on b is offline: b is unhealthy"],
            id="offline",
        ),
        pytest.param(running(wanted=3), ["2 more replicas will be loaded shortly"], id="not-begun"),
    ],
)
def test_fewer_replicas_than_desired_always_have_a_note(found: dict[str, Any], told: list[str]) -> None:
    assert notes(found) == told


@pytest.mark.parametrize(
    ("load", "told"),
    [
        pytest.param({"state": "failed", "error": "exit code 1."}, [], id="said-already"),
        pytest.param({"state": "pending", "reason": "exit code 1"}, [], id="said-already-of-a-load-that-waits"),
        pytest.param(
            {"state": "pending", "error": "exit code 1.", "next_attempt_at": AT},
            ["next attempt at 03:04:05 UTC"],
            id="the-time-of-the-next-attempt-is-new",
        ),
        pytest.param({"state": "failed", "error": "no disk."}, ["no disk."], id="another-reason"),
        pytest.param(
            {"state": "failed", "error": "no disk.", "next_attempt_at": AT},
            ["no disk (next attempt at 03:04:05 UTC)"],
            id="another-reason-with-a-time",
        ),
    ],
)
def test_a_reason_beside_the_notes_is_not_repeated(load: dict[str, Any], told: list[str]) -> None:
    assert notes(running(load), told="revision 2 failed: exit code 1; revision 1 keeps serving") == told
