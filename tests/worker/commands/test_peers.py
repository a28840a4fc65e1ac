"""Blobs from another worker, named by the order: near, checked, and done without when it is no help."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.localai_backend import localai_files
from harness.machine_speed import promised
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.ports import free_port
from harness.single_worker import SingleWorker

pytestmark = pytest.mark.registry


class WrongPeer:
    """Offers the wrong bytes for everything, and remembers who asked."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                peer.tokens.append(self.headers.get("Authorization", ""))
                self.send_response(200)
                self.send_header("Content-Length", str(3 << 20))
                self.end_headers()
                self.wfile.write(bytes(3 << 20))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def other_worker(tmp_path: Path, nats: Nats) -> Iterator[SingleWorker]:
    (tmp_path / "other").mkdir()
    worker = SingleWorker(tmp_path / "other", nats, "--no-keep-backends", node="11111111-2222-4333-8444-555555555555")
    yield worker
    worker.close()


async def install(worker: SingleWorker, registry: OciRegistry, *peers: dict[str, str]) -> dict[str, Any]:
    async with worker.frontend() as frontend:
        reply: dict[str, Any] = await frontend.ask(
            "backend.install", backend="demo", uri=f"{registry.host}/demo:latest", corral={"peers": list(peers)}
        )
        assert reply["success"], reply
        return reply


async def test_a_worker_that_has_the_blobs_spares_the_registry(
    worker: SingleWorker, other_worker: SingleWorker, registry: OciRegistry
) -> None:
    digest = registry.push("demo", {**localai_files(), "weights": os.urandom(3 << 20)})
    await install(other_worker, registry)
    async with other_worker.frontend() as frontend:
        token = (await frontend.ask("corral.report.now"))["blob_token"]
    before = registry.blob_downloads()
    reply = await install(worker, registry, {"url": other_worker.url, "token": token})
    assert reply["corral"]["digest"] == digest
    # The configuration is asked of the registry, the layer is not.
    assert registry.blob_downloads() - before <= 1


async def test_peers_that_lie_or_do_not_answer_are_done_without(worker: SingleWorker, registry: OciRegistry) -> None:
    digest = registry.push("demo", {**localai_files(), "weights": os.urandom(3 << 20)})
    wrong, also_wrong = WrongPeer(), WrongPeer()
    try:
        with promised("the install", within_s=20, directory=worker.directory):
            reply = await install(
                worker,
                registry,
                {"url": f"http://127.0.0.1:{free_port()}", "token": "gone"},
                {"url": "http://169.254.169.254", "token": "metadata"},
                {"url": wrong.url, "token": "t-1"},
                {"url": also_wrong.url, "token": "t-2"},
            )
        assert reply["corral"]["digest"] == digest
        assert set(wrong.tokens) == {"Bearer t-1"}
        assert also_wrong.tokens == [], "after wrong bytes only the registry is asked"
        assert "t-1" not in worker.program.output()
    finally:
        wrong.close()
        also_wrong.close()
