"""To be shown 2: slow lines, killed frontends, and a bus and a store that restart in the middle."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.machine_speed import promised
from harness.oci_registry import OciRegistry, Trickle
from harness.postgres import Postgres
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

SIZE = 1 << 20
RATE = 250_000
"""The image takes between four and five seconds."""
FAST = 4_000_000
"""For the rest, once what was to happen in the middle has happened."""


@pytest.fixture
def line(registry: OciRegistry) -> Iterator[Trickle]:
    line = Trickle(registry.port, bytes_per_s=RATE)
    yield line
    line.stop()


def offer_slow(fleet: Cluster, line: Trickle) -> str:
    files = {**localai_files("1"), "weights": os.urandom(SIZE)}
    return fleet.offer_image("slow", files, uri=f"127.0.0.1:{line.port}/slow:latest")


def wait_for_bytes(fleet: Cluster, job: str, *, frontend: str = "a") -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        (node,) = fleet.operation(job, frontend=frontend)["nodes"]
        return node if (node["bytes_done"] or 0) > 0 else None

    return wait_until(look, what="bytes arrive")


def attempts(fleet: Cluster, *, frontend: str = "a") -> list[tuple[str, int]]:
    rows = fleet.admin(frontend).call("GET", "/api/intents?backend=slow").json()
    return [(row["state"], row["attempts"]) for row in rows]


def test_an_install_past_its_time_out_is_yellow_spends_no_attempt_and_succeeds(fleet: Cluster, line: Trickle) -> None:
    digest = offer_slow(fleet, line)
    admin = fleet.start_frontend("a", "--auto-approve", "--backend-install-timeout", "2")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    job = fleet.begin("/api/backends/install/slow")
    seen: list[str] = []

    def ended() -> bool:
        shown = fleet.operation(job)
        (node,) = shown["nodes"]
        if not seen or seen[-1] != node["status"]:
            seen.append(node["status"])
        assert node["attempts"] == 0
        return bool(shown["state"] == "completed")

    wait_until(ended, what="it ends", within_s=60)
    assert seen == ["downloading", "running_on_worker", "success"] or seen == [
        "queued",
        "downloading",
        "running_on_worker",
        "success",
    ]
    assert attempts(fleet) == [("succeeded", 0)]
    # The layer once; the configuration by the frontend, which pins the version, and by the worker.
    assert fleet.registry.blob_downloads() <= 3, "it was fetched once"
    assert fleet.digests("slow") == {"one": digest}


def test_a_frontend_killed_in_the_middle_is_replaced_by_another(fleet: Cluster, line: Trickle) -> None:
    """F-01, F-02: after the lease, one effect."""
    digest = offer_slow(fleet, line)
    line.bytes_per_s = 60_000
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one", frontend="b")
    admin.wait_for_status("one", "healthy")
    answer = fleet.post("/api/backends/install/slow", frontend="a", key="the-one-request")
    job = answer.json()["jobID"]
    for frontend in ("a", "b"):
        wait_for_bytes(fleet, job, frontend=frontend)
    for name in ("a", "b"):
        fleet.frontends[name].kill()
    fleet.start_frontend("b", "--auto-approve")
    again = fleet.post("/api/backends/install/slow", frontend="b", key="the-one-request")
    assert again.json()["jobID"] == job, "the same key leads to the same operation"
    other = fleet.post("/api/backends/delete/slow", frontend="b", key="the-one-request")
    assert other.status == 409
    assert fleet.operation(job, frontend="b")["state"] == "running"
    line.bytes_per_s = FAST
    fleet.wait_for_operation(job, frontend="b", within_s=90)
    assert attempts(fleet, frontend="b") == [("succeeded", 0)]
    assert fleet.digests("slow", frontend="b") == {"one": digest}


def test_the_bus_and_the_store_restart_in_the_middle(
    fleet: Cluster, line: Trickle, store: str, request: pytest.FixtureRequest
) -> None:
    """F-13, F-19."""
    digest = offer_slow(fleet, line)
    line.bytes_per_s = 60_000
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    job = fleet.begin("/api/backends/install/slow")
    wait_for_bytes(fleet, job)
    fleet.nats.stop()
    fleet.nats.start()
    if store.startswith("postgresql"):
        server: Postgres = request.getfixturevalue("postgres")
        server.stop(signal.SIGINT)
        server.start()
    wait_until(lambda: admin.call("GET", f"/api/operations/{job}").status == 200, what="the frontend answers again")
    assert fleet.operation(job)["state"] == "running"
    line.bytes_per_s = FAST
    fleet.wait_for_operation(job, within_s=90)
    assert attempts(fleet) == [("succeeded", 0)]
    assert fleet.digests("slow") == {"one": digest}


def test_a_cancel_from_another_frontend_reaches_the_worker(fleet: Cluster, line: Trickle) -> None:
    offer_slow(fleet, line)
    line.bytes_per_s = 20_000
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    job = fleet.begin("/api/backends/install/slow")
    wait_for_bytes(fleet, job, frontend="b")
    answer = fleet.post(f"/api/operations/{job}/cancel", frontend="b")
    assert answer.status == 200, answer.body
    with promised("a cancel", within_s=6):
        shown = fleet.wait_for_operation(job, "cancelled")
    assert [node["status"] for node in shown["nodes"]] == ["cancelled"]
    assert attempts(fleet) == [("cancelled", 0)]
    assert admin.call("GET", "/api/policies").json() == [], "nothing installs it again"
    # The worker fetches no more: a new order for the same thing begins from nothing and ends well.
    line.bytes_per_s = FAST
    retried = fleet.post(f"/api/operations/{job}/retry")
    assert retried.status == 200, retried.body
    fleet.wait_for_operation(job)
