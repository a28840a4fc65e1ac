"""A frontend reduced to registration: enough for a real worker to join a real bus, with none of the rest in the way."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from corral.bus.credentials import Permissions, node_permissions, user_jwt
from corral.core.nodes.node import NodeId
from corral.system import SystemClock
from harness.nats import Nats

NODE = "0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11"
TOKEN = "test-registration-token"


class Registrar:
    """Speaks Corral's node API, or LocalAI's when `corral` is off."""

    def __init__(self, nats: Nats, *, corral: bool = True, node: str = NODE) -> None:
        self._nats, self._corral, self._node = nats, corral, node
        self.epoch = 0
        self.facts: dict[str, Any] = {}
        self.fenced = False
        """Answer heartbeats as a frontend does when a newer process has the node's identity."""
        self.silent = False
        """Answer nothing of use, as a proxy does behind which no frontend is left."""
        self.store_away = False
        """Answer as a frontend does that has lost its store."""
        self.grant: dict[str, Any] | None = None
        """What heartbeats are told about the node's processes."""
        self.in_flight: Callable[[], int] = lambda: 0
        """How many requests run on the node, as its drain asks."""
        self.beats: list[dict[str, Any]] = []
        self.asked: list[str] = []
        """The last word of every path, in order."""
        self.beats_answered = threading.Event()
        self.beats_answered.set()
        """Cleared, heartbeats arrive and are not answered."""
        registrar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = json.dumps([{"in_flight": registrar.in_flight()}]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                status, answer = registrar._answer(self.path, body, self.headers.get("Authorization", ""))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def _answer(self, path: str, body: dict[str, Any], bearer: str) -> tuple[int, Any]:
        if self.silent:
            return 503, "nobody is there"
        if self.store_away:
            return 503, {"error": "the store is away"}
        self.asked.append(path.rpartition("/")[2])
        if path.endswith("/heartbeat"):
            self.beats.append(body)
            self.beats_answered.wait(30)
            if self.fenced:
                return 409, {"error": "a newer process has registered as this node"}
        if not path.endswith("/register"):
            return 200, {"message": "ok", **({"corral": self.grant} if self.grant is not None else {})}
        if not self._corral and bearer != f"Bearer {TOKEN}":
            return 401, {"error": "invalid token"}
        reply = {
            "id": self._node,
            "name": body["name"],
            "node_type": "backend",
            "status": "healthy",
            "created_at": "2026-08-01T10:00:00Z",
        }
        if not self._corral:
            own = f"nodes.{self._node}"
            credentials = self._nats.credentials(
                Permissions(
                    publish=(f"{own}.backend.install.*.progress", f"{own}.files.>", "_INBOX.>"),
                    subscribe=(f"{own}.>", "_INBOX.>"),
                ),
                expires_in_s=3600,
            )
            return 201, {**reply, "nats_jwt": credentials.jwt, "nats_user_seed": credentials.key.seed}
        self.epoch += 1
        self.facts = body["corral"].get("facts", {})
        now_s = SystemClock().now_ms() // 1000
        reply["nats_jwt"] = user_jwt(
            self._nats.account,
            body["corral"]["bus_public_key"],
            name="test-node",
            permissions=node_permissions(NodeId(self._node)),
            now_s=now_s,
            expires_s=now_s + 3600,
        )
        reply["corral"] = {
            "epoch": self.epoch,
            "bus_url": self._nats.url,
            "credential_ttl_s": 3600.0,
            "heartbeat_interval_s": 0.5,
        }
        return 201, reply

    def close(self) -> None:
        self.beats_answered.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
