"""To be shown 1: nodes of every kind and state, each with the status it should have."""

import pytest

from harness.cluster import Cluster, approve
from harness.frontend import TOKEN
from harness.localai_backend import localai_files
from harness.programs import call
from harness.waiting import wait_until

pytestmark = pytest.mark.registry


def test_each_node_gets_what_fits_it_now_later_or_never(fleet: Cluster) -> None:
    """With F-42: one that lost its disk."""
    digest = fleet.offer_image("cpu-echo", localai_files("1"))
    fleet.offer("echo", capabilities={"default": "cpu-echo", "nvidia": "cuda-echo"})
    fleet.offer("cuda-echo", uri=f"{fleet.registry.host}/cuda-echo:latest", alias="echo")
    # Built for another processor: a machine that should get it gets the next build of the map.
    fleet.registry.push("cuda-echo", localai_files("1"), architecture="arm64")
    admin = fleet.start_frontend("a")
    healthy = ("one", "two", "away", "other")
    for name in (*healthy, "pending"):
        fleet.start_worker(name, *(("--capability", "nvidia") if name == "other" else ()))
    approve(admin, *healthy)
    admin.wait_for_status("pending", "pending")
    agent = {"name": "agent", "node_type": "agent", "token": TOKEN}
    assert call("POST", f"{admin.url}/api/node/register", key=TOKEN, body=agent).status in (200, 201)
    fleet.workers["away"].kill()
    admin.wait_for_status("away", "offline")

    job = fleet.begin("/api/backends/install/echo")
    wanted = {"one": "success", "two": "success", "away": "queued", "other": "success"}
    shown = fleet.wait_for_statuses(job, wanted)
    assert shown["state"] == "running"
    assert {node["variant"] for node in shown["nodes"]} == {"cpu-echo"}
    (listed,) = admin.call("GET", "/api/operations").json()["operations"]
    assert [node["node_name"] for node in listed["nodes"]] == ["away", "one", "other", "two"]

    # The one that was away is done when it returns, without anyone asking.
    fleet.start_worker("away")
    fleet.wait_for_operation(job)
    assert fleet.statuses(job) == wanted | {"away": "success"}
    fleet.wait_for_digests("echo", dict.fromkeys(("one", "two", "away", "other"), digest))

    shown = admin.call("GET", "/api/fleet/backends").json()
    assert {node["node_name"] for backend in shown for node in backend["nodes"]} == {"one", "two", "away", "other"}

    # One that lost its disk gets it again, and so does one that is approved only now.
    fleet.workers["one"].kill()
    fleet.wipe("one")
    fleet.start_worker("one")
    node = admin.nodes()["pending"]
    assert admin.call("POST", f"/api/nodes/{node['id']}/approve").status == 200
    wait_until(
        lambda: (fleet.worker_dir("one") / "backends" / "cpu-echo" / "current").exists(), what="one has it again"
    )
    fleet.wait_for_digests("echo", dict.fromkeys(("one", "two", "away", "other", "pending"), digest))

    # A delete while one is away stays a delete when it is back.
    fleet.workers["two"].kill()
    admin.wait_for_status("two", "unhealthy")
    gone = fleet.begin("/api/backends/delete/echo")
    done = dict.fromkeys(("one", "away", "other", "pending"), "success")
    fleet.wait_for_statuses(gone, done | {"two": "queued"})
    assert (fleet.worker_dir("two") / "backends" / "cpu-echo").exists()
    fleet.start_worker("two")
    fleet.start_worker("late")
    fleet.wait_for_operation(gone)
    fleet.wait_for_digests("echo", {})
    assert not (fleet.worker_dir("two") / "backends" / "cpu-echo").exists()
    # And a machine that was never there when it was deleted, but has it, loses it too; a new one does not get it.
    approve(admin, "late")
    policies = admin.call("GET", "/api/policies").json()
    assert [(policy["backend"], policy["ensure"]) for policy in policies] == [("echo", "absent")]
    assert fleet.digests("echo") == {}

    # What no machine here can run is refused by each of them, with the reason.
    fleet.registry.push("arm-echo", localai_files("1"), architecture="arm64")
    fleet.offer("arm-echo", uri=f"{fleet.registry.host}/arm-echo:latest")
    admin.call("POST", "/api/galleries/refresh")
    nodes = ("one", "two", "away", "other", "pending", "late")
    refused = fleet.wait_for_statuses(
        fleet.begin("/api/backends/install/arm-echo"), dict.fromkeys(nodes, "not_applicable")
    )
    for node in refused["nodes"]:
        assert "linux/amd64" in node["error"]
        assert "linux/arm64" in node["error"]
