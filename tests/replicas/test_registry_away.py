"""Loads and repairs while the registry that backends come from is away: what is installed serves on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster, ask
from harness.echo_cluster import add_echo_models, start_echo_worker
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.single_worker import end_marked
from harness.waiting import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[OciRegistry]:
    running = OciRegistry(tmp_path / "registry")
    yield running
    running.stop()


@pytest.fixture
def fleet(tmp_path: Path, nats: Nats, postgres_url: str) -> Iterator[Cluster]:
    running = Cluster(tmp_path, nats, postgres_url)
    yield running
    running.stop()


def test_a_dead_workers_replica_and_a_model_on_demand_come_up_without_the_registry(
    fleet: Cluster, registry: OciRegistry, tmp_path: Path
) -> None:
    registry.push("echo", {"run.sh": b"#!/bin/sh\n"})
    gallery = tmp_path / "index.yaml"
    gallery.write_text(json.dumps([{"name": "echo", "uri": f"{registry.host}/echo:latest"}]))
    flags = ("--backend-galleries", f"ours=file://{gallery}", "--trusted-hosts", "127.0.0.1",
             "--plain-http-hosts", "127.0.0.1")  # fmt: skip
    admin = fleet.start_frontend("a", *flags)
    fleet.start_frontend("b", *flags)
    start_echo_worker(fleet, "w1")
    add_echo_models(admin, "one", "cold")
    wanted = {"model_name": "one", "min_replicas": 1}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    fleet.wait_for_ready("one", 1)
    start_echo_worker(fleet, "w2")
    fleet.start_worker("a-bare-one", bare=True)  # the first by name, idle, and without the backend
    registry.stop()

    dead = admin.nodes()["w1"]["id"]
    fleet.workers["w1"].kill()
    end_marked(fleet.directory / "w1")

    def repaired() -> bool:
        return any(row["node_id"] != dead for row in fleet.ready("one"))

    wait_until(repaired, what="the replica is rebuilt on the machine that has the backend", within_s=40)
    [row] = [row for row in fleet.ready("one") if row["node_id"] != dead]
    assert row["node_id"] == admin.nodes()["w2"]["id"]
    assert ask(fleet.admin("b"), "cold").status == 200
    bare = admin.call("GET", "/api/why/models/cold").json()["decisions"][0]["candidates"]
    [why] = [one["reason"] for one in bare if one["node"] == "a-bare-one"]
    assert "cannot be looked up now" in why
