"""A family gets another build on nodes that serve: replicas move to it, and a rollout goes back to the build before."""

from pathlib import Path

import pytest

from fleet.test_rollouts import BROKEN, CONFIG, cli, rollout, wait_for_end
from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.programs import Admin
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

WAVES = ("--rollout-strategy", "waves", "--rollout-soak", "1")
NODES = ("n0", "n1")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The rows are tested on both databases in tests/store and tests/controller."""
    return f"sqlite://{tmp_path / 'shared.db'}"


def offer(fleet: Cluster, builds: dict[str, str]) -> None:
    """The family, as the gallery has it now."""
    fleet.offer("echo", capabilities=builds)


def serve(fleet: Cluster) -> Admin:
    """Two nodes that could use an accelerator, for which the gallery has only a CPU build."""
    offer(fleet, {"default": "cpu-echo"})
    fleet.offer_image("cpu-echo", localai_files("cpu"), version="1.0")
    admin = fleet.start_frontend("a", "--auto-approve", *WAVES)
    for name in NODES:
        fleet.start_worker(name, "--capability", "nvidia-cuda-12")
    for name in NODES:
        admin.wait_for_status(name, "healthy", within_s=120)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"), within_s=120)
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": 2, "max_replicas": 2}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    fleet.wait_for_ready("tiny", 2, within_s=120)
    return admin


def running(fleet: Cluster) -> dict[str, str]:
    """The build that serves on each node."""
    return {
        name: one["backend"]
        for name in NODES
        for one in fleet.ask_worker(name, "corral.report.now")["processes"]
        if one["state"] == "ready"
    }


def wait_for_running(fleet: Cluster, build: str) -> None:
    wanted = dict.fromkeys(NODES, build)
    wait_until(lambda: running(fleet) == wanted, what=f"{build} serves everywhere", within_s=60)


def test_replicas_move_to_the_new_build_of_a_family_and_back(fleet: Cluster) -> None:
    admin = serve(fleet)
    wait_for_running(fleet, "cpu-echo")
    fleet.offer_image("cuda-echo", BROKEN, version="1.1")
    offer(fleet, {"default": "cpu-echo", "nvidia-cuda-12": "cuda-echo"})
    job = fleet.begin("/api/backends/upgrade/echo")
    shown = wait_for_end(admin, job, "failed")
    assert "the engine is on fire" in shown["reason"], shown["reason"]
    assert [node["variant"] for wave in shown["waves"] for node in wave["nodes"]] == ["cpu-echo"] * 2
    assert running(fleet) == dict.fromkeys(NODES, "cpu-echo")

    fleet.offer_image("cuda-echo", localai_files("cuda"), version="1.2")
    job = fleet.begin("/api/backends/upgrade/echo", {"nodes": list(NODES)})
    wait_for_end(admin, job, "completed")
    wait_for_running(fleet, "cuda-echo")
    assert admin.call("GET", "/api/fleet/slow-builds").json() == []

    fleet.wait_for_operation(fleet.begin("/api/backends/echo/rollback", {"nodes": list(NODES)}), within_s=120)
    wait_for_running(fleet, "cpu-echo")
    slow = admin.call("GET", "/api/fleet/slow-builds").json()
    assert [one["build"] for one in slow] == ["cpu-echo"] * 2, "the family points to it, whatever else is on the disk"


def test_a_rollout_that_is_aborted_takes_its_canary_back_to_the_build_before(fleet: Cluster) -> None:
    admin = serve(fleet)
    fleet.offer_image("cuda-echo", localai_files("cuda"), version="1.2")
    offer(fleet, {"default": "cpu-echo", "nvidia-cuda-12": "cuda-echo"})
    job = fleet.begin("/api/backends/upgrade/echo", {"rollout": {"strategy": "canary"}})
    wait_until(lambda: rollout(admin, job)["state"] == "awaiting_promotion", what="the canary serves", within_s=120)
    assert sorted(running(fleet).values()) == ["cpu-echo", "cuda-echo"]
    assert fleet.post(f"/api/rollouts/{job}/abort").status == 200
    wait_for_end(admin, job, "aborted")
    wait_for_running(fleet, "cpu-echo")


def test_a_node_that_joins_gets_the_build_before_while_the_new_one_is_not_proven(fleet: Cluster) -> None:
    admin = serve(fleet)
    fleet.offer_image("cuda-echo", localai_files("cuda"), version="1.2")
    offer(fleet, {"default": "cpu-echo", "nvidia-cuda-12": "cuda-echo"})
    operations = len(admin.call("GET", "/api/operations").json())
    told = cli(admin, "backends", "upgrade", "echo", "--dry-run", "--strategy", "canary", "--unjudged", "fail")
    for words in (
        "Rollout of echo cpu-echo 1.0 → cuda-echo 1.2 in 2 waves (canary)",
        "wave 1: n0",
        "n1: cpu-echo 1.0 → cuda-echo 1.2, rolling: ",
    ):
        assert words in told, told
    assert len(admin.call("GET", "/api/operations").json()) == operations, "nothing was started"
    forced = cli(admin, "backends", "upgrade", "echo", "--dry-run", "--per-node", "stop-first", "--strategy", "all")
    assert "Stop-first on n0, n1: " in forced, forced
    job = fleet.begin("/api/backends/upgrade/echo", {"rollout": {"strategy": "canary"}})
    wait_until(lambda: rollout(admin, job)["state"] == "awaiting_promotion", what="the canary serves", within_s=120)
    fleet.start_worker("n2", "--capability", "nvidia-cuda-12")
    admin.wait_for_status("n2", "healthy", within_s=60)
    wait_until(lambda: fleet.digest_on("n2", "cpu-echo") is not None, what="it gets the build before", within_s=60)
    assert fleet.digest_on("n2", "cuda-echo") is None
    assert fleet.post(f"/api/rollouts/{job}/promote").status == 200
    wait_for_end(admin, job, "completed")
    assert all(fleet.digest_on(name, "cuda-echo") for name in NODES)
