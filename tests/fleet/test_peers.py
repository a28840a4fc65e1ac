"""A registry is asked once: further nodes get a backend's layers from those that have it."""

import os

import pytest

from harness.cluster import Cluster, approve
from harness.localai_backend import localai_files

pytestmark = pytest.mark.registry
LAYER_BYTES = 3 << 20


def test_the_second_node_gets_its_layers_from_the_first(fleet: Cluster) -> None:
    digest = fleet.offer_image("echo", {**localai_files("1"), "weights": os.urandom(LAYER_BYTES)})
    admin = fleet.start_frontend()
    for name in ("one", "two"):
        fleet.start_worker(name)
        approve(admin, name)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["one"]}))
    fleet.wait_for_digests("echo", {"one": digest})
    assert fleet.registry.blob_downloads(from_bytes=LAYER_BYTES) == 1

    # A frontend that was started since has no token in memory, and asks for it.
    fleet.frontends["a"].kill()
    admin = fleet.start_frontend()
    for name in ("one", "two"):
        admin.wait_for_status(name, "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["two"]}))
    fleet.wait_for_digests("echo", {"one": digest, "two": digest})
    assert fleet.registry.blob_downloads(from_bytes=LAYER_BYTES) == 1

    token = (fleet.worker_dir("one") / "blob.token").read_text().strip()
    assert len(token) > 20
    kept = [path for path in fleet.directory.rglob("*") if path.is_file() and path.name != "blob.token"]
    written = [path for path in kept if "registry" not in path.parts and token.encode() in path.read_bytes()]
    assert written == [], "in memory only"
