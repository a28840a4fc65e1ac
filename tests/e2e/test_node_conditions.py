"""Nodes that are reachable and cannot work: said in the list, on the node, in the metrics and to placement."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.nats import Nats
from harness.programs import call, clean_environment, run_cli
from harness.waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    running = Cluster(tmp_path, nats)
    yield running
    running.stop()


def test_a_node_that_cannot_work_says_why_and_gets_no_model(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("full", "--disk-headroom", "1000TiB", wait=False)
    cluster.start_worker("lost", wait=False)
    wait_until(lambda: admin.nodes()["full"]["state"] == "unhealthy", what="it has joined and is told to be unfit")
    full = admin.nodes()["full"]
    assert [condition["kind"] for condition in full["conditions"]] == ["disk_pressure"]
    assert "Delete unused backends or models" in full["status_reason"]
    admin.wait_for_status("lost", "healthy")
    shutil.rmtree(cluster.directory / "lost")
    wait_until(lambda: admin.nodes()["lost"]["conditions"], what="a removed data directory is noticed")
    assert admin.nodes()["lost"]["state"] == "unhealthy"
    assert admin.nodes()["lost"]["conditions"][0]["kind"] == "data_directory"
    metrics = call("GET", f"{admin.url}/metrics", key=admin.key).body.decode()
    assert 'corral_node_condition{node="full",condition="disk_pressure"} 1' in metrics
    assert 'corral_nodes{state="unhealthy"} 2' in metrics
    as_admin = clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=admin.key)
    listed = run_cli("nodes", "list", environment=as_admin)
    assert listed.stdout.count("unhealthy") == 2
    shown = run_cli("nodes", "show", "full", environment=as_admin)
    assert "less than the" in shown.stdout
