"""LocalAI's listings while a fleet works: what is under way, what is where, and what is newer."""

import os
from typing import Any

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.oci_registry import Trickle
from harness.programs import Admin

pytestmark = pytest.mark.registry


def item(admin: Admin, name: str) -> dict[str, Any]:
    page = admin.call("GET", f"/api/backends?term={name}&items=50").json()
    (found,) = [entry for entry in page["backends"] if entry["name"] == name]
    shown: dict[str, Any] = found
    return shown


def test_the_listings_follow_an_install_and_an_upgrade(fleet: Cluster) -> None:
    line = Trickle(fleet.registry.port, bytes_per_s=300_000)
    digest = fleet.registry.push("slow", localai_files("1") | {"weights": os.urandom(1 << 20)})
    fleet.offer("slow", uri=f"127.0.0.1:{line.port}/slow:latest", version="1.0", tags=["LLM"])
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    assert item(admin, "slow")["installed"] is False
    job = fleet.begin("/api/backends/install/slow")
    fleet.wait_for_statuses(job, {"one": "downloading"})
    page = admin.call("GET", "/api/backends?term=slow").json()
    assert page["processingBackends"] == {"ours@slow": job}
    assert page["taskTypes"] == {"ours@slow": "Installation"}
    assert (item(admin, "slow")["processing"], item(admin, "slow")["jobID"]) == (True, job)

    line.bytes_per_s = 10_000_000
    fleet.wait_for_operation(job)
    shown = item(admin, "slow")
    assert (shown["installed"], shown["processing"], shown["version"]) == (True, False, "1.0")
    (node,) = shown["nodes"]
    assert (node["node_name"], node["node_status"], node["digest"]) == ("one", "healthy", digest)
    (listed,) = admin.call("GET", "/backends").json()
    assert (listed["Name"], listed["IsMeta"], listed["IsSystem"]) == ("slow", False, False)
    assert listed["Metadata"]["digest"] == digest
    assert "upgrade_available" not in listed
    available = {entry["name"]: entry["installed"] for entry in admin.call("GET", "/backends/available").json()}
    assert available["slow"] is True
    (offer,) = admin.call("GET", "/api/backends/available?name=slow").json()["backends"]
    assert offer["installed_on"] == 1

    fleet.registry.push("slow", localai_files("2"))
    fleet.offer("slow", uri=f"127.0.0.1:{line.port}/slow:latest", version="2.0", tags=["LLM"])
    assert fleet.post("/api/backends/upgrades/check").status == 200
    fleet.wait_for(
        lambda: admin.call("GET", "/backends").json()[0].get("available_version") == "2.0", "the upgrade is named"
    )
    line.stop()
