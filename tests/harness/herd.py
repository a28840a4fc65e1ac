"""A whole herd of real processes: frontends on one store and one bus, workers with real engines."""

import asyncio
import json
import sqlite3
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil

from corral.core.replicas.load_jobs import RETRY_BASE_S
from corral.worker.processes.tree import find_marked
from harness.engine import give_engine
from harness.fleet_worker import end_marked
from harness.nats import Nats
from harness.ports import free_port, take_ports
from harness.programs import Admin, Answer, Program, call, clean_environment
from harness.proxy import ProxyThread
from harness.waiting import wait_until

ADMIN_KEY = "corral-test-admin-key"
TOKEN = "test-registration-token"


SHORT_LIMITS = (
    "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4", "--health-interval", "0.5",
)  # fmt: skip


class Herd:
    """Short intervals, so that minutes of a real fleet pass in seconds."""

    def __init__(
        self,
        directory: Path,
        nats: Nats,
        store: str | None = None,
        *,
        engine: Path | None = None,
        limits: Sequence[str] = SHORT_LIMITS,
    ) -> None:
        """`engine`: an installed llama.cpp for workers to begin with. `limits`: flags of its frontends; none for those
        that users have who set nothing."""
        self._limits = limits
        self.directory, self.nats, self._store = directory, nats, store or f"sqlite://{directory}/corral.db"
        self._engine = engine
        self.gates = directory / "gates"  # for files that backends wait for or write, whichever user they run as
        self.gates.mkdir(parents=True, exist_ok=True)
        self.gates.chmod(0o777)
        self._reached = self._store
        self.frontends: dict[str, Program] = {}
        self.workers: dict[str, Program] = {}
        self._ports: dict[str, int] = {}

    def start_frontend(self, name: str = "a", *flags: str, **environment: str) -> Admin:
        port = self._ports.setdefault(name, free_port())
        self.frontends[name] = Program(
            "frontend", "--data-dir", str(self.directory / name), "--listen", f"127.0.0.1:{port}", "--auto-approve",
            *self._limits, *flags, log=self.directory / f"{name}.log",
            environment=clean_environment(
                **self.nats.secrets(), CORRAL_STORE=self._reached, CORRAL_ADMIN_KEY=ADMIN_KEY,
                CORRAL_REGISTRATION_TOKEN=TOKEN, **environment,
            ),
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
        wait: bool = True,
        bare: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """A `bare` one has to install what it runs."""
        if self._engine is not None and not bare and not (self.directory / name).exists():
            give_engine(self._engine, self.directory / name)
        key = f"worker {name}"
        port = self._ports[key] = self._ports.get(key) or take_ports(100)
        self.workers[name] = Program(
            "worker", "--join", self.admin(frontend).url, "--token", TOKEN, "--name", name,
            "--data-dir", str(self.directory / name), "--port", str(port),
            "--backend-ports", f"{port + 1}-{port + 99}", "--trusted-hosts", "127.0.0.1",
            "--plain-http-hosts", "127.0.0.1", "--backend-paths", f"{self.gates}:rw", *flags,
            log=self.directory / f"{name}.log",
            environment=clean_environment(**environment or {}),
        )  # fmt: skip
        if wait:
            self.admin(frontend).wait_for_status(name, "healthy")
        return self.workers[name]

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

    def stop(self) -> None:
        for program in (*self.workers.values(), *self.frontends.values()):
            if program.process.poll() is None:
                program.kill()
        for name in self.workers:
            end_marked(self.directory / name)


class Haste:
    """Made when a load was said to have failed. It is tried again by itself, after half of its first wait at least."""

    def __init__(self) -> None:
        # Whoever waits for a load looks each half second.
        self._due_s = time.monotonic() + RETRY_BASE_S / 2 - 1.0

    def check(self, admin: Admin, model: str) -> None:
        """It was not tried again before that."""
        [load] = admin.call("GET", f"/api/why/models/{model}").json()["loads"]
        assert load["attempts"] == 1 or time.monotonic() > self._due_s, load


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
