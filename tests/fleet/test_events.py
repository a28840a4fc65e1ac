"""What pages are told while a fleet works: the same on every frontend, not too often, and nothing is missed."""

import os

import pytest

from harness.cluster import Cluster
from harness.events import Listener
from harness.localai_backend import localai_files
from harness.oci_registry import Trickle
from harness.waiting import wait_until

pytestmark = pytest.mark.registry


def test_an_operation_is_shown_live_by_every_frontend(fleet: Cluster) -> None:
    line = Trickle(fleet.registry.port, bytes_per_s=600_000)
    fleet.registry.push("large", localai_files("1") | {"weights.bin": os.urandom(3_000_000)})
    fleet.offer("large", uri=f"127.0.0.1:{line.port}/large:latest")
    admin = fleet.start_frontend("a", "--auto-approve")
    other = fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    fleet.start_worker("two", frontend="b")
    for name in ("one", "two"):
        admin.wait_for_status(name, "healthy")
    pages = [Listener(admin), Listener(other)]
    job = fleet.begin("/api/backends/install/large")
    for page in pages:
        page.wait_for(
            "operations",
            lambda one: one["jobID"] == job and one["state"] == "completed",
            what="the end is told",
            within_s=60,
        )
        told = [event for event in page.events if event.name == "operations"]
        steps = [one["progress"] for event in told for one in event.data["changed"] if one["jobID"] == job]
        assert steps == sorted(steps)
        assert len(set(steps)) >= 5, steps
        assert any(node["rate_bytes_per_s"] for one in page.things("operations") for node in one["nodes"])
        took_s = told[-1].at_s - told[0].at_s
        assert len(told) <= took_s * 5 + 2
        fleet_row = page.wait_for(
            "backends",
            lambda row: row["name"] == "large" and len([node for node in row["nodes"] if node["digest"]]) == 2,
            what="both nodes have it",
        )
        assert {node["node_name"] for node in fleet_row["nodes"]} == {"one", "two"}
        page.close()
    line.stop()


def test_a_page_that_comes_back_anywhere_gets_what_it_missed(fleet: Cluster) -> None:
    fleet.offer_image("echo", localai_files("1"))
    admin = fleet.start_frontend("a", "--auto-approve")
    other = fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    page = Listener(admin)
    first = fleet.begin("/api/backends/install/echo")
    page.wait_for("operations", lambda one: one["jobID"] == first and one["state"] == "completed", what="the first")
    wait_until(lambda: page.last_id or None, what="an id to come back with")
    page.close()
    fleet.frontends["a"].kill()
    second = fleet.begin("/api/backends/delete/echo", frontend="b")
    fleet.wait_for_operation(second, frontend="b")
    back = Listener(other, last_id=page.last_id)
    back.wait_for("operations", lambda one: one["jobID"] == second and one["state"] == "completed", what="the missed")
    back.close()


def test_kinds_nobody_knows_are_refused(fleet: Cluster) -> None:
    admin = fleet.start_frontend("a")
    answer = admin.call("GET", "/api/events?kinds=weather")
    assert answer.status == 400
    assert "the kinds are nodes, operations, rollouts, backends, models, replicas, galleries" in answer.message


def test_a_model_that_comes_and_goes_is_shown(fleet: Cluster) -> None:
    admin = fleet.start_frontend("a")
    page = Listener(admin, "models")
    config = "name: tiny\nbackend: llama-cpp\nparameters: {model: tiny.gguf}\n"
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    assert page.wait_for("models", lambda one: one["name"] == "tiny", what="it is told")["backend"] == "llama-cpp"
    assert admin.call("DELETE", "/api/models/tiny").status in (200, 204)
    wait_until(
        lambda: any("tiny" in event.data["removed"] for event in page.events) or None, what="it is told to be gone"
    )
    page.close()


def test_a_changed_gallery_is_announced_and_an_unchanged_one_is_not(fleet: Cluster) -> None:
    admin = fleet.start_frontend("a")
    page = Listener(admin, "galleries", "models")

    def offer_another() -> bool:
        """The first look at a kind tells nothing, and nobody says when it was."""
        fleet.offer(f"novel-{len(fleet.gallery_path.read_bytes())}", uri="127.0.0.1:1/novel:latest")
        admin.refresh_galleries()
        return bool(page.things("galleries"))

    wait_until(offer_another, what="a new entry is told", every_s=0.5)
    on_offer = len(admin.backends_on_offer())
    page.wait_for("galleries", lambda one: one == {"name": "backends", "entries": on_offer}, what="the last is told")
    told = len(page.things("galleries"))
    admin.refresh_galleries()
    config = "name: tiny\nbackend: llama-cpp\nparameters: {model: tiny.gguf}\n"
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    page.wait_for("models", lambda one: one["name"] == "tiny", what="a later event")
    assert len(page.things("galleries")) == told
    page.close()
