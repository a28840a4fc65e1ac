"""What was asked becomes true on every node: real frontends, workers, bus, registry and databases."""

import json

import pytest

from harness.cluster import Cluster
from harness.localai_backend import http_files, localai_files

pytestmark = pytest.mark.registry


def test_an_install_reaches_every_node_and_the_list_shows_which_has_which_version(fleet: Cluster) -> None:
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


def test_a_gallery_tells_how_to_start_what_does_not_tell_itself(fleet: Cluster) -> None:
    files = {name: data for name, data in http_files("1").items() if name != "corral.yaml"}
    manifest = {"protocol": "openai", "start": ["{python}", "{dir}/server.py", "{host}", "{port}", "{model}"]}
    fleet.offer_image("plain", files, corral={"manifest": manifest})
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/plain"))
    stored = fleet.worker_dir("one") / "backends" / "plain" / "current" / "metadata.json"
    assert json.loads(stored.read_text())["manifest"]["protocol"] == "openai"


def test_localais_paths_and_orders_for_one_node(fleet: Cluster) -> None:
    digest = fleet.offer_image("cpu-echo", localai_files("1"))
    fleet.offer("echo", capabilities={"default": "cpu-echo", "nvidia": "cuda12-echo"})
    fleet.offer("cuda12-echo", uri=f"{fleet.registry.host}/cuda12-echo:latest")
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    node = admin.wait_for_status("one", "healthy")

    refused = fleet.post("/backends/apply", {"id": "ours@cuda12-echo"})
    assert (refused.status, refused.json()["code"]) == (409, "concrete_backend_requires_target")
    assert refused.json()["meta_alternative"] == "echo"
    assert fleet.post("/backends/apply", {"id": "no-such-thing"}).status == 404
    assert fleet.post("/api/backends/install/echo", {"nodes": ["one"], "selector": {"a": "b"}}).status == 400
    assert fleet.post("/api/backends/install/echo", {"nodes": ["nobody"]}).status == 404
    assert fleet.post("/api/backends/upgrade/echo").status == 404

    applied = fleet.post("/backends/apply", {"id": "echo"})
    assert applied.status == 200, applied.body
    fleet.wait_for_operation(applied.json()["id"])
    job = admin.call("GET", applied.json()["status_url"]).json()
    assert (job["processed"], job["progress"], job["message"]) == (True, 100.0, "completed")
    shown = admin.call("GET", f"/api/backends/job/{applied.json()['id']}").json()
    assert (shown["completed"], shown["galleryElementName"]) == (True, "echo")

    assert admin.call("GET", "/api/backends/job/nobody-knows").json()["queued"] is True
    listed = admin.call("GET", f"/api/nodes/{node['id']}/backends").json()
    assert {row["name"]: row.get("digest", "") for row in listed} == {"cpu-echo": digest, "echo": ""}
    upgraded = fleet.post(f"/api/nodes/{node['id']}/backends/upgrade", {"backend": "echo"})
    assert upgraded.status == 202, upgraded.body
    assert fleet.wait_for_operation(upgraded.json()["jobID"])["nodeID"] == node["id"]
    deleted = fleet.post(f"/api/nodes/{node['id']}/backends/delete", {"backend": "echo"})
    assert (deleted.status, deleted.json()) == (200, {"message": "backend deleted"})
    assert fleet.digests("echo") == {}
    (policy,) = admin.call("GET", "/api/policies").json()
    assert (policy["backend"], policy["ensure"]) == ("echo", "present"), "one node's delete is no wish for the others"
    (exception,) = policy["exceptions"]
    assert (exception["node_name"], exception["cause"], exception["by"]) == ("one", "deleted", "key admin")

    uri = f"{fleet.registry.host}/cpu-echo:latest"
    path = f"/api/nodes/{node['id']}/backends/install"
    unread = fleet.post(path, {"backend": "echo", "backend_galleries": "ours"})
    assert (unread.status, "backend_galleries" in unread.message) == (400, True)
    assert fleet.post(path, {"uri": uri}, key="").status == 400, "a key nobody gave is no key"
    fleet.wait_for_operation(fleet.begin(path, {"uri": uri}))
    assert fleet.digests("cpu-echo") == {"one": digest}, "called as its location says"
    outside = fleet.post("/api/backends/install-external", {"uri": uri, "name": "mine", "nodes": ["one"]})
    assert outside.status == 200, outside.body
    fleet.wait_for_operation(outside.json()["jobID"])
    assert fleet.digests("mine") == {"one": digest}
    assert fleet.post("/api/backends/system/delete/mine").json()["success"] is True
    history = admin.call("GET", "/api/operations/history").json()["operations"]
    assert {row["outcome"] for row in history} == {"completed"}
    assert admin.call("DELETE", "/api/operations/history").json() == {"success": True}
    assert admin.call("GET", "/api/operations/history").json()["operations"] == []


def test_a_failure_is_shown_until_dismissed_and_one_node_can_be_tried_again(fleet: Cluster) -> None:
    fleet.offer_image("echo", localai_files("1"))
    flags = ("--backend-retry-base", "0.1", "--backend-retry-max", "0.1", "--backend-max-attempts", "2")
    admin = fleet.start_frontend("a", "--auto-approve", *flags)
    fleet.start_worker("one", "--labels", "tier=fast")
    fleet.start_worker("two", "--labels", "tier=slow")
    for name in ("one", "two"):
        admin.wait_for_status(name, "healthy")
    # A file where the backends' directory has to be: the worker cannot install, and says why.
    blocked = fleet.worker_dir("one") / "backends"
    blocked.rmdir()
    blocked.write_text("in the way")
    job = fleet.begin("/api/backends/install/echo", {"selector": {"tier": "fast"}})
    failed = fleet.wait_for_operation(job, "failed")
    assert [(node["node_name"], node["status"], node["attempts"]) for node in failed["nodes"]] == [("one", "error", 2)]
    (listed,) = admin.call("GET", "/api/operations").json()["operations"]
    assert listed["error"].startswith("one: ")
    (dead,) = admin.call("GET", "/api/intents?state=dead_lettered").json()
    assert admin.call("GET", "/api/intents?state=dead").status == 400
    assert dead["error"]
    blocked.unlink()
    blocked.mkdir()
    assert fleet.post(f"/api/operations/{job}/retry", {"node_id": "one"}).status == 200
    fleet.wait_for_operation(job)
    assert set(fleet.digests("echo")) == {"one"}, "the selector holds"
    assert fleet.post(f"/api/operations/{job}/dismiss").json()["success"] is True
    assert fleet.post("/api/operations/no-such-job/cancel").status == 400

    (policy,) = admin.call("GET", "/api/policies").json()
    frozen = admin.call("PATCH", f"/api/policies/{policy['id']}", body={"on_drift": "freeze"})
    assert (frozen.status, frozen.json()["on_drift"]) == (200, "freeze")
    refused = fleet.post("/api/backends/upgrade/echo")
    assert refused.status == 409
    assert "frozen" in refused.message
    actions = [event["action"] for event in admin.call("GET", "/api/audit").json()]
    assert {"backend.install", "operation.retried", "operation.dismissed", "policy.changed"} <= set(actions)
