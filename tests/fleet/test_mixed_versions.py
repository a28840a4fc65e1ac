"""F-43: a fleet with LocalAI's workers in it, which know neither generations, nor upgrades, nor progress."""

from collections.abc import Iterator

import pytest

from harness.cluster import TOKEN, Cluster
from harness.localai_backend import localai_files
from harness.localai_worker import OLDEST, SINCE_JULY_2026, SINCE_MAY_2026, LocalAiWorker
from harness.programs import Admin

pytestmark = pytest.mark.registry


@pytest.fixture
def admin(fleet: Cluster) -> Admin:
    return fleet.start_frontend("a", "--auto-approve")


@pytest.fixture(params=[OLDEST], ids=["oldest"])
def old(fleet: Cluster, admin: Admin, request: pytest.FixtureRequest) -> Iterator[LocalAiWorker]:
    worker = LocalAiWorker(admin.url, TOKEN, fleet.nats.url, name="old", verbs=request.param)
    admin.wait_for_status("old", "healthy")
    yield worker
    worker.stop()


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "old", [OLDEST, SINCE_MAY_2026, SINCE_JULY_2026], ids=["oldest", "since-may-2026", "since-july-2026"], indirect=True
)
def test_old_and_new_workers_do_what_was_requested(fleet: Cluster, admin: Admin, old: LocalAiWorker) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    old.offered["echo"] = first
    fleet.start_worker("new")
    admin.wait_for_status("new", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    fleet.wait_for_digests("echo", {"old": first, "new": first})

    second = fleet.offer_image("echo", localai_files("2"))
    old.offered["echo"] = second
    upgrade = fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo"))
    assert {node["node_name"]: node["status"] for node in upgrade["nodes"]} == {"old": "success", "new": "success"}
    fleet.wait_for_digests("echo", {"old": second, "new": second})
    orders = [
        (verb, request.get("force", False)) for verb, request in old.asked if verb.endswith(("install", "upgrade"))
    ]
    if "backend.upgrade" in old.verbs:
        assert orders == [("backend.install", False), ("backend.upgrade", False)]
    else:
        # Nobody listens for its upgrades, so it was told to install again, and meant.
        assert orders == [("backend.install", False), ("backend.install", True)]

    fleet.wait_for_operation(fleet.begin("/api/backends/delete/echo"))
    fleet.wait_for_digests("echo", {})
    assert old.installed == {}


def test_what_an_old_worker_refuses_is_shown_in_its_words(fleet: Cluster, admin: Admin, old: LocalAiWorker) -> None:
    digest = fleet.offer_image("echo", localai_files("1"))
    assert admin.call("POST", "/api/galleries/refresh").status == 200
    job = fleet.begin("/api/backends/install/echo")
    shown = fleet.wait_for_statuses(job, {"old": "error"})
    assert "no backend found with name 'echo'" in shown["nodes"][0]["error"]
    assert shown["state"] == "running"
    old.offered["echo"] = digest
    assert fleet.post(f"/api/operations/{job}/retry").status == 200
    fleet.wait_for_operation(job)
    fleet.wait_for_digests("echo", {"old": digest})
