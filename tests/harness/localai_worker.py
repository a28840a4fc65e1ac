"""A worker of LocalAI's, of one of two ages: what it registers, answers, stores and starts is what such a worker did.

It registers and beats over HTTP, serves its subjects on the bus, has a file server, pulls images from a real registry
and starts what is in them. Galleries may be files, which LocalAI allows only in its own directories.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.bus.client import Bus, BusMessage, BusOptions, Credentials, connect_bus
from corral.bus.credentials import read_key
from harness.localai_files import LocalAiFiles
from harness.localai_images import NOWHERE, LocalAiError, LocalAiImages, OnProgress
from harness.ports import take_ports
from harness.programs import call
from harness.waiting import PATIENCE, is_listening, wait_until

BEAT_EVERY_S = 0.5
PORTS = 20
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Age:
    """What a worker of that time could do."""

    verbs: frozenset[str]
    takes_credentials: bool
    """From the frontend, for the bus (since 2026-06-03)."""
    reports_progress: bool
    """Since 2026-05-23."""
    resumable_uploads: bool
    """Since 2026-05-31."""
    knows_backends: bool
    """Of its processes, and names those that it stopped (since 2026-07-20)."""
    lists_aliases: bool
    tells_capability: bool


_FIRST = frozenset(
    {"backend.install", "backend.stop", "backend.delete", "backend.list", "model.unload", "model.delete"}
)
MAY_2026 = Age(
    verbs=_FIRST,
    takes_credentials=False,
    reports_progress=False,
    resumable_uploads=False,
    knows_backends=False,
    lists_aliases=True,
    tells_capability=False,
)
"""As of 2026-05-07."""
AUGUST_2026 = Age(
    verbs=_FIRST | {"backend.upgrade", "models.running", "model.stop"},
    takes_credentials=True,
    reports_progress=True,
    resumable_uploads=True,
    knows_backends=True,
    lists_aliases=False,
    tells_capability=True,
)
"""As of 2026-08-22."""


@dataclass(frozen=True)
class _Process:
    child: "subprocess.Popen[bytes]"
    port: int
    backend: str

    @property
    def is_alive(self) -> bool:
        return self.child.poll() is None


class LocalAiWorker:
    def __init__(self, url: str, token: str, bus: str, *, name: str, directory: Path, age: Age = AUGUST_2026) -> None:
        self.name, self.age, self.directory = name, age, directory
        self.models = directory / "models"
        self.models.mkdir(parents=True, exist_ok=True)
        self.images = LocalAiImages(directory / "backends", capability="default")
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.gate: threading.Event | None = None
        """Where a test set one, an install waits for it after it has reported progress."""
        self._url, self._token, self._bus_url = url, token, bus
        self._base = take_ports(PORTS)
        self.processes: dict[str, _Process] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._bus: Bus
        self.start()

    # Its life

    def start(self) -> None:
        """With `--nats-require-auth`, as far as it knows of it: it registers again until it is approved."""
        self._next_port = self._base + 1
        wait_until(self._register, what=f"{self.name} is approved")
        port, resumable = self._base, self.age.resumable_uploads
        self.files = LocalAiFiles(self.directory, port=port, token=self._token, resumable=resumable)
        self._loop = asyncio.new_event_loop()
        self._over, self._subscribed = asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()), daemon=True)
        self._thread.start()
        assert self._subscribed.wait(30 * PATIENCE), "it has not subscribed"

    def _register(self) -> bool:
        body: dict[str, Any] = {
            "name": self.name, "address": f"127.0.0.1:{self._base + 1}", "http_address": f"127.0.0.1:{self._base}",
            "total_vram": 0, "available_vram": 0, "gpu_vendor": "", "max_replicas_per_model": 1,
            "total_ram": 8 * GIB, "available_ram": 8 * GIB, "token": self._token,
            "labels": {"node.replica-slots": "1"},
        }  # fmt: skip
        if self.age.tells_capability:
            disk = {"total_disk": 100 * GIB, "available_disk": 100 * GIB}
            body |= {"capability": "default", "gpu_compute_capability": "", **disk}
        answer = call("POST", f"{self._url}/api/node/register", key=self._token, body=body)
        assert answer.status == 201, answer.body
        self._welcome = answer.json()
        self.id: str = self._welcome["id"]
        return not self.age.takes_credentials or "nats_jwt" in self._welcome

    def stop(self) -> None:
        """As on SIGTERM."""
        self._tell("drain")
        wait_until(lambda: not any(row["in_flight"] for row in self._open()), what="its requests have ended")
        self._tell("deregister")
        self.crash()

    def crash(self) -> None:
        """As on SIGKILL. Its backends watch their parent and end too."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)
        self._loop.close()
        self.files.stop()
        for key in list(self.processes):
            self._stop(key)

    def kill_backend(self, key: str) -> int:
        """Without the worker's knowledge."""
        child = self.processes[key].child
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)
        return child.pid

    def _tell(self, verb: str) -> None:
        answer = call("POST", f"{self._url}/api/node/{self.id}/{verb}", key=self._token, body={})
        assert answer.status == 200, answer.body

    def _open(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = call("GET", f"{self._url}/api/node/{self.id}/models", key=self._token).json()
        return rows

    async def _run(self) -> None:
        inbox = f"_INBOX.node.{self.id}"
        seed = self._welcome.get("nats_user_seed") if self.age.takes_credentials else None
        key = read_key("user", seed, setting="test") if seed else None
        options = BusOptions(
            servers=(self._bus_url,),
            name=self.name,
            inbox=inbox,
            inbox_for=lambda _subject: inbox,
            credentials=lambda: Credentials(self._welcome["nats_jwt"], key) if key is not None else None,
        )
        handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "backend.install": self._on_install,
            "backend.upgrade": self._on_upgrade,
            "backend.stop": self._on_stop,
            "backend.delete": self._on_delete,
            "backend.list": lambda _: {"backends": self.images.list(with_aliases=self.age.lists_aliases) or None},
            "models.running": self._on_running,
            "model.stop": self._on_model_stop,
            "model.unload": lambda _: {"success": True},
            "model.delete": self._on_model_delete,
        }
        async with connect_bus(options) as self._bus:
            for verb in sorted(self.age.verbs):
                handler = self._answering(verb, handlers[verb])
                await self._bus.serve(f"nodes.{self.id}.{verb}", handler, concurrency=4)
            self._subscribed.set()
            while not self._over.is_set():
                await asyncio.to_thread(
                    call, "POST", f"{self._url}/api/node/{self.id}/heartbeat", key=self._token,
                    body={"available_ram": 8 * GIB},
                )  # fmt: skip
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_EVERY_S):
                        await self._over.wait()

    def _answering(
        self, verb: str, handler: Callable[[dict[str, Any]], dict[str, Any] | None]
    ) -> Callable[[BusMessage], Awaitable[bytes | None]]:
        async def handle(message: BusMessage) -> bytes | None:
            request = json.loads(message.data or b"{}") or {}
            self.asked.append((verb, request))
            reply = await asyncio.to_thread(handler, request)
            return json.dumps(reply).encode() if reply is not None else None

        return handle

    # Its subjects

    def _on_install(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._locks.setdefault(request["backend"], threading.Lock()):
            try:
                return {"success": True, "address": f"127.0.0.1:{self._install(request)}"}
            except LocalAiError as error:
                return {"success": False, "error": str(error)}

    def _install(self, request: dict[str, Any]) -> int:
        backend, force = request["backend"], request.get("force", False)
        key = f"{request.get('model_id') or backend}#{request.get('replica_index', 0)}"
        there = self.processes.get(key)
        if force:
            for other in [*self._keys_of(backend), key]:
                self._stop(other)
        elif there is not None and there.is_alive:
            return there.port
        if force or self.images.find(backend) is None:
            self._fetch(request, force=force)
        path = self.images.find(backend)
        if path is None:
            raise LocalAiError(f'backend "{backend}" not found after install attempt')
        return self._start(key, backend, path)

    def _fetch(self, request: dict[str, Any], *, force: bool) -> None:
        galleries = json.loads(request.get("backend_galleries") or "[]")
        try:
            progress = self._progress(request)
            self.images.install(galleries, request["backend"], force=force, on_progress=progress)
        except LocalAiError as error:
            raise LocalAiError(f"installing backend from gallery: {error}") from error

    def _progress(self, request: dict[str, Any]) -> OnProgress:
        operation = request.get("op_id")
        if not operation or not self.age.reports_progress:
            return NOWHERE

        def report(file_name: str, percent: float) -> None:
            message = {
                "op_id": operation, "node_id": self.id, "backend": request["backend"], "file_name": file_name,
                "current": "1.0 MiB", "total": "2.0 MiB", "percentage": percent, "phase": "downloading",
            }  # fmt: skip
            subject = f"nodes.{self.id}.backend.install.{operation}.progress"
            publishing = self._bus.publish(subject, json.dumps(message).encode())
            asyncio.run_coroutine_threadsafe(publishing, self._loop).result(10)
            if self.gate is not None:
                assert self.gate.wait(60 * PATIENCE), "nobody let it go on"

        return report

    def _start(self, key: str, backend: str, path: Path) -> int:
        port = self._next_port = self._next_port + 1
        with (self.directory / f"{port}.log").open("ab") as log:
            child = subprocess.Popen(
                [str(path / "run.sh"), "--addr", f"127.0.0.1:{port}"],
                cwd=path,
                env={**os.environ, "LOCALAI_GRPC_AUTH_TOKEN": self._token},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[key] = _Process(child, port, backend)
        wait_until(lambda: is_listening(port) or child.poll() is not None, what=f"{key} listens")
        if child.poll() is not None:
            del self.processes[key]
            raise LocalAiError(f"backend process {key} died during startup")
        return port

    def _stop(self, key: str) -> bool:
        process = self.processes.pop(key, None)
        if process is None:
            return False
        with suppress(ProcessLookupError):
            os.killpg(process.child.pid, signal.SIGKILL)
        process.child.wait(60)
        return True

    def _keys_of(self, backend: str) -> list[str]:
        """Processes of a backend. An old worker knows only those that were started without a model."""
        if not self.age.knows_backends:
            return [key for key in self.processes if key.startswith(f"{backend}#")]
        names = self.images.identity(backend)
        return [key for key, process in self.processes.items() if process.backend in names]

    def _on_upgrade(self, request: dict[str, Any]) -> dict[str, Any]:
        stopped = [key for key in self._keys_of(request["backend"]) if self._stop(key)]
        told = {"stopped_process_keys": stopped, "reports_stopped_processes": True}
        try:
            self._fetch(request, force=True)
        except LocalAiError as error:
            return {"success": False, "error": str(error), **told}
        return {"success": True, **told}

    def _on_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        backend = request["backend"]
        stopped = [key for key in self._keys_of(backend) if self._stop(key)]
        told = {"stopped_process_keys": stopped, "reports_stopped_processes": True} if self.age.knows_backends else {}
        try:
            self.images.delete(backend)
        except LocalAiError as error:
            return {"success": False, "error": str(error), **told}
        return {"success": True, **told}

    def _on_stop(self, request: dict[str, Any]) -> None:
        """A backend, a model or a process key; nothing means all."""
        wanted = request.get("backend", "")
        for key in list(self.processes):
            if not wanted or wanted in (key, key.rpartition("#")[0]):
                self._stop(key)

    def _on_running(self, _request: dict[str, Any]) -> dict[str, Any]:
        return {
            "models": [
                {
                    "model_id": key.rpartition("#")[0],
                    "replica_index": int(key.rpartition("#")[2]),
                    "address": f"127.0.0.1:{process.port}",
                }
                for key, process in self.processes.items()
                if process.is_alive
            ]
        }

    def _on_model_stop(self, request: dict[str, Any]) -> dict[str, Any]:
        key = request["process_key"]
        process = self.processes.get(key)
        reply = {"matched": process is not None, "freed": False, "terminated": True, "process_key": key}
        if process is None:
            return reply
        address = f"127.0.0.1:{process.port}"
        if request.get("expected_address") != address:
            return {**reply, "terminated": False, "address": address, "error": "address mismatch"}
        self._stop(key)
        return {**reply, "address": address}

    def _on_model_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        path = self.models / request["model_name"]
        if path.is_dir():
            shutil.rmtree(path)
        else:
            for file in [path, *path.parent.glob(f"{path.name}.*")]:
                file.unlink(missing_ok=True)
        return {"success": True}
