"""What was asked becomes true on every node: real frontends, workers, bus, registry and databases."""

import json

import pytest

from harness.fleet import OperationFleet
from harness.localai_backend import http_files, localai_files

pytestmark = pytest.mark.registry


def test_an_install_reaches_every_node_and_the_list_tells_which_has_which_version(fleet: OperationFleet) -> None:
    digest = fleet.offer_image("echo", localai_files("1"), version="1.0")
    admin = fleet.start_frontend("a", "--auto-approve")
    for name in ("one", "two"):
        fleet.start_worker(name)
    for name in ("one", "two"):
        admin.wait_for_status(name, "healthy")
    job = fleet.begin("/api/backends/install/echo")
    ended = fleet.wait_for_operation(job)
    assert fleet.statuses(job) == {"one": "success", "two": "success"}
    assert ended["progress"] == 100
    (entry,) = admin.call("GET", "/api/fleet/backends").json()
    assert entry["name"] == "echo"
    assert [(node["node_name"], node["digest"], node["version"], node["current"]) for node in entry["nodes"]] == [
        ("one", digest, "1.0", True),
        ("two", digest, "1.0", True),
    ]


def test_a_gallery_tells_how_to_start_what_does_not_tell_itself(fleet: OperationFleet) -> None:
    files = {name: data for name, data in http_files("1").items() if name != "corral.yaml"}
    manifest = {"protocol": "openai", "start": ["{python}", "{dir}/server.py", "{host}", "{port}", "{model}"]}
    fleet.offer_image("plain", files, corral={"manifest": manifest})
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/plain"))
    stored = fleet.worker_dir("one") / "backends" / "plain" / "current" / "metadata.json"
    assert json.loads(stored.read_text())["manifest"]["protocol"] == "openai"
