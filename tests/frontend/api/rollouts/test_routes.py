"""`/api/rollouts`: what is shown, how rollouts are steered, and what bad requests are told."""

from typing import Any

import pytest

from corral.core.backends.rollouts import Strategy
from harness.frontend import Frontend
from harness.programs import call
from harness.seeded_rollouts import fail, seed
from harness.waiting import wait_until

STEERING = ("pause", "resume", "promote", "abort", "allow")


def show(frontend: Frontend, key: str) -> dict[str, Any]:
    answer = frontend.admin.call("GET", f"/api/rollouts/{key}")
    assert answer.status == 200, answer.body
    shown: dict[str, Any] = answer.json()
    return shown


def steer(frontend: Frontend, key: str, verb: str, body: Any = None) -> Any:
    return frontend.admin.call("POST", f"/api/rollouts/{key}/{verb}", body=body)


def test_a_rollout_is_listed_shown_and_steered_to_its_end(open_frontend: Frontend) -> None:
    key = seed(open_frontend, backend="steered")
    listed = open_frontend.admin.call("GET", "/api/rollouts").json()["rollouts"]
    assert [(one["id"], one["events"]) for one in listed if one["backend"] == "steered"] == [(key, [])]
    shown = show(open_frontend, key[:8])
    assert (shown["state"], shown["wave"], shown["wave_count"]) == ("running", 1, 2)
    assert shown["versions"][0]["previous_version"] == "1.0"
    assert [[node["state"] for node in wave["nodes"]] for wave in shown["waves"]] == [["running"], ["waiting"]]
    assert [wave["state"] for wave in shown["waves"]] == ["installing", "waiting"]

    paused = steer(open_frontend, key, "pause", {"reason": "lunch\u2028 <b>"})
    assert (paused.status, paused.json()["summary"]) == (200, "paused in wave 1 of 2: lunch\u2028 <b>")
    assert steer(open_frontend, key, "resume").json()["state"] == "running"
    assert steer(open_frontend, key, "promote").json()["state"] == "running"
    wait_until(lambda: show(open_frontend, key)["wave"] == 2, what="the second wave", within_s=30)
    assert steer(open_frontend, key, "abort").json()["state"] in ("rolling_back", "aborted")
    wait_until(lambda: show(open_frontend, key)["state"] == "aborted", what="it ends", within_s=30)
    refused = steer(open_frontend, key, "abort")
    assert (refused.status, "is aborted and cannot be aborted" in refused.message) == (409, True)
    retried = open_frontend.admin.call("POST", f"/api/operations/{key}/retry")
    assert (retried.status, "upgrade again instead" in retried.message) == (409, True)
    kinds = [event["kind"] for event in show(open_frontend, key)["events"]]
    assert kinds == ["started", "paused", "resumed", "promoted", "wave_began", "aborted", "ended"]
    actions = {row["action"] for row in open_frontend.admin.call("GET", "/api/audit").json()}
    assert {"rollout.paused", "rollout.promoted", "rollout.aborted"} <= actions


def test_a_failed_version_is_held_back_until_it_is_allowed(open_frontend: Frontend) -> None:
    key = seed(open_frontend, backend="failing")
    fail(open_frontend, key)
    wait_until(lambda: show(open_frontend, key)["state"] == "failed", what="it ends", within_s=30)
    shown = show(open_frontend, key)
    assert (shown["held_back"], shown["reason"]) == (True, "it is too slow")
    assert [wave["state"] for wave in shown["waves"]] == ["failed", "stopped"]
    assert [gate["gate"] for gate in shown["waves"][0]["gates"]] == ["stable"]
    allowed = steer(open_frontend, key, "allow").json()
    assert allowed["held_back"] is False
    assert allowed["allowed_by"]


@pytest.mark.parametrize("verb", STEERING)
@pytest.mark.parametrize("key", ["nothing", "%2e%2e", "%00", "%ff", "x" * 2000, "'%20OR%201=1", "%25"])
def test_an_unknown_id_is_told_as_such(open_frontend: Frontend, verb: str, key: str) -> None:
    seed(open_frontend, backend="beside")
    answer = steer(open_frontend, key, verb)
    assert answer.status in (400, 404, 405, 414), (key, answer.status, answer.body)
    assert open_frontend.admin.call("GET", f"/api/rollouts/{key}").status in (200, 400, 404, 414)


