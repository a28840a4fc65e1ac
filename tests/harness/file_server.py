"""A worker's file server on a real socket, in a thread of its own, without a fleet around it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corral.system import SystemClock, SystemIds
from corral.system.http_server import serve_http
from corral.system.listen import bind_socket
from corral.worker.files.areas import Area
from corral.worker.processes.logs import ProcessLogs
from corral.worker.web.app import build_worker_app
from corral.worker.web.auth import Keys
from corral.worker.web.files import FileAreas
from harness.ports import free_port
from harness.programs import Answer, call
from harness.waiting import is_listening, wait_until

TOKEN, BLOB_TOKEN = "files-token", "blobs-token"


class RunningFileServer:
    def __init__(self, root: Path) -> None:
        self.root, self.token = root, TOKEN
        self.logs = ProcessLogs(root / "logs")
        self.blobs: dict[str, Path] = {}
        self.partial_blobs: dict[str, Path] = {}
        self.watchers: list[Callable[[], None]] = []
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._areas = FileAreas(Area(root / "models"), Area(root / "data"), Area(root / "inbox"), SystemIds().uuid)
        app = build_worker_app(
            not_ready=lambda: "",
            keys=lambda: Keys(files=frozenset((TOKEN,)), blobs=frozenset((BLOB_TOKEN,))),
            areas=self._areas,
            logs=self.logs,
            find_blob=self.blobs.get,
            find_partial=self.partial_blobs.get,
            watch_blob=self._watch,
            clock=SystemClock(),
        )
        self._loop = asyncio.new_event_loop()
        self._listener = bind_socket("127.0.0.1", self.port, setting="")
        self._serving = self._loop.create_task(serve_http(app, self._listener, websockets=True))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until(lambda: is_listening(self.port) or None, what="the file server listens")

    @contextmanager
    def _watch(self, digest: str, changed: Callable[[], None]) -> Iterator[None]:
        self.watchers.append(changed)
        try:
            yield
        finally:
            self.watchers.remove(changed)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def call(
        self, method: str, path: str, body: bytes | None = None, *, key: str | None = TOKEN, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Content-Type", "application/octet-stream")
        return call(method, f"{self.url}{path}", key=key, raw=body, headers=named)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(15)
        assert not self._thread.is_alive()
        self._listener.close()
        for area in (self._areas.models, self._areas.data, self._areas.staging):
            area.close()
