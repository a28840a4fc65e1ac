"""An event stream that never rests: node changes at a set rate, in the form `/api/events` sends them."""

import json
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class EventBurst:
    def __init__(self, nodes: Sequence[dict[str, Any]], *, per_s: int) -> None:
        burst, self.sent = self, 0
        self._nodes, self._per_s = nodes, per_s
        self._over = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                burst._pour(self.wfile)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _pour(self, out: Any) -> None:
        began_s = time.monotonic()
        count = 0
        try:
            while not self._over.is_set():
                due = int((time.monotonic() - began_s) * self._per_s)
                out.write(b"".join(self._event(number) for number in range(count, due)))
                out.flush()
                self.sent += due - count
                count = due
                self._over.wait(0.01)
        except OSError:
            return

    def _event(self, number: int) -> bytes:
        node = self._nodes[number % len(self._nodes)]
        told = {**node, "available_ram": number << 20, "updated_at": datetime.now(UTC).isoformat()}
        return b"event: nodes\ndata: %s\n\n" % json.dumps({"changed": [told], "removed": []}).encode()

    def stop(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
