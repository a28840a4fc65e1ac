"""A node whose disk is below its headroom: what is there already may be started anew, nothing is brought there."""

import pytest

from harness.cluster import Cluster, ask
from harness.tiny_model import Shelf
from harness.waiting import wait_until


@pytest.mark.parametrize("cluster", ["postgresql"], indirect=True)
def test_an_edit_does_not_wait_for_a_disk_that_has_its_weights_and_no_new_model_goes_there(
    cluster: Cluster, shelf: Shelf
) -> None:
    admin = cluster.start_frontend()
    worker = cluster.start_worker("w1")
    config = shelf.config("tiny", threads=1)
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": 1, "max_replicas": 1}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    [before] = cluster.wait_for_ready("tiny", 1)
    worker.stop()
    cluster.start_worker("w1", "--disk-headroom", "1000TiB", wait=False)
    wait_until(lambda: admin.nodes()["w1"]["conditions"], what="the disk is below its headroom", within_s=30)
    cluster.wait_for_ready("tiny", 1)

    edited = config.replace("context_size: 256", "context_size: 512")
    assert admin.call("PUT", "/api/models/tiny", body={"config": edited}).status == 200

    def replaced() -> bool:
        [row] = cluster.ready("tiny")
        return bool(row["id"] != before["id"])

    wait_until(replaced, what="the edited model serves", within_s=60)
    assert ask(admin, "tiny").status == 200
    assert "context_size: 512" in admin.call("GET", "/api/models/tiny").json()["config"]

    other = shelf.config("other", threads=1).replace("tiny/weights.gguf", "other/weights.gguf")
    assert admin.call("POST", "/api/models", body={"config": other}).status == 201
    assert admin.call("POST", "/api/nodes/scheduling", body={"model_name": "other", "min_replicas": 1}).status == 200

    def waits() -> bool:
        loads = admin.call("GET", "/api/why/models/other").json()["loads"]
        return any("less than the required headroom of 1000.0 TiB" in load["reason"] for load in loads)

    wait_until(waits, what="the other model waits, and is told why", within_s=30)
    assert cluster.replicas("other") == []
