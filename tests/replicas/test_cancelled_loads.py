"""A load that nobody wants any more stops where it stands: nothing is fetched, started or kept for it."""

from collections.abc import Iterator

import pytest

from harness.cluster import Cluster, ask
from harness.echo_cluster import CONFIG, add_echo_models, start_echo_worker
from harness.gated_files import GatedFiles
from harness.programs import Admin
from harness.waiting import wait_until

WEIGHTS = b"the weights" * 1000


@pytest.fixture
def cluster(cluster_without_engine: Cluster) -> Cluster:
    return cluster_without_engine


@pytest.fixture
def web() -> Iterator[GatedFiles]:
    server = GatedFiles({"weights": WEIGHTS, "others": b"others"})
    server.let_go("others")
    yield server
    server.stop()


def from_web(web: GatedFiles, name: str) -> str:
    return f"download_files: [{web.download('horse/model.gguf', name)}]\n"


def begin(cluster: Cluster, web: GatedFiles) -> Admin:
    """A load of `horse` that stands in the middle of its download."""
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "w1")
    add_echo_models(admin, "horse", more=from_web(web, "weights"))
    assert admin.call("POST", "/api/models/horse/load").status == 202
    wait_until(lambda: fetched(cluster) >= len(WEIGHTS) // 2 and web.under_way, what="half of it is there")
    return admin


def fetched(cluster: Cluster) -> int:
    """Bytes of files that are not whole yet."""
    return sum(
        path.stat().st_size for path in (cluster.directory / "w1").glob("**/partial/*") if path.suffix != ".json"
    )


def started(cluster: Cluster) -> bool:
    return "horse#" in (cluster.directory / "w1.log").read_text()


def test_deleting_the_model_ends_its_download_and_leaves_nothing(cluster: Cluster, web: GatedFiles) -> None:
    admin = begin(cluster, web)
    assert admin.call("DELETE", "/api/models/horse").status == 200
    wait_until(lambda: not web.under_way, what="the worker hangs up")
    wait_until(lambda: not fetched(cluster), what="what came is gone")
    wait_until(lambda: not cluster.read_sql("SELECT id FROM replicas"), what="its place is free")
    assert not cluster.read_sql("SELECT id FROM load_jobs")
    assert not started(cluster)


@pytest.mark.parametrize("way", ["/api/models/horse/unload", "/api/nodes/w1/models/unload"])
def test_an_unload_ends_the_download_and_the_next_load_goes_on_with_it(
    cluster: Cluster, web: GatedFiles, way: str
) -> None:
    admin = begin(cluster, web)
    assert admin.call("POST", way, body={"model_name": "horse"}).status == 200
    wait_until(lambda: not web.under_way, what="the worker hangs up")
    wait_until(lambda: not cluster.read_sql("SELECT id FROM replicas"), what="its place is free")
    assert not started(cluster)
    assert fetched(cluster) >= len(WEIGHTS) // 2, "what came stays for the next"
    web.let_go("weights")
    answer = ask(admin, "horse")
    assert answer.status == 200, answer.body


def test_an_edit_that_names_another_file_does_not_wait_for_the_first(cluster: Cluster, web: GatedFiles) -> None:
    admin = begin(cluster, web)
    edited = CONFIG.format(name="horse") + from_web(web, "others")
    assert admin.call("PUT", "/api/models/horse", body={"config": edited}).status == 200
    wait_until(lambda: not web.under_way, what="the worker hangs up")
    answer = ask(admin, "horse")
    assert answer.status == 200, answer.body
    assert (cluster.directory / "w1" / "models" / "horse" / "model.gguf").read_bytes() == b"others"
    wait_until(lambda: not fetched(cluster), what="what came of the first is gone")
