"""Our worker with LocalAI's frontend: a small server that follows the same contract, and a bus with its credentials."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from corral.bus.client import connect_bus
from corral.bus.credentials import Permissions
from harness.nats import Nats
from harness.programs import Program
from harness.waiting import wait_until

NODE = "0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11"
TOKEN = "changeme"


class LocalAiFrontend:
    """Answers as spec/node-http-api.md section 1 says, with none of Corral's fields."""

    def __init__(self, nats: Nats) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.in_flight: list[int] = []
        """What to answer, one poll after the other."""
        credentials = nats.credentials(
            Permissions(
                publish=(f"nodes.{NODE}.backend.install.*.progress", f"nodes.{NODE}.files.>", "_INBOX.>"),
                subscribe=(f"nodes.{NODE}.>", "_INBOX.>"),
            ),
            expires_in_s=86400,
        )
        frontend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                authorised = self.headers.get("Authorization") == f"Bearer {TOKEN}"
                frontend.calls.append((self.path, "ok" if authorised else "denied", json.loads(body or b"{}")))
                status, answer = frontend.answer(self.path, authorised, json.loads(body or b"{}"), credentials)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                frontend.calls.append((self.path, "ok", {}))
                busy = [{"model_name": "m", "in_flight": frontend.in_flight.pop(0) if frontend.in_flight else 0}]
                data = json.dumps(busy).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def answer(self, path: str, authorised: bool, body: dict[str, Any], credentials: Any) -> tuple[int, Any]:
        if not authorised:
            return 401, {"error": "invalid token"}
        if path == "/api/node/register":
            if body.get("token") != TOKEN:
                return 401, {"error": {"code": 401, "message": "invalid registration token", "type": "node_error"}}
            return 201, {
                "id": NODE,
                "name": body["name"],
                "node_type": "backend",
                "status": "healthy",
                "created_at": "2026-08-01T10:00:00Z",
                "nats_jwt": credentials.jwt,
                "nats_user_seed": credentials.key.seed,
            }
        return 200, {"message": path.rpartition("/")[2]}

    def paths(self) -> list[str]:
        return [path.removeprefix(f"/api/node/{NODE}") for path, outcome, _ in self.calls if outcome == "ok"]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def localai(nats: Nats) -> Iterator[LocalAiFrontend]:
    server = LocalAiFrontend(nats)
    yield server
    server.close()


def start(localai: LocalAiFrontend, directory: Path, *flags: str) -> Program:
    return Program(
        "worker", "--join", localai.url, "--token", TOKEN, "--name", "worker-1", "--heartbeat-interval", "0.2",
        "--data-dir", str(directory / "w"), *flags, log=directory / "log",
    )  # fmt: skip


def test_our_worker_joins_a_localai_frontend_sends_heartbeats_answers_and_leaves(
    localai: LocalAiFrontend, nats: Nats, tmp_path: Path
) -> None:
    worker = start(localai, tmp_path, "--bus", nats.url)
    try:
        wait_until(lambda: localai.paths().count("/heartbeat") >= 2, what="two heartbeats")
        registration = next(
            body for path, outcome, body in localai.calls if path.endswith("register") and outcome == "ok"
        )
        assert registration["labels"]["node.replica-slots"] == "1"
        assert registration["address"].startswith("127.0.0.1:")
        assert registration["total_disk"] > 0

        async def ask() -> bytes:
            options = nats.options(nats.credentials(None), inbox="_INBOX.localai")
            async with connect_bus(options) as bus:
                return await bus.request(f"nodes.{NODE}.models.running", b"{}", within_s=20)

        assert json.loads(asyncio.run(ask())) == {"models": []}
        localai.in_flight = [2, 1]
    finally:
        assert worker.stop() == 0
    # It leaves only when nothing runs on it any more.
    assert localai.paths()[-5:] == ["/drain", "/models", "/models", "/models", "/deregister"]


def test_a_stop_over_the_bus_ends_the_worker_in_order(localai: LocalAiFrontend, nats: Nats, tmp_path: Path) -> None:
    worker = start(localai, tmp_path, "--bus", nats.url)
    wait_until(lambda: "/heartbeat" in localai.paths(), what="a heartbeat")

    async def tell() -> None:
        async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.localai")) as bus:
            await bus.publish(f"nodes.{NODE}.stop", b"null")

    asyncio.run(tell())
    assert worker.wait(20) == 0
    assert localai.paths()[-3:] == ["/drain", "/models", "/deregister"]


def test_without_a_bus_address_it_says_which_setting_is_missing(localai: LocalAiFrontend, tmp_path: Path) -> None:
    worker = start(localai, tmp_path)
    assert worker.wait(20) == 2
    assert "--bus" in worker.output()
    assert "Traceback" not in worker.output()
