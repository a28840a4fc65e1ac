"""Replicas change places, versions and configurations under 50 requests a second, and no request fails."""

from harness.cluster import ADMIN_KEY, Cluster
from harness.engine_gallery import NEW, EngineGallery
from harness.tiny_model import Shelf
from harness.traffic import Traffic
from harness.waiting import wait_until


def test_a_drain_is_not_noticed(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    admin.call("POST", "/api/nodes/scheduling", body={"model_name": "tiny", "min_replicas": 1, "max_replicas": 1})
    cluster.wait_for_ready("tiny", 1)
    cluster.start_worker("w2")
    w1, w2 = (admin.nodes()[name]["id"] for name in ("w1", "w2"))
    with Traffic(admin.url, ADMIN_KEY, "tiny", per_s=50) as traffic:
        wait_until(lambda: traffic.fates["200"] > 50, what="requests are answered", within_s=60)
        assert admin.call("POST", f"/api/nodes/{w1}/drain").status == 200
        wait_until(lambda: [row["node_id"] for row in cluster.replicas("tiny")] == [w2], what="moved", within_s=90)
        seen = traffic.fates["200"]
        wait_until(lambda: traffic.fates["200"] > seen + 50, what="requests are answered there", within_s=60)
    print(f"{traffic.sent_per_s:.1f} requests/s, {traffic.fates['200']} answers, slowest {traffic.slowest_s:.2f} s")
    assert traffic.errors == {}
    assert traffic.fates["200"] == traffic.sent
    assert traffic.sent_per_s > 40, "of 50, on a machine that may be busy"
    assert not cluster.processes("w1")


def test_a_drain_of_one_of_two_starts_a_successor_first(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    admin.call("POST", "/api/nodes/scheduling", body={"model_name": "tiny", "min_replicas": 2, "max_replicas": 2})
    cluster.wait_for_ready("tiny", 2)
    cluster.start_worker("w3")
    ids = {name: node["id"] for name, node in admin.nodes().items()}
    seen: list[int] = []

    def moved() -> bool:
        ready = cluster.ready("tiny")
        seen.append(len(ready))
        return {row["node_id"] for row in ready} == {ids["w2"], ids["w3"]}

    assert admin.call("POST", f"/api/nodes/{ids['w1']}/drain").status == 200
    wait_until(moved, what="one moved", within_s=90)
    assert min(seen) == 2
    wait_until(lambda: len(cluster.replicas("tiny")) == 2, what="the old one is ended", within_s=60)
    assert not cluster.processes("w1")


def test_a_rolling_upgrade_is_not_noticed(cluster: Cluster, shelf: Shelf, gallery: EngineGallery) -> None:
    admin = cluster.start_frontend("a", *gallery.flags)
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    config = shelf.config("tiny", threads=1).replace("llama-cpp", "engine")
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    admin.call("POST", "/api/nodes/scheduling", body={"model_name": "tiny", "min_replicas": 2, "max_replicas": 2})
    before = {row["backend_digest"] for row in cluster.wait_for_ready("tiny", 2, within_s=120)}
    assert len(before) == 1
    with Traffic(admin.url, ADMIN_KEY, "tiny", per_s=50) as traffic:
        wait_until(lambda: traffic.fates["200"] > 50, what="requests are answered", within_s=60)
        gallery.version = NEW

        def offered() -> bool:
            available = admin.call("GET", "/backends/available").json()
            return any(entry["name"] == "engine" and entry.get("version") == NEW for entry in available)

        wait_until(offered, what="the gallery offers the new version", within_s=30)
        answer = admin.call("POST", "/api/backends/upgrade/engine")
        assert answer.status in (200, 202), answer.body

        def upgraded() -> bool:
            rows = cluster.replicas("tiny")
            digests = {row.get("backend_digest") for row in rows}
            return len(rows) == 2 and len(digests) == 1 and digests != before

        wait_until(upgraded, what="both run from the new version", within_s=180)
    print(f"{traffic.sent_per_s:.1f} requests/s, {traffic.fates['200']} answers, slowest {traffic.slowest_s:.2f} s")
    assert traffic.errors == {}
    assert traffic.fates["200"] == traffic.sent
    assert traffic.sent_per_s > 40, "of 50, on a machine that may be busy"
