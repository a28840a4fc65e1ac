"""A machine runs no more of a model than it may, wishes may change while loads wait, a worker may be started again."""

from typing import Any

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.programs import Admin
from harness.tiny_model import Shelf
from harness.traffic import Traffic
from harness.waiting import wait_until


def add_model(admin: Admin, shelf: Shelf) -> None:
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201


def scale(admin: Admin, replicas: int) -> dict[str, Any]:
    wanted = {"model_name": "tiny", "min_replicas": replicas, "max_replicas": replicas}
    answer = admin.call("POST", "/api/nodes/scheduling", body=wanted)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def why(admin: Admin) -> dict[str, Any]:
    found: dict[str, Any] = admin.call("GET", "/api/why/models/tiny").json()
    return found


def test_a_drain_keeps_to_the_limit_of_the_other_machine_and_balance_returns(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    add_model(admin, shelf)
    scale(admin, 2)
    cluster.wait_for_ready("tiny", 2)
    w1, w2 = (admin.nodes()[name]["id"] for name in ("w1", "w2"))
    assert admin.call("POST", f"/api/nodes/{w1}/drain").status == 200

    crowds = []

    def waits_with_a_reason() -> bool:
        places = [row["node_id"] for row in cluster.replicas("tiny")]
        if places.count(w2) != 1:
            crowds.append(places)
        told = [load.get("reason", "") for load in why(admin)["loads"]]
        return places == [w2] and len(told) == 1 and "w2: already runs 1 replica of this model" in told[0]

    wait_until(waits_with_a_reason, what="the drained machine is empty, and its successor waits", within_s=60)
    assert crowds == [], "no more than it may run"
    assert ask(admin, "tiny").status == 200
    assert admin.call("POST", f"/api/nodes/{w1}/resume").status == 200
    back = cluster.wait_for_ready("tiny", 2)
    assert {row["node_id"] for row in back} == {w1, w2}
    assert why(admin)["loads"] == []


def test_a_lowered_limit_of_a_machine_is_kept(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1", "--max-replicas-per-model", "2")
    add_model(admin, shelf)
    scale(admin, 2)
    cluster.wait_for_ready("tiny", 2)
    w1 = admin.nodes()["w1"]["id"]
    assert admin.call("PUT", f"/api/nodes/{w1}/max-replicas-per-model", body={"value": 1}).status == 200
    wait_until(lambda: len(cluster.replicas("tiny")) == 1, what="one is left", within_s=60)
    cluster.start_worker("w2")
    after = cluster.wait_for_ready("tiny", 2)
    assert len({row["node_id"] for row in after}) == 2


def test_a_smaller_desired_count_ends_loads_that_wait_at_once(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    add_model(admin, shelf)
    told = scale(admin, 5)
    assert told["possible_replicas"] == 2
    assert "2 nodes: already runs 1 replica of this model" in told["possible_reason"]
    cluster.wait_for_ready("tiny", 2)

    def waiting() -> int:
        return sum(bool(load.get("reason")) for load in why(admin)["loads"])

    wait_until(lambda: waiting() == 3, what="three wait with a reason", within_s=30)
    told = scale(admin, 2)
    assert (told["possible_replicas"], "possible_reason" in told) == (2, False)
    wait_until(lambda: why(admin)["loads"] == [], what="nothing waits any more", within_s=10)
    assert len(cluster.ready("tiny")) == 2
    assert "unsatisfiable" not in why(admin)
    scale(admin, 5)
    scale(admin, 1)
    wait_until(
        lambda: len(cluster.replicas("tiny")) == 1 and why(admin)["loads"] == [],
        what="one is left, and nothing waits",
        within_s=30,
    )


def test_a_worker_that_is_started_again_has_kept_its_replica_and_nothing_moved(cluster: Cluster, shelf: Shelf) -> None:
    """Whoever asks meanwhile waits for that replica: no other is loaded, and every request is answered."""
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add_model(admin, shelf)
    scale(admin, 1)
    [before] = cluster.wait_for_ready("tiny", 1)
    cluster.start_worker("w2")
    assert cluster.workers["w1"].stop() == 0
    admin.wait_for_status("w1", "offline")

    seen: set[tuple[str, ...]] = set()

    def is_back() -> bool:
        seen.add(tuple(row["id"] for row in cluster.replicas("tiny")))
        seen.update((load["cause"],) for load in why(admin)["loads"])
        return bool(admin.nodes()["w1"]["status"] == "healthy")

    cluster.start_worker("w1", wait=False)
    with Traffic(admin.url, ADMIN_KEY, "tiny", per_s=20) as traffic:
        wait_until(is_back, what="w1 is back", within_s=60)
        answered = traffic.fates["200"]
        wait_until(lambda: is_back() and traffic.fates["200"] > answered + 20, what="it serves", within_s=30)
    print(f"{traffic.fates['200']} answers, the slowest after {traffic.slowest_s:.2f} s")
    assert traffic.errors == {}
    assert is_back()
    assert seen == {(before["id"],)}, "nothing was loaded, nowhere, at any time"
    assert "process.launched" not in (cluster.directory / "w2.log").read_text()


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_model_works_on_as_many_requests_as_its_configuration_allows(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    config = shelf.config("tiny", threads=1, limits="{max_concurrent: 1}")
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    assert ask(admin, "tiny").status == 200
    [row] = cluster.ready("tiny")
    assert row["capacity"] == 1
    refused = admin.call("POST", "/api/nodes/scheduling", body={"model_name": "tiny", "min_prefix_match": 0.3})
    assert refused.status == 400
    assert "min_prefix_match has no effect" in refused.message
