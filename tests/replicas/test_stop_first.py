"""A node whose memory does not hold two copies of its model: an upgrade stops the old version first, and starts it
again where the new one does not start."""

import threading
from typing import Any

import psutil
import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.engine_gallery import BROKEN, HANGING, SLOW, EngineGallery
from harness.machine_speed import promised
from harness.programs import Admin
from harness.tiny_model import Shelf
from harness.traffic import Traffic
from harness.waiting import wait_until

FOOTPRINT_BYTES = 6 << 30


def used_bytes(admin: Admin) -> int:
    node = admin.nodes()["w1"]
    return int(node["total_ram"] - node["available_ram"])


def footprint_bytes(used: int) -> int:
    """Below twice what the machine uses: the budget, which counts that, must stay above what one replica needs.
    Otherwise no node could ever take the model, and requests are refused at once."""
    return min(FOOTPRINT_BYTES, used * 3 // 2)


class OneModelMemory:
    """A node's memory by setting: its budget has room for one replica while none runs, and for none while one does.
    What the machine itself uses may change by half a replica meanwhile."""

    def __init__(self, cluster: Cluster, worker: str) -> None:
        self._herd, self._worker, self._admin = cluster, worker, cluster.admin()
        node = self._admin.nodes()[worker]
        self._path = f"/api/nodes/{node['id']}/vram-budget"
        self._used = used_bytes(self._admin)
        self._footprint = self._herd.read_sql("SELECT max(peak_bytes) FROM footprints")[0][0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._set(1)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        before = 1
        while not self._over.wait(0.1):
            running = len(self._herd.engines(self._worker))
            if running != before:
                self._set(running)
                before = running

    def _set(self, running: int) -> None:
        free = self._footprint // 2 if running else self._footprint * 3 // 2
        answer = self._admin.call("PUT", self._path, body={"value": str(self._used + free)})
        assert answer.status == 200, answer.body


def serve_one(cluster: Cluster, shelf: Shelf, gallery: EngineGallery) -> tuple[Admin, dict[str, Any]]:
    """One node, and one model with a minimum of one."""
    admin = cluster.start_frontend("a", *gallery.flags)
    cluster.start_frontend("b", *gallery.flags)
    cluster.start_worker("w1", bare=True)
    config = shelf.config("tiny", threads=1).replace("llama-cpp", "engine")
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    admin.call("POST", "/api/nodes/scheduling", body={"model_name": "tiny", "min_replicas": 1, "max_replicas": 1})
    [row] = cluster.wait_for_ready("tiny", 1, within_s=120)
    wait_until(lambda: cluster.read_sql("SELECT 1 FROM footprints WHERE peak_bytes > 0"), what="measured", within_s=30)
    footprint = footprint_bytes(used_bytes(admin))
    cluster.run_sql(f"UPDATE footprints SET peak_bytes = {footprint}, slots = 1")
    cluster.run_sql(f"UPDATE replicas SET memory_bytes = {footprint}")
    return admin, row


def upgrade(admin: Admin, gallery: EngineGallery, version: str) -> str:
    gallery.version = version

    def offered() -> bool:
        available = admin.call("GET", "/backends/available").json()
        return any(entry["name"] == "engine" and entry.get("version") == version for entry in available)

    wait_until(offered, what="the gallery offers the new version", within_s=30)
    answer = admin.call("POST", "/api/backends/upgrade/engine")
    assert answer.status in (200, 202), answer.body
    job: str = answer.json()["jobID"]
    return job


def follow(admin: Admin, job: str, *, within_s: float) -> tuple[dict[str, Any], set[str]]:
    """The operation's end, and what was said of its node until then."""
    phases: set[str] = set()

    def ended() -> dict[str, Any] | None:
        operation: dict[str, Any] = admin.call("GET", f"/api/operations/{job}").json()
        phases.update(node["phase"] for node in operation["nodes"])
        ends = ("success", "error", "cancelled")
        return operation if all(node["status"] in ends for node in operation["nodes"]) else None

    return wait_until(ended, what="the upgrade ends", within_s=within_s), phases


@pytest.mark.parametrize("cluster", ["postgresql"], indirect=True)
def test_an_upgrade_stops_the_old_version_first_and_requests_wait(
    cluster: Cluster, shelf: Shelf, gallery: EngineGallery
) -> None:
    admin, before = serve_one(cluster, shelf, gallery)
    with OneModelMemory(cluster, "w1"), Traffic(admin.url, ADMIN_KEY, "tiny", per_s=20) as traffic:
        wait_until(lambda: traffic.fates["200"] > 20, what="requests are answered", within_s=60)
        operation, phases = follow(admin, upgrade(admin, gallery, SLOW), within_s=120)
        assert [node["status"] for node in operation["nodes"]] == ["success"], operation
        assert [node["method"] for node in operation["nodes"]] == ["stop-first"], "as it was, also when it is over"
        [wave] = admin.call("GET", f"/api/rollouts/{operation['jobID']}").json()["waves"]
        assert [node["used_method"] for node in wave["nodes"]] == ["stop-first"]
        [after] = cluster.ready("tiny")
        assert after["backend_digest"] not in ("", before["backend_digest"]), "it serves, and the new version"
        assert len(cluster.engines("w1")) == 1, "nothing of the old version runs when the upgrade is done"
        seen = traffic.fates["200"]
        wait_until(lambda: traffic.fates["200"] > seen + 20, what="requests are answered", within_s=60)
    print(f"{traffic.fates['200']} answers, the slowest after {traffic.slowest_s:.2f} s")
    assert traffic.errors == {}
    assert "stopping the old version first: not enough memory for both" in phases


@pytest.mark.parametrize("cluster", ["postgresql"], indirect=True)
def test_a_version_that_does_not_start_gives_way_to_the_one_that_was_stopped(
    cluster: Cluster, shelf: Shelf, gallery: EngineGallery
) -> None:
    admin, before = serve_one(cluster, shelf, gallery)
    with OneModelMemory(cluster, "w1"):
        operation, _ = follow(admin, upgrade(admin, gallery, BROKEN), within_s=180)
    [node] = operation["nodes"]
    assert (node["status"], node["attempts"]) == ("error", 1), node
    assert "the engine is on fire" in node["error"]
    assert "the old version, which was stopped first, was started again" in node["error"]
    [after] = cluster.wait_for_ready("tiny", 1)
    assert after["backend_digest"] == before["backend_digest"]


def count_hanging(cluster: Cluster) -> int:
    commands = [psutil.Process(pid).cmdline() for pid in cluster.processes("w1") if psutil.pid_exists(pid)]
    return sum("time.sleep(3600)" in " ".join(command) for command in commands)


@pytest.mark.parametrize("cluster", ["postgresql"], indirect=True)
def test_a_cancel_in_the_middle_brings_back_the_version_that_was_stopped(
    cluster: Cluster, shelf: Shelf, gallery: EngineGallery
) -> None:
    """The new version hangs as it starts; its load would be waited for for minutes."""
    admin, before = serve_one(cluster, shelf, gallery)
    with OneModelMemory(cluster, "w1"):
        job = upgrade(admin, gallery, HANGING)
        wait_until(
            lambda: count_hanging(cluster) and not cluster.engines("w1"), what="only the new one runs", within_s=180
        )
        answer = admin.call("POST", f"/api/operations/{job}/cancel")
        assert answer.status in (200, 202), answer.body
        with promised("a cancel", within_s=10, directory=cluster.directory):
            operation, _ = follow(admin, job, within_s=60)
        [node] = operation["nodes"]
        assert node["status"] == "cancelled", node
        assert "the old version, which was stopped first, is being started again" in node["error"]
        with promised("the old version", within_s=20, directory=cluster.directory):
            [after] = cluster.wait_for_ready("tiny", 1, within_s=60)
        assert after["backend_digest"] == before["backend_digest"]
        wait_until(lambda: not count_hanging(cluster), what="nothing of the new version is left", within_s=60)
