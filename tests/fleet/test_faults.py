"""Two frontends on PostgreSQL, with real workers: a frontend that is paused, a store that restarts, a slow upgrade."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.oci_registry import OciRegistry, Trickle
from harness.postgres import Postgres
from harness.programs import Admin
from harness.waiting import wait_until

pytestmark = [pytest.mark.registry, pytest.mark.postgres]

PAUSE_S = 20.0
"""Longer than a claim's lease, so that the other frontend takes over."""
ON_FIRE = {"run.sh": b"#!/bin/sh\necho the engine is on fire >&2\nexit 3\n"}
QUICK_RETRIES = ("--backend-retry-base", "0.2", "--backend-retry-max", "0.4", "--backend-max-attempts", "2")


@pytest.fixture
def store(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def line(registry: OciRegistry) -> Iterator[Trickle]:
    line = Trickle(registry.port, bytes_per_s=1 << 20)
    yield line
    line.stop()


def start(fleet: Cluster, *workers: str, flags: tuple[str, ...] = ()) -> Admin:
    """Workers know frontend b only: a may be paused without their becoming silent."""
    for name in ("a", "b"):
        admin = fleet.start_frontend(name, "--auto-approve", *flags)
    for name in workers:
        fleet.start_worker(name, frontend="b")
    for name in workers:
        admin.wait_for_status(name, "healthy", within_s=60)
    return admin


def serve(fleet: Cluster, *workers: str) -> None:
    for name in workers:
        started = fleet.ask_worker(name, "backend.install", backend="echo", model_id="m")
        assert started["success"], started


def intents(postgres: Postgres, store: str, columns: str, where: str = "true") -> list[str]:
    database = store.rsplit("/", 1)[1]
    return postgres.run_sql(database, f"SELECT {columns} FROM intents WHERE {where}").splitlines()


def test_a_frontend_that_is_paused_for_longer_than_its_lease_in_the_middle_of_an_install_cancels_nothing(
    fleet: Cluster, line: Trickle, store: str, postgres: Postgres
) -> None:
    files = {**localai_files("1"), "weights": os.urandom(1 << 20)}
    digest = fleet.offer_image("slow", files, uri=f"127.0.0.1:{line.port}/slow:latest")
    start(fleet, "one")
    line.bytes_per_s = 15_000
    b = fleet.frontends["b"]
    b.send(signal.SIGSTOP)  # for a moment: a is to be the one that holds the order
    try:
        job = fleet.begin("/api/backends/install/slow", frontend="a")
        wait_until(lambda: intents(postgres, store, "id", "claim_token IS NOT NULL"), what="a holds it")
    finally:
        b.send(signal.SIGCONT)
    wait_until(lambda: (fleet.operation(job)["nodes"][0]["bytes_done"] or 0) > 0, what="bytes arrive")
    a = fleet.frontends["a"]
    paused_s = time.monotonic()
    a.send(signal.SIGSTOP)
    try:
        wait_until(lambda: intents(postgres, store, "id", "fence > 1"), what="b takes over", within_s=PAUSE_S + 10)
        wait_until(lambda: time.monotonic() - paused_s > PAUSE_S, what="the pause is over", within_s=PAUSE_S)
    finally:
        a.send(signal.SIGCONT)
    wait_until(lambda: fleet.admin("a").call("GET", "/readyz").status == 200, what="a answers again")
    (node,) = fleet.operation(job, frontend="a")["nodes"]
    assert node["status"] == "downloading", "what b carries on is left alone"
    line.bytes_per_s = 4 << 20
    fleet.wait_for_operation(job, frontend="b", within_s=90)
    assert intents(postgres, store, "state, attempts, cancel_requested, stop_requested") == ["succeeded|0|f|f"]
    assert fleet.digests("slow", frontend="b") == {"one": digest}


def test_a_store_that_restarts_during_the_rollout_on_five_nodes_rolls_nothing_back(
    fleet: Cluster, store: str, postgres: Postgres
) -> None:
    nodes = ("n1", "n2", "n3", "n4", "n5")
    fleet.offer_image("echo", localai_files("1"))
    start(fleet, *nodes)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"), within_s=60)
    serve(fleet, *nodes)
    files = localai_files("2")
    slow = files["run.sh"].replace(b"#!/bin/sh\n", b"#!/bin/sh\nsleep 4\n")
    second = fleet.registry.push("echo", {**files, "run.sh": slow})

    def smoke_tests() -> int:
        """New versions that are being started beside the old ones."""
        return sum(len(list(fleet.worker_dir(name).glob("run/processes/*"))) - 1 for name in nodes)

    assert smoke_tests() == 0
    job = fleet.begin("/api/backends/upgrade/echo")
    wait_until(lambda: smoke_tests() > 0, what="a new version is being started", within_s=60)
    postgres.stop(signal.SIGINT)
    try:
        wait_until(lambda: smoke_tests() == 0, what="the rollout of every node waits for the store", within_s=60)
    finally:
        postgres.start()
    fleet.wait_for_operation(job, within_s=120)
    assert intents(postgres, store, "state, attempts", "verb = 'upgrade'") == ["succeeded|0"] * len(nodes)
    assert fleet.digests("echo") == dict.fromkeys(nodes, second)


def test_an_upgrade_past_its_time_out_to_a_version_that_does_not_start_fails_and_is_rolled_back(
    fleet: Cluster, line: Trickle
) -> None:
    first = fleet.offer_image("echo", localai_files("1"), uri=f"127.0.0.1:{line.port}/echo:latest")
    start(fleet, "one", flags=("--backend-upgrade-timeout", "2", *QUICK_RETRIES))
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"), within_s=60)
    serve(fleet, "one")
    fleet.registry.push("echo", {**ON_FIRE, "weights": os.urandom(1 << 20)})
    line.bytes_per_s = 150_000
    job = fleet.begin("/api/backends/upgrade/echo")
    fleet.wait_for_statuses(job, {"one": "running_on_worker"}, within_s=60)
    line.bytes_per_s = 4 << 20
    failed = fleet.wait_for_operation(job, "failed", within_s=90)
    assert "the engine is on fire" in failed["nodes"][0]["error"]
    assert fleet.digests("echo") == {"one": first}, "the old version is current again, and serves on"
    assert [process["state"] for process in fleet.ask_worker("one", "corral.report.now")["processes"]] == ["ready"]
