"""Versions that no model uses are started once before they are accepted, in waves and all at once."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.test_rollouts import rollout, wait_for_end
from harness.cluster import Cluster
from harness.localai_backend import http_files, localai_files
from harness.programs import Admin
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

WAVES = ("--rollout-strategy", "waves", "--rollout-soak", "1")
ON_FIRE = b"#!/bin/sh\necho the engine is on fire >&2\nexit 3\n"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Rollouts and their rows are tested on both databases in tests/store and tests/controller."""
    return f"sqlite://{tmp_path / 'shared.db'}"


def silent(**trial: Any) -> dict[str, bytes]:
    """A gRPC backend that runs and never answers."""
    start = [sys.executable, "-I", "-c", "import time; time.sleep(600)", "{host}:{port}"]
    return {"corral.yaml": json.dumps({"protocol": "localai-grpc", "start": start, "trial": trial}).encode()}


def engine(version: str, trial: dict[str, Any] | None) -> dict[str, bytes]:
    """A server that speaks OpenAI's API."""
    files = http_files(version)
    more = f"trial: {json.dumps(trial)}\n" if trial is not None else ""
    return {**files, "corral.yaml": files["corral.yaml"] + more.encode(), "tiny.gguf": b"small"}


def command(code: str) -> dict[str, Any]:
    return {"command": [sys.executable, "-I", "-S", "-c", code, "{dir}"], "within_s": 20}


def start(fleet: Cluster, files: dict[str, bytes], count: int = 2) -> Admin:
    fleet.offer_image("idle", files, version="1")
    admin = fleet.start_frontend("a", "--auto-approve", *WAVES)
    for number in range(count):
        fleet.start_worker(f"n{number}")
    for number in range(count):
        admin.wait_for_status(f"n{number}", "healthy", within_s=120)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/idle"), within_s=120)
    return admin


def upgrade(fleet: Cluster, version: str, files: dict[str, bytes], **asked: Any) -> str:
    fleet.offer_image("idle", files, version=version)
    return fleet.begin("/api/backends/upgrade/idle", {"rollout": asked} if asked else None)


def starts(shown: dict[str, Any], wave: int = 0) -> list[tuple[str, str]]:
    return [(gate["outcome"], gate["detail"]) for gate in shown["waves"][wave]["gates"] if gate["gate"] == "starts"]


