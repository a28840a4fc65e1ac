"""The bus or the store away for longer than anybody waits, and a bus that loses, doubles and reorders what it is given.

The intervals of the fleet here are a sixtieth of a real one's: ten seconds stand for ten minutes."""

import signal
import time
from collections.abc import Iterator

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Admin
from harness.proxy import ProxyThread
from harness.unruly_bus import Habits, UnrulyBus
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

AWAY_S = 10.0


def orders(admin: Admin, backend: str) -> list[tuple[str, str, int]]:
    rows = admin.call("GET", f"/api/intents?backend={backend}").json()
    return [(row["verb"], row["state"], row["attempts"]) for row in rows]


def test_a_bus_that_is_unavailable_for_long_costs_no_attempt(fleet: Cluster) -> None:
    """F-20: what was asked before and meanwhile is done when it is back."""
    digests = {name: fleet.offer_image(name, localai_files(name)) for name in ("before", "meanwhile")}
    admin = fleet.start_frontend("a", "--auto-approve", "--backend-install-timeout", "2")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.workers["one"].send(signal.SIGSTOP)  # so that it has the order, and has not answered
    jobs = [fleet.begin("/api/backends/install/before")]
    fleet.wait_for_statuses(jobs[0], {"one": "downloading"})
    fleet.nats.stop()
    fleet.workers["one"].send(signal.SIGCONT)
    jobs.append(fleet.begin("/api/backends/install/meanwhile"))
    time.sleep(AWAY_S)  # silence itself is what is tested
    assert [fleet.operation(job)["state"] for job in jobs] == ["running", "running"]
    fleet.nats.start()
    for job in jobs:
        fleet.wait_for_operation(job, within_s=60)
    for name, digest in digests.items():
        assert orders(admin, name) == [("install", "succeeded", 0)]
        fleet.wait_for_digests(name, {"one": digest})


def test_a_store_that_is_unavailable_for_long_ends_nothing(
    fleet: Cluster, store: str, request: pytest.FixtureRequest
) -> None:
    """F-14: what runs serves on, and when it is back nothing is taken away, done again or held against a node."""
    if not store.startswith("postgresql"):
        pytest.skip("a file does not go away")
    server: Postgres = request.getfixturevalue("postgres")
    digest = fleet.offer_image("echo", localai_files("1"))
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    started = fleet.ask_worker("one", "backend.install", backend="echo", model_id="m")
    assert started["success"], started
    running = fleet.ask_worker("one", "models.running")
    assert [model["model_id"] for model in running["models"]] == ["m"]
    before = orders(admin, "echo")
    server.stop(signal.SIGINT)
    try:
        refused = fleet.post("/api/backends/delete/echo")
        assert refused.status == 503, refused.body
        time.sleep(AWAY_S)
    finally:
        server.start()
    admin.wait_for_status("one", "healthy")
    wait_until(lambda: fleet.digests("echo") == {"one": digest}, what="the fleet is as it was")
    assert fleet.ask_worker("one", "models.running")["models"] == running["models"], "the same process"
    assert orders(admin, "echo") == before
    assert admin.call("GET", "/api/operations").json()["operations"] == []


@pytest.fixture
def lines() -> Iterator[list[ProxyThread]]:
    made: list[ProxyThread] = []
    yield made
    for line in made:
        line.stop()


def start(fleet: Cluster, nats: Nats, lines: list[ProxyThread], habits: Habits) -> tuple[Admin, UnrulyBus]:
    bus = UnrulyBus(nats.port, habits, seed=22)
    lines.append(ProxyThread(bus))
    admin = fleet.start_frontend("a", "--auto-approve", "--backend-install-timeout", "1.5")
    fleet.start_worker("one", "--bus", f"nats://127.0.0.1:{lines[-1].port}")
    admin.wait_for_status("one", "healthy")
    return admin, bus


def test_lost_messages_change_nothing_about_the_end(fleet: Cluster, nats: Nats, lines: list[ProxyThread]) -> None:
    """F-22: orders, answers, progress and reports, each lost now and then."""
    digests = {name: fleet.offer_image(name, localai_files(name)) for name in ("x", "y", "z")}
    admin, bus = start(fleet, nats, lines, Habits(lose=0.2, double=0.1, delay=0.1))
    jobs = [fleet.begin(f"/api/backends/install/{name}") for name in digests]
    for job in jobs:
        fleet.wait_for_operation(job, within_s=60)
    for name, digest in digests.items():
        fleet.wait_for_digests(name, {"one": digest})
        assert orders(admin, name) == [("install", "succeeded", 0)]
    assert bus.counts["lost"] > 0, bus.counts


def test_doubled_late_and_reordered_messages_change_nothing_about_the_end(
    fleet: Cluster, nats: Nats, lines: list[ProxyThread]
) -> None:
    """F-22: an order that comes twice, or after the one that replaced it."""
    digest = fleet.offer_image("echo", localai_files("1"))
    admin, bus = start(fleet, nats, lines, Habits(double=0.4, delay=0.4))
    jobs = [fleet.begin(f"/api/backends/{verb}/echo") for verb in ("install", "delete") * 4]
    last = fleet.begin("/api/backends/install/echo")
    fleet.wait_for_operation(last, within_s=60)
    wait_until(lambda: all(fleet.operation(job)["state"] != "running" for job in jobs), what="all have ended")
    fleet.wait_for_digests("echo", {"one": digest})
    assert (fleet.worker_dir("one") / "backends" / "echo" / "current").exists()
    assert all(attempts == 0 for _, _, attempts in orders(admin, "echo"))
    assert min(bus.counts["doubled"], bus.counts["late"]) > 0, bus.counts
