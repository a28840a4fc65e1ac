"""Versions that are slow, crash or do not start are stopped at the canaries and rolled back, while requests go on."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.localai_backend import localai_files
from harness.programs import Admin, clean_environment, run_cli
from harness.traffic import Traffic
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

CLASSES = ("default", "vulkan", "intel")
WAVES = ("--rollout-strategy", "waves", "--rollout-soak", "4", "--rollout-min-requests", "8")
CONFIG = "name: tiny\nbackend: echo\ntemplate: {use_tokenizer_template: true}\n"
CRASHES = r"processes of the new version ended unexpectedly|tiny#\d+ is not running now"
"""Whichever is noticed first: that it ended, or that it is being started again."""
BROKEN = {"run.sh": b"#!/bin/sh\necho the engine is on fire >&2\nexit 3\n"}


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """The rows of rollouts are tested on both databases in tests/store: two frontends need PostgreSQL."""
    url: str = request.getfixturevalue("postgres_url")
    return url


def start(fleet: Cluster, count: int, classes: int, *flags: str) -> Admin:
    fleet.offer_image("echo", localai_files("1"), version="1.0")
    admin = fleet.start_frontend("a", "--auto-approve", *WAVES, *flags)
    fleet.start_frontend("b", "--auto-approve", *WAVES, *flags)
    for number in range(count):
        fleet.start_worker(f"n{number:02}", "--capability", CLASSES[number % classes], frontend="b")
    for number in range(count):
        admin.wait_for_status(f"n{number:02}", "healthy", within_s=120)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"), within_s=120)
    return admin


def serve(fleet: Cluster, admin: Admin, count: int) -> None:
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": count, "max_replicas": count}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    fleet.wait_for_ready("tiny", count, within_s=120)


def offer(fleet: Cluster, version: str, files: dict[str, bytes]) -> str:
    return fleet.offer_image("echo", files, version=version)


def rollout(admin: Admin, job: str) -> dict[str, Any]:
    answer = admin.call("GET", f"/api/rollouts/{job}")
    assert answer.status == 200, answer.body
    shown: dict[str, Any] = answer.json()
    return shown


def wait_for_end(admin: Admin, job: str, state: str, *, within_s: float = 150.0) -> dict[str, Any]:
    wait_until(lambda: rollout(admin, job)["ended_at"] is not None, what="it ends", within_s=within_s)
    shown = rollout(admin, job)
    assert shown["state"] == state, shown
    return shown


def cli(admin: Admin, *words: str) -> str:
    done = run_cli(*words, environment=clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY))
    return done.stdout + done.stderr


@pytest.mark.postgres
def test_bad_versions_stop_at_the_canaries_and_a_good_one_goes_through(
    fleet: Cluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    full = bool(request.config.getoption("--full-length"))
    count, classes, per_s = (12, 3, 50) if full else (4, 2, 16)
    start(fleet, count, classes)
    first = fleet.digests("echo")["n00"]
    admin, other = fleet.admin("a"), fleet.admin("b")
    serve(fleet, admin, count)
    wanted = {f"n{number:02}": first for number in range(count)}
    soak_s = 30 if full else 6
    flawed = {
        "2.0": (localai_files("2", delay_s=0.15), "tokens/s per request"),
        "3.0": (BROKEN, "the engine is on fire"),
        "4.0": (localai_files("4", dies_after_s=soak_s * 2 / 3), CRASHES),
    }
    with Traffic(other.url, ADMIN_KEY, "tiny", per_s=per_s) as traffic:
        wait_until(lambda: traffic.fates["200"] > 20 * count, what="figures of the old version", within_s=120)
        for version, (files, reason) in flawed.items():
            offer(fleet, version, files)
            job = fleet.begin("/api/backends/upgrade/echo", {"rollout": {"soak_s": soak_s}})
            shown = wait_for_end(admin, job, "failed")
            assert re.search(reason, shown["reason"]), shown["reason"]
            assert [wave["state"] for wave in shown["waves"]] == ["failed", "stopped", "stopped"][: len(shown["waves"])]
            assert len(shown["waves"][0]["nodes"]) == classes, "one canary of each class"
            fleet.wait_for_digests("echo", wanted, within_s=60)
            again = fleet.post("/api/backends/upgrade/echo")
            assert (again.status, "rollouts allow" in again.message) == (409, True), again.body
        fleet.wait_for_ready("tiny", count, within_s=60)

        good = offer(fleet, "5.0", localai_files("5"))
        job = fleet.begin("/api/backends/upgrade/echo")
        wait_until(
            lambda: (shown := rollout(other, job))["wave"] == 2 or shown["ended_at"], what="wave 2", within_s=120
        )
        assert (shown := rollout(other, job))["state"] == "running", shown
        fleet.frontends["a"].kill()
        wait_for_end(other, job, "completed")
        fleet.wait_for_digests("echo", dict.fromkeys(wanted, good), frontend="b", within_s=60)
    assert set(traffic.fates) == {"200"}, traffic.fates
    told = cli(other, "rollouts", "show", job[:8])
    (tmp_path / "timeline.txt").write_text(told)
    for words in ("wave 2 of ", "all waves passed", "completed"):
        assert words in told


@pytest.mark.postgres
def test_canaries_wait_for_promotion_a_node_that_joins_gets_the_proven_version_and_an_abort_goes_back(
    fleet: Cluster,
) -> None:
    admin = start(fleet, 2, 1)
    first = fleet.digests("echo")["n00"]
    serve(fleet, admin, 2)
    second = offer(fleet, "2.0", localai_files("2"))
    asked = {"rollout": {"strategy": "canary", "soak_s": 1}}
    job = fleet.begin("/api/backends/upgrade/echo", asked)
    wait_until(lambda: rollout(admin, job)["state"] == "awaiting_promotion", what="the canary is proven", within_s=90)
    assert sorted(fleet.digests("echo").values()) == sorted((first, second))
    fleet.start_worker("n02", "--capability", CLASSES[0], frontend="b")
    admin.wait_for_status("n02", "healthy", within_s=60)
    wait_until(lambda: "n02" in fleet.digests("echo"), what="the policy reaches the new node", within_s=60)
    assert fleet.digests("echo")["n02"] == first, "the version that is proven on the fleet"

    assert "awaiting promotion" in cli(admin, "rollouts", "list")
    cli(admin, "rollouts", "abort", job[:8])
    wait_for_end(admin, job, "aborted")
    fleet.wait_for_digests("echo", dict.fromkeys(("n00", "n01", "n02"), first), within_s=60)

    job = fleet.begin("/api/backends/upgrade/echo", asked)
    wait_until(lambda: rollout(admin, job)["state"] == "awaiting_promotion", what="the canary is proven", within_s=90)
    cli(admin, "rollouts", "promote", job[:8])
    wait_for_end(admin, job, "completed")
    fleet.wait_for_digests("echo", dict.fromkeys(("n00", "n01", "n02"), second), within_s=60)


@pytest.mark.postgres
def test_the_only_replica_of_a_model_changes_its_version_on_the_canary_beside_an_idle_node(fleet: Cluster) -> None:
    admin = start(fleet, 2, 1)
    serve(fleet, admin, 1)
    where = "SELECT nodes.name, backend_digest FROM replicas JOIN nodes ON nodes.id = node_id WHERE state = 'ready'"
    [(node, _)] = fleet.read_sql(where)
    second = offer(fleet, "2.0", localai_files("2"))
    job = fleet.begin("/api/backends/upgrade/echo", {"rollout": {"strategy": "canary", "soak_s": 1}})
    wait_until(lambda: rollout(admin, job)["state"] == "awaiting_promotion", what="the canary is proven", within_s=90)
    shown = rollout(admin, job)
    assert [one["node_name"] for one in shown["waves"][0]["nodes"]] == [node], "the node whose version is in use"
    assert fleet.read_sql(where) == [(node, second)]
