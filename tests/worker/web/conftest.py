"""The worker's file server on a real socket, without a fleet around it."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from corral.system import SystemIds
from corral.system.http_server import serve_http
from corral.system.listen import bind_socket
from corral.worker.areas import Area
from corral.worker.processes.logs import ProcessLogs
from corral.worker.web.access import Keys
from corral.worker.web.app import build_worker_app
from corral.worker.web.files import FileAreas
from harness.programs import Answer, call
from harness.waiting import free_port, is_listening, wait_until

TOKEN, BLOB_TOKEN = "files-token", "blobs-token"


@dataclass
class Server:
    root: Path
    port: int
    logs: ProcessLogs
    blobs: dict[str, Path]

    def call(
        self, method: str, path: str, body: bytes | None = None, *, key: str | None = TOKEN, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Content-Type", "application/octet-stream")
        return call(method, f"http://127.0.0.1:{self.port}{path}", key=key, raw=body, headers=named)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    areas = FileAreas(Area(tmp_path / "models"), Area(tmp_path / "data"), Area(tmp_path / "inbox"), SystemIds().uuid)
    logs = ProcessLogs(tmp_path / "logs")
    running = Server(tmp_path, free_port(), logs, {})
    app = build_worker_app(
        not_ready=lambda: "",
        keys=lambda: Keys(files=frozenset((TOKEN,)), blobs=frozenset((BLOB_TOKEN,))),
        areas=areas,
        logs=logs,
        find_blob=running.blobs.get,
    )
    loop = asyncio.new_event_loop()
    listener = bind_socket("127.0.0.1", running.port, setting="")
    serving = loop.create_task(serve_http(app, listener, websockets=True))

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serving)
        except asyncio.CancelledError:
            pass
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: is_listening(running.port) or None, what="the file server listens")
    yield running
    loop.call_soon_threadsafe(serving.cancel)
    thread.join(15)
    assert not thread.is_alive()
    listener.close()
    for area in (areas.models, areas.data, areas.staging):
        area.close()