def processes(fleet: Cluster, *words: str) -> list[str]:
    """Command lines on this machine that name this fleet's directory and one of the words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(fleet.directory) in line and any(word in line for word in words):
            found.append(line)
    return found


def test_grpc_backends_are_started_and_must_answer_their_health_check(fleet: Cluster) -> None:
    admin = start(fleet, localai_files("1"))
    first = fleet.digests("idle")["n0"]
    bad = [
        ("2", {"run.sh": ON_FIRE}, "the engine is on fire"),
        ("3", silent(within_s=2), "not ready within 2 s: nothing listens"),
    ]
    for version, files, reason in bad:
        shown = wait_for_end(admin, upgrade(fleet, version, files), "failed")
        assert reason in shown["reason"], shown["reason"]
        assert "does not start, the old version is current again" in shown["reason"]
        [(outcome, detail)] = starts(shown)
        assert (outcome, reason in detail) == ("failed", True)
        assert [wave["state"] for wave in shown["waves"]] == ["failed", "stopped"], "the second node was never touched"
        fleet.wait_for_digests("idle", {"n0": first, "n1": first}, within_s=60)
    good = upgrade(fleet, "4", localai_files("4"))
    shown = wait_for_end(admin, good, "completed")
    for wave, name in enumerate(("n0", "n1")):
        [(outcome, detail)] = starts(shown, wave)
        assert outcome == "passed"
        assert "a smoke test started it: its gRPC health check answered" in detail
        assert name in detail
    assert processes(fleet, "backend.py", "time.sleep(600)") == [], "nothing of the tests is left"
    nodes = admin.call("GET", f"/api/nodes/{admin.nodes()['n0']['id']}").json()
    assert "smoke-test" not in json.dumps(nodes), "nobody routes to it, so it is not shown"


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        pytest.param(command("import sys; sys.exit('no CUDA here')"), "no CUDA here", id="its-command-fails"),
        pytest.param(
            {**command("import time; time.sleep(600)"), "within_s": 2}, "not ready within 2 s: it has not ended",
            id="its-command-hangs",
        ),
        pytest.param({"model": "{dir}/missing/tiny.gguf"}, "exit code 7", id="it-does-not-start-with-its-own-model"),
    ],
)  # fmt: skip
def test_engines_are_started_as_their_trial_says(fleet: Cluster, trial: dict[str, Any], reason: str) -> None:
    admin = start(fleet, engine("1", None))
    first = fleet.digests("idle")["n0"]
    picky = b"import os, sys\nif not os.path.exists(sys.argv[3]): sys.exit(7)\n"
    files = engine("2", trial)
    files["server.py"] = picky + files["server.py"]
    shown = wait_for_end(admin, upgrade(fleet, "2", files), "failed")
    assert reason in shown["reason"], shown["reason"]
    fleet.wait_for_digests("idle", {"n0": first, "n1": first}, within_s=60)
    for version, trial in (("3", command("print('engine 3')")), ("4", {"model": "{dir}/tiny.gguf"})):
        files = engine(version, trial)
        files["server.py"] = picky + files["server.py"]
        [(outcome, _)] = starts(wait_for_end(admin, upgrade(fleet, version, files), "completed"))
        assert outcome == "passed"


def test_an_engine_without_a_trial_is_not_judged_which_counts_by_setting(fleet: Cluster) -> None:
    admin = start(fleet, engine("1", None))
    accepted = wait_for_end(admin, upgrade(fleet, "2", engine("2", None)), "completed")
    [(outcome, detail)] = starts(accepted)
    assert outcome == "unjudged"
    assert "was not started on n0: it speaks OpenAI's API, and its corral.yaml has no `trial`" in detail
    refused = wait_for_end(admin, upgrade(fleet, "3", engine("3", None), unjudged_passes=False), "failed")
    assert "a gate could not be judged" in refused["reason"]


def test_an_upgrade_of_all_nodes_at_once_tests_each_of_them(fleet: Cluster) -> None:
    start(fleet, localai_files("1"))
    first = fleet.digests("idle")["n0"]
    job = upgrade(fleet, "2", {"run.sh": ON_FIRE}, strategy="all")
    wait_until(
        lambda: [node["error"].count("the engine is on fire") for node in fleet.operation(job)["nodes"]] == [1, 1],
        what="both nodes have tried it",
        within_s=60,
    )
    fleet.wait_for_digests("idle", {"n0": first, "n1": first}, within_s=60)


def test_an_install_over_another_version_starts_it_once_before_it_is_accepted(fleet: Cluster) -> None:
    admin = start(fleet, localai_files("1"))
    first = fleet.digests("idle")["n0"]
    fleet.offer_image("idle", {"run.sh": ON_FIRE}, version="2")
    shown = wait_for_end(admin, fleet.begin("/api/backends/install/idle"), "failed")
    [(outcome, detail)] = starts(shown)
    assert (outcome, "the engine is on fire" in detail) == ("failed", True)
    fleet.wait_for_digests("idle", {"n0": first, "n1": first}, within_s=60)
    good = fleet.offer_image("idle", localai_files("3"), version="3")
    shown = wait_for_end(admin, fleet.begin("/api/backends/install/idle"), "completed")
    assert [starts(shown, wave)[0][0] for wave in (0, 1)] == ["passed", "passed"]
    assert fleet.digests("idle") == {"n0": good, "n1": good}


def test_a_worker_that_is_killed_in_a_smoke_test_stops_it_and_tests_again(fleet: Cluster) -> None:
    admin = start(fleet, localai_files("1"), count=1)
    gate = fleet.gates / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done\n"
    files = localai_files("2")
    head, _, rest = files["run.sh"].decode().partition("\n")
    files["run.sh"] = f"{head}\n{wait}{rest}".encode()
    job = upgrade(fleet, "2", files, strategy="waves")
    wait_until(lambda: processes(fleet, "run.sh"), what="the smoke test runs", within_s=60)
    fleet.workers["n0"].kill()
    gate.touch()
    fleet.start_worker("n0")
    shown = wait_for_end(admin, job, "completed")
    assert starts(shown)[0][0] == "passed"
    assert processes(fleet, "backend.py") == []
    assert rollout(admin, job)["state"] == "completed"
