"""To be shown 4: a broken version, a good one, and back; what serves is never taken down."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.machine_speed import promised

pytestmark = pytest.mark.registry

NODES = ("n1", "n2", "n3", "n4", "n5")
FAST = ("--auto-approve", "--backend-retry-base", "0.2", "--backend-retry-max", "0.4", "--backend-max-attempts", "2")


class Serving:
    """Asks a replica for its health all the time."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._metadata = address, (("authorization", f"Bearer {token}"),)
        self._over = threading.Event()
        self.answers = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with grpc.insecure_channel(self._address) as channel:
            health = channel.unary_unary("/backend.Backend/Health")
            while not self._over.wait(0.1):
                try:
                    health(b"", timeout=10, metadata=self._metadata)
                    self.answers += 1
                except grpc.RpcError as error:
                    self.failures.append(str(error))

    def stop(self) -> None:
        self._over.set()
        self._thread.join(20)


@contextmanager
def serving(fleet: Cluster) -> Iterator[list[Serving]]:
    replicas = []
    for name in NODES:
        started = fleet.ask_worker(name, "backend.install", backend="echo", model_id="m")
        assert started["success"], started
        replicas.append(Serving(started["address"], started["corral"]["token"]))
    yield replicas
    for replica in replicas:
        replica.stop()
        assert not replica.failures, replica.failures
        assert replica.answers > 10


def test_a_broken_version_harms_nobody_a_good_one_arrives_and_a_rollback_is_quick(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    admin = fleet.start_frontend("a", *FAST)
    for name in NODES:
        fleet.start_worker(name)
    for name in NODES:
        admin.wait_for_status(name, "healthy", within_s=60)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"), within_s=60)
    assert fleet.upgrades() == {}

    with serving(fleet):
        broken = fleet.registry.push("echo", {"run.sh": b"#!/bin/sh\necho the engine is on fire >&2\nexit 3\n"})
        assert fleet.post("/api/backends/upgrades/check").status == 200
        fleet.wait_for(lambda: list(fleet.upgrades()) == ["echo"], "the upgrade is on the list")
        (upgrade,) = fleet.upgrades().values()
        assert (upgrade["installed_digest"], upgrade["available_digest"]) == (first, broken)
        failed = fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo"), "failed", within_s=90)
        for node in failed["nodes"]:
            assert node["status"] == "error"
            assert "the engine is on fire" in node["error"]
            assert "keeps serving" in node["error"]
        assert fleet.digests("echo") == dict.fromkeys(NODES, first), "the old version is current again"
        assert list(fleet.upgrades()) == ["echo"], "the upgrade is still open"

        second = fleet.registry.push("echo", localai_files("2"))
        good = fleet.begin("/api/backends/upgrade/echo")
        fleet.wait_for_operation(good, within_s=60)
        assert fleet.post("/api/backends/upgrades/check?wait=true").status == 200
        assert fleet.upgrades() == {}, "the list is empty within one check"
        assert fleet.digests("echo") == dict.fromkeys(NODES, second)
        (entry,) = admin.call("GET", "/api/fleet/backends").json()
        causes = {drift["cause"] for node in entry["nodes"] for drift in node["drift"]}
        assert causes == {"old_process"}, "what still runs the old version is shown"

        before = fleet.registry.blob_downloads()
        with promised("a rollback", within_s=3, directory=fleet.directory):
            fleet.wait_for_operation(fleet.begin("/api/backends/echo/rollback"))
        assert fleet.digests("echo") == dict.fromkeys(NODES, first)
        assert fleet.registry.blob_downloads() == before, "nothing was fetched"
    assert list(fleet.upgrades()) == ["echo"], "what was rolled back has an upgrade again"
    (history,) = [
        row for row in admin.call("GET", "/api/operations/history").json()["operations"] if row["jobID"] == good
    ]
    assert (history["outcome"], history["verb"], history["actor"]) == ("completed", "upgrade", "key admin")
