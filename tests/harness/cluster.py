"""A cluster of real processes: frontends on one store and one bus, workers, and where a test needs them a registry and
a gallery."""

import asyncio
import json
import shutil
import sqlite3
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil

from corral.bus.client import BusOptions, connect_bus
from corral.bus.subjects import frontend_inbox
from corral.core.replicas.load_jobs import LOAD_RETRIES
from corral.worker.processes.tree import find_marked
from harness.engine import give_engine
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.ports import free_port, take_ports
from harness.programs import Admin, Answer, Program, call, clean_environment
from harness.proxy import ProxyThread
from harness.single_worker import end_marked
from harness.waiting import wait_until

ADMIN_KEY = "corral-test-admin-key"
TOKEN = "test-registration-token"
SHORT_LIMITS = (
    "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4", "--health-interval", "0.5",
)  # fmt: skip
LOOPBACK = ("--trusted-hosts", "127.0.0.1", "--plain-http-hosts", "127.0.0.1")
PORTS_PER_WORKER = 100


class Cluster:
    """Short intervals, so that minutes of a real fleet pass in seconds."""

    def __init__(
        self,
        directory: Path,
        nats: Nats,
        store: str | None = None,
        *,
        registry: OciRegistry | None = None,
        engine: Path | None = None,
        limits: Sequence[str] = SHORT_LIMITS,
    ) -> None:
        """With a `registry`, frontends read a gallery that the test writes (`offer`), nodes wait for approval, and
        workers end their backends when they stop. Without one, nodes are approved by themselves. `engine`: an installed
        llama.cpp for workers to begin with. `limits`: flags of its frontends; none for those that users have who set
        nothing."""
        self.directory, self.nats = directory, nats
        self._store = self._reached = store or f"sqlite://{directory}/corral.db"
        self._registry, self._engine, self._limits = registry, engine, limits
        self.frontends: dict[str, Program] = {}
        self.workers: dict[str, Program] = {}
        self._ports: dict[str, int] = {}
        self.gates = directory / "gates"  # for files that backends wait for or write, whichever user they run as
        self.gates.mkdir(parents=True, exist_ok=True)
        self.gates.chmod(0o777)
        self._gallery: dict[str, dict[str, Any]] = {}
        self.gallery_path = directory / "gallery" / "index.yaml"
        if registry is not None:
            self.write_gallery()

    @property
    def registry(self) -> OciRegistry:
        assert self._registry is not None, "this cluster was made without a registry"
        return self._registry

    def write_gallery(self) -> None:
        self.gallery_path.parent.mkdir(parents=True, exist_ok=True)
        self.gallery_path.write_text(json.dumps(list(self._gallery.values())))  # JSON is YAML

    def offer(self, name: str, **fields: Any) -> None:
        self._gallery[name] = {"name": name, **fields}
        self.write_gallery()

    def offer_image(self, name: str, files: dict[str, bytes], *, tag: str = "latest", **fields: Any) -> str:
        """Pushes it and lists it; the digest."""
        digest = self.registry.push(name, files, tag=tag)
        self.offer(name, uri=fields.pop("uri", f"{self.registry.host}/{name}:{tag}"), **fields)
        return digest

    def start_frontend(self, name: str = "a", *flags: str, **environment: str) -> Admin:
        port = self._ports.setdefault(name, free_port())
        own = {"CORRAL_STORE": self._reached, "CORRAL_ADMIN_KEY": ADMIN_KEY, "CORRAL_REGISTRATION_TOKEN": TOKEN}
        own["CORRAL_ROLLOUT_STRATEGY"] = "all"  # tests of rollouts choose another
        own["CORRAL_STOP_WAIT"] = "5s"
        if self._registry is None:
            flags = ("--auto-approve", *flags)
        else:
            gallery = ("--backend-galleries", f"ours=file://{self.gallery_path}", "--gallery-refresh", "1")
            flags = (*gallery, *LOOPBACK, *flags)
            # Tests have workers start processes that no frontend knows of; on a slow machine they need them for long.
            own["CORRAL_ORPHAN_GRACE"] = "1h"
        self.frontends[name] = Program(
            "frontend", "--data-dir", str(self.directory / name), "--listen", f"127.0.0.1:{port}",
            *self._limits, *flags, log=self.directory / f"{name}.log",
            environment=clean_environment(**{**self.nats.secrets(), **own, **environment}),
        )  # fmt: skip
        admin = self.admin(name)
        wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what=f"{name} is ready", within_s=30)
        return admin

    @property
    def store_file(self) -> str:
        """Of SQLite."""
        return self._store.removeprefix("sqlite://")

    def put_line_before_store(self) -> ProxyThread | None:
        """Frontends started from now on reach PostgreSQL through it. SQLite is a file, and needs none."""
        if self._store.startswith("sqlite://"):
            return None
        address = urlsplit(self._store)
        line = ProxyThread(address.port or 5432)
        self._reached = self._store.replace(f":{address.port}", f":{line.port}", 1)
        return line

    def admin(self, name: str = "a") -> Admin:
        return Admin(f"http://127.0.0.1:{self._ports[name]}", ADMIN_KEY)

    def start_worker(
        self,
        name: str,
        *flags: str,
        frontend: str = "a",
        wait: bool | None = None,
        bare: bool = False,
        **environment: str,
    ) -> Program:
        """A `bare` one has to install what it runs. `wait`: until it is healthy, which is the rule where nodes are
        approved by themselves."""
        if self._engine is not None and not bare and not self.worker_dir(name).exists():
            give_engine(self._engine, self.worker_dir(name))
        key = f"worker {name}"
        port = self._ports[key] = self._ports.get(key) or take_ports(PORTS_PER_WORKER)
        kept = () if self._registry is None else ("--no-keep-backends",)
        self.workers[name] = Program(
            "worker", "--join", self.admin(frontend).url, "--token", TOKEN, "--name", name,
            "--data-dir", str(self.worker_dir(name)), "--port", str(port),
            "--backend-ports", f"{port + 1}-{port + PORTS_PER_WORKER - 1}", *LOOPBACK,
            "--backend-paths", f"{self.gates}:rw", *kept, *flags,
            log=self.directory / f"{name}.log", environment=clean_environment(**environment),
        )  # fmt: skip
        if wait or (wait is None and self._registry is None):
            self.admin(frontend).wait_for_status(name, "healthy")
        return self.workers[name]

    def worker_dir(self, name: str) -> Path:
        return self.directory / name

    def wipe(self, name: str) -> None:
        """The disk with the backends is lost; the machine's identity is kept."""
        for part in ("backends", "layers", "blobs", "applied_generations.json"):
            path = self.worker_dir(name) / part
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def stop(self) -> None:
        for program in (*self.workers.values(), *self.frontends.values()):
            if program.process.poll() is None:
                program.kill()
        for name in self.workers:
            end_marked(self.worker_dir(name))

    def ask_worker(self, name: str, verb: str, **fields: Any) -> Any:
        """One request over the bus, as a frontend sends it."""
        node = self.admin(next(iter(self.frontends))).nodes()[name]["id"]
        credentials = self.nats.credentials(None)
        options = BusOptions(
            servers=(self.nats.url,),
            name="test-frontend",
            inbox="_INBOX.fe.*.test",
            inbox_for=lambda subject: frontend_inbox("test", subject),
            credentials=lambda: credentials,
        )

        async def ask() -> Any:
            async with connect_bus(options) as bus:
                return json.loads(await bus.request(f"nodes.{node}.{verb}", json.dumps(fields).encode(), within_s=60))

        return asyncio.run(ask())

    def replicas(self, model: str, frontend: str = "a") -> list[dict[str, Any]]:
        answer = self.admin(frontend).call("GET", "/api/replicas")
        assert answer.status == 200, answer.body
        return [replica for replica in answer.json() if replica["model_name"] == model]

    def ready(self, model: str, frontend: str = "a") -> list[dict[str, Any]]:
        return [replica for replica in self.replicas(model, frontend) if replica["corral_state"] == "ready"]

    def wait_for_ready(self, model: str, count: int, *, within_s: float = 60.0) -> list[dict[str, Any]]:
        def look() -> tuple[list[dict[str, Any]]] | None:
            found = self.ready(model)
            return (found,) if len(found) == count else None

        return wait_until(look, what=f"{model} has {count} replicas", within_s=within_s)[0]

    def processes(self, worker: str) -> list[int]:
        """Backends that run for this worker, by the kernel's word."""
        root = self.directory / worker / "run" / "processes"
        return [pid for path in root.iterdir() for pid in find_marked(path.name)] if root.is_dir() else []

    def engines(self, worker: str) -> list[int]:
        """Of these, the ones that serve: neither shims nor helpers."""
        listening = {
            connection.pid for connection in psutil.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
        }
        return [pid for pid in self.processes(worker) if pid in listening]

    def run_sql(self, sql: str) -> None:
        """Behind everybody's back."""
        if self._store.startswith("sqlite://"):
            with closing(sqlite3.connect(self._store.removeprefix("sqlite://"), timeout=60)) as connection:
                connection.execute(sql)
                connection.commit()
            return

        async def run() -> None:
            connection = await asyncpg.connect(self._store)
            try:
                await connection.execute(sql)
            finally:
                await connection.close()

        asyncio.run(run())

    def read_sql(self, sql: str) -> list[tuple[Any, ...]]:
        if self._store.startswith("sqlite://"):
            with closing(sqlite3.connect(self._store.removeprefix("sqlite://"), timeout=60)) as connection:
                return connection.execute(sql).fetchall()

        async def read() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self._store)
            try:
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        return asyncio.run(read())

    # Operations

    def post(self, path: str, body: Any = None, *, frontend: str = "a", key: str | None = None) -> Answer:
        headers = {"Idempotency-Key": key} if key is not None else {}
        return self.admin(frontend).call("POST", path, body=body, headers=headers)

    def begin(self, path: str, body: Any = None, *, frontend: str = "a") -> str:
        answer = self.post(path, body, frontend=frontend)
        assert answer.status in (200, 202), answer.body
        job: str = answer.json()["jobID"]
        return job

    def operation(self, job: str, *, frontend: str = "a") -> dict[str, Any]:
        answer = self.admin(frontend).call("GET", f"/api/operations/{job}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()
        return found

    def statuses(self, job: str, *, frontend: str = "a") -> dict[str, str]:
        return {node["node_name"]: node["status"] for node in self.operation(job, frontend=frontend)["nodes"]}

    def wait_for_operation(
        self, job: str, state: str = "completed", *, frontend: str = "a", within_s: float = 30.0
    ) -> dict[str, Any]:
        last: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            last.update(self.operation(job, frontend=frontend))
            return last if last["state"] == state else None

        try:
            return wait_until(look, what=f"operation {job} is {state}", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(last, indent=1)}") from None

    def wait_for_statuses(
        self, job: str, wanted: dict[str, str], *, frontend: str = "a", within_s: float = 30.0
    ) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            return self.operation(job, frontend=frontend) if self.statuses(job, frontend=frontend) == wanted else None

        try:
            return wait_until(look, what=f"operation {job} shows {wanted}", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(self.operation(job, frontend=frontend), indent=1)}") from None

    def digests(self, backend: str, *, frontend: str = "a") -> dict[str, str]:
        """By node, as `/api/fleet/backends` tells; without the nodes that do not have it."""
        answer = self.admin(frontend).call("GET", "/api/fleet/backends")
        assert answer.status == 200, answer.body
        for entry in answer.json():
            if entry["name"] == backend:
                return {node["node_name"]: node["digest"] for node in entry["nodes"] if node["digest"]}
        return {}

    def digest_on(self, name: str, backend: str) -> str | None:
        """By the worker's own word: what frontends tell is as old as its last report."""
        listed = self.ask_worker(name, "backend.list")["backends"] or []
        return next((found["digest"] for found in listed if found["name"] == backend), None)

    def wait_until_on(self, name: str, backend: str, digest: str, *, within_s: float = 30.0) -> None:
        def look() -> bool:
            found = self.digest_on(name, backend)
            assert found == digest, f"{name} has {found}"
            return True

        wait_until(look, what=f"{name} has {backend} {digest}", within_s=within_s, every_s=0.5)

    def wait_for_digests(
        self, backend: str, wanted: dict[str, str], *, frontend: str = "a", within_s: float = 30.0
    ) -> None:
        seen: dict[str, str] = {}

        def look() -> bool:
            seen.clear()
            seen.update(self.digests(backend, frontend=frontend))
            return seen == wanted

        try:
            wait_until(look, what=f"{backend} is {wanted}", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}") from None

    def wait_for(self, condition: Callable[[], bool], what: str, *, within_s: float = 30.0) -> None:
        wait_until(condition, what=what, within_s=within_s)

    def upgrades(self, *, frontend: str = "a") -> dict[str, Any]:
        answer = self.admin(frontend).call("GET", "/api/backends/upgrades")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()
        return found


class Haste:
    """Made when a load was said to have failed. It is tried again by itself, after half of its first wait at least."""

    def __init__(self, admin: Admin, model: str) -> None:
        # Whoever waits for a load looks each half second.
        self._due_s = time.monotonic() + LOAD_RETRIES.base_s / 2 - 1.0
        self._admin, self._model = admin, model
        self._attempts = self._load()["attempts"]

    def check(self) -> None:
        """It was not tried again before that."""
        load = self._load()
        assert load["attempts"] == self._attempts or time.monotonic() > self._due_s, load

    def _load(self) -> dict[str, Any]:
        [load] = self._admin.call("GET", f"/api/why/models/{self._model}").json()["loads"]
        found: dict[str, Any] = load
        return found


def ask(admin: Admin, model: str, **more: Any) -> Answer:
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}], **more}
    return admin.call("POST", "/v1/chat/completions", body=body, within_s=90)


def stream_chat(url: str, model: str, question: str, *, max_tokens: int = 32, within_s: float = 120.0) -> Iterator[str]:
    body = {
        "model": model,
        "stream": True,
        "max_tokens": max_tokens,
        "temperature": 0,
        "messages": [{"role": "user", "content": question}],
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=within_s) as stream:
        for line in stream:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                for choice in json.loads(line[6:]).get("choices", []):
                    yield choice["delta"].get("content") or ""


def approve(admin: Admin, *names: str) -> None:
    for name in names:
        node = admin.wait_for_status(name, "pending")
        assert admin.call("POST", f"/api/nodes/{node['id']}/approve").status == 200
    for name in names:
        admin.wait_for_status(name, "healthy")
