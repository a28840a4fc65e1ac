"""F-43: a fleet with workers of Corral and of LocalAI in it, which know neither generations nor each other's builds."""

from collections.abc import Iterator

import pytest

from harness.cluster import TOKEN, Cluster
from harness.localai_backend import localai_files
from harness.localai_worker import LocalAiWorker
from harness.programs import Admin

pytestmark = pytest.mark.registry


@pytest.fixture
def admin(fleet: Cluster) -> Admin:
    return fleet.start_frontend("a", "--auto-approve")


@pytest.fixture
def go(fleet: Cluster, admin: Admin) -> Iterator[LocalAiWorker]:
    worker = LocalAiWorker(admin.url, TOKEN, fleet.nats.url, name="go", directory=fleet.directory / "go")
    admin.wait_for_status("go", "healthy")
    yield worker
    worker.crash()


def offer(fleet: Cluster, version: str) -> str:
    fleet.offer("echo", alias="echo", capabilities={"default": "cpu-echo"})
    uri = f"oci://{fleet.registry.host}/cpu-echo:latest"
    return fleet.offer_image("cpu-echo", localai_files(version), uri=uri, alias="echo")


def test_both_kinds_of_workers_do_what_was_requested_and_a_family_is_one_row(
    fleet: Cluster, admin: Admin, go: LocalAiWorker
) -> None:
    first = offer(fleet, "1")
    fleet.start_worker("ours")
    admin.wait_for_status("ours", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    fleet.wait_for_digests("echo", {"go": first, "ours": first})
    rows = {row["name"]: len(row["nodes"]) for row in admin.call("GET", "/api/fleet/backends").json()}
    assert rows == {"echo": 2}
    (offered,) = admin.call("GET", "/api/backends/available?name=echo").json()["backends"]
    assert offered["installed_on"] == 2
    assert {one["capability"]: one["variant"] for one in offered["variants"]} == {
        "default": "cpu-echo",
        "default (LocalAI worker)": "cpu-echo",
    }

    second = offer(fleet, "2")
    assert fleet.post("/api/backends/upgrades/check").status == 200
    fleet.wait_for(lambda: list(fleet.upgrades()) == ["echo"], "one upgrade is listed")
    upgrade = fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo"))
    assert {node["node_name"]: node["status"] for node in upgrade["nodes"]} == {"go": "success", "ours": "success"}
    fleet.wait_for_digests("echo", {"go": second, "ours": second})

    fleet.wait_for_operation(fleet.begin("/api/backends/delete/echo"))
    fleet.wait_for_digests("echo", {})
    assert go.images.list(with_aliases=True) == []


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_what_a_localai_worker_refuses_is_shown_in_its_words(fleet: Cluster, admin: Admin, go: LocalAiWorker) -> None:
    digest = offer(fleet, "1")
    admin.refresh_galleries()
    go.images.refusal = "no space left on device"
    job = fleet.begin("/api/backends/install/echo")
    shown = fleet.wait_for_statuses(job, {"go": "error"})
    assert "installing backend from gallery: no space left on device" in shown["nodes"][0]["error"]
    assert shown["state"] == "running"
    go.images.refusal = ""
    assert fleet.post(f"/api/operations/{job}/retry").status == 200
    fleet.wait_for_operation(job)
    fleet.wait_for_digests("echo", {"go": digest})