@pytest.mark.parametrize("verb", ["resume", "allow"])
def test_a_wrong_state_is_a_conflict_that_names_the_state(open_frontend: Frontend, verb: str) -> None:
    answer = steer(open_frontend, seed(open_frontend, backend=f"wrong-{verb}"), verb)
    assert answer.status == 409
    assert "is running and cannot be" in answer.message


def test_an_ended_rollout_is_not_steered(open_frontend: Frontend) -> None:
    key = seed(open_frontend, backend="ended")
    steer(open_frontend, key, "abort")
    wait_until(lambda: show(open_frontend, key)["state"] == "aborted", what="it ends", within_s=30)
    for verb in STEERING:
        answer = steer(open_frontend, key, verb)
        assert (answer.status, "is aborted and cannot be" in answer.message) == (409, True), (verb, answer.body)


def test_a_rollout_without_gates_is_not_steered(open_frontend: Frontend) -> None:
    key = seed(open_frontend, backend="ungated", strategy=Strategy.ALL)
    for verb in ("pause", "resume", "promote", "allow"):
        answer = steer(open_frontend, key, verb)
        assert (answer.status, "corral ops cancel" in answer.message) == (409, True), (verb, answer.body)
    assert steer(open_frontend, key, "abort").status == 200


@pytest.mark.parametrize(
    "body",
    [{"reason": "x" * 501}, {"reason": 7}, {"reason": None}, [], "text", {"reason": "a\u0000b"}, {"raison": "x"}],
)
def test_a_pause_with_a_bad_body_is_refused(open_frontend: Frontend, body: Any) -> None:
    key = seed(open_frontend, backend="body")
    assert steer(open_frontend, key, "pause", body).status in (400, 422)
    assert show(open_frontend, key)["state"] == "running"
    steer(open_frontend, key, "abort")


@pytest.mark.parametrize(
    "rollout",
    [
        '{"strategy": "some"}',
        '{"waves": ["0"]}',
        '{"waves": ["101%"]}',
        '{"waves": ["1.5"]}',
        '{"waves": ["' + "1" * 13 + '"]}',
        '{"waves": "1,2"}',
        '{"waves": [' + ",".join(['"1"'] * 21) + "]}",
        '{"soak_s": -1}',
        '{"soak_s": 1e9}',
        '{"soak_s": NaN}',
        '{"soak_s": Infinity}',
        '{"soak_s": "soon"}',
        '{"per_node": "both"}',
        '{"unjudged_passes": "perhaps"}',
        '{"unknown": 1}',
        "[]",
    ],
)
def test_a_bad_strategy_is_refused_before_anything_is_done(open_frontend: Frontend, rollout: str) -> None:
    for path in ("/api/backends/install/llama-cpp", "/api/backends/upgrade/llama-cpp"):
        answer = call(
            "POST",
            f"{open_frontend.url}{path}",
            key=open_frontend.admin.key,
            raw=f'{{"rollout": {rollout}}}'.encode(),
        )
        assert answer.status in (400, 422), (path, answer.status, answer.body)
        assert answer.message, "it says why"


@pytest.mark.parametrize("who", ["nobody", "a user"])
def test_rollouts_are_for_administrators(open_frontend: Frontend, who: str) -> None:
    key = seed(open_frontend, backend="private")
    secret = None
    if who == "a user":
        made = open_frontend.admin.call("POST", "/api/keys", body={"name": "app", "scope": "user"}).json()
        secret = next(value for name, value in made.items() if name in ("key", "secret"))
    for method, path in [
        ("GET", "/api/rollouts"),
        ("GET", f"/api/rollouts/{key}"),
        *[("POST", f"/api/rollouts/{key}/{verb}") for verb in STEERING],
    ]:
        answer = call(method, f"{open_frontend.url}{path}", key=secret)
        assert answer.status == (401 if secret is None else 403), (path, answer.status)
    assert show(open_frontend, key)["state"] == "running"
