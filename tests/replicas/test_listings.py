"""What the command line says about models that run, wait, or cannot run."""

import json
import subprocess
from typing import Any

from harness.cluster import ADMIN_KEY, Cluster
from harness.machine_speed import promised
from harness.programs import Admin, clean_environment, run_cli
from harness.tiny_model import Shelf
from harness.waiting import wait_until

GHOST = "name: ghost\nbackend: no-such-backend\nparameters: {model: ghost.gguf}\n"


def cli(admin: Admin, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_cli(*words, environment=clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY))


def read(admin: Admin, *words: str) -> Any:
    done = cli(admin, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_runs_is_shown_everywhere(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    scaled = cli(admin, "models", "scale", "tiny", "2")
    told = "Only 1 of 2 can be placed now: no node can take it; w1: already runs 1 replica of this model"
    assert told in scaled.stdout, scaled.stderr
    cluster.wait_for_ready("tiny", 1)

    def waits() -> bool:
        [model] = read(admin, "models", "list")
        return any(load.get("reason") for load in model["running"]["loads"])

    wait_until(waits, what="the second one waits", within_s=30)
    [row] = [line.split() for line in cli(admin, "models", "list").stdout.splitlines()[1:]]
    assert row[:5] == ["tiny", "ready,", "pending", "1", "2"]
    shown = cli(admin, "models", "show", "tiny").stdout
    assert "# 1 ready, desired: 2" in shown.replace("ready, pending; ", "")
    assert "# on w1 (slot 0, ready)" in shown
    assert "already runs 1 replica of this model" in shown
    [node] = read(admin, "nodes", "list")
    assert (node["model_count"], node["in_flight_count"]) == (1, 0)
    assert admin.call("GET", "/api/nodes/w1").json()["model_count"] == 1
    by_name = admin.call("GET", "/api/why/nodes/w1").json()
    assert by_name == admin.call("GET", f"/api/why/nodes/{node['id']}").json()
    assert [replica["model_name"] for replica in by_name["replicas"]] == ["tiny"]
    assert "not considered" not in {decision["verdict"] for decision in by_name["decisions"]}
    assert "tiny (slot 0, ready)" in cli(admin, "nodes", "show", "w1").stdout
    status = cli(admin, "status").stdout
    assert "1 configured, 1 served by 1 replica, 1 below desired replicas" in status
    told = cli(admin, "why", "model", "tiny").stdout
    assert "of memory free" in told
    assert "negated" not in told
    cli(admin, "models", "scale", "tiny", "--min", "0")
    assert cli(admin, "models", "unload", "tiny").stdout == "tiny: unloaded\n"
    assert (cluster.replicas("tiny"), cluster.engines("w1")) == ([], []), "it has happened when it is said"
    nowhere = cli(admin, "models", "scale", "tiny", "--everywhere", "--selector", "tier=fast").stdout
    assert "No node can run it now: no healthy node has the labels tier=fast" in nowhere
    assert "no healthy node matches its selector" in cli(admin, "models", "list").stdout
    assert "no healthy node has the labels tier=fast" in cli(admin, "why", "tiny").stdout


def test_a_model_that_nothing_can_serve_is_reported_at_once_and_not_waited_for(
    cluster: Cluster,
) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    (cluster.directory / "ghost.yaml").write_text(GHOST)
    added = cli(admin, "models", "install", "--file", str(cluster.directory / "ghost.yaml"))
    assert added.returncode == 0
    assert "no node can serve it now" in added.stderr
    assert "no-such-backend" in added.stderr
    with promised("no wait for what cannot happen", within_s=30):
        loaded = cli(admin, "models", "load", "ghost", "--timeout", "60")
    assert loaded.returncode == 1
    assert "ghost could not be loaded: no node can take it" in loaded.stderr
    assert "no-such-backend" in loaded.stderr
    with promised("no wait for what cannot happen", within_s=30):
        asked = cli(admin, "chat", "ghost", "hi", "--wait", "60")
    assert asked.returncode == 1
    assert "no-such-backend" in asked.stderr
