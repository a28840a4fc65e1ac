"""A fleet of real processes: frontends on one store and one bus, workers, a registry and a gallery."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from corral.bus.client import BusOptions, connect_bus
from corral.bus.subjects import frontend_inbox
from corral.worker.processes.tree import find_marked
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.ports import free_port, take_ports
from harness.programs import Admin, Answer, Program, call, clean_environment
from harness.waiting import wait_until

ADMIN_KEY = "corral-test-admin-key"
TOKEN = "test-registration-token"


class OperationFleet:
    """Short intervals, so that minutes of a real fleet pass in seconds."""

    def __init__(self, directory: Path, nats: Nats, store: str | None, registry: OciRegistry) -> None:
        self.directory, self.nats, self.registry = directory, nats, registry
        self._store = store
        self.frontends: dict[str, Program] = {}
        self.workers: dict[str, Program] = {}
        self._frontend_ports: dict[str, int] = {}
        self._worker_ports: dict[str, int] = {}
        self._gallery: dict[str, dict[str, Any]] = {}
        self.gallery_path = directory / "gallery" / "index.yaml"
        self.write_gallery()

    # Galleries

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

    # Processes

    def start_frontend(self, name: str = "a", *flags: str, **environment: str) -> Admin:
        port = self._frontend_ports.setdefault(name, free_port())
        ours = {"CORRAL_ADMIN_KEY": ADMIN_KEY, "CORRAL_REGISTRATION_TOKEN": TOKEN}
        # Tests have workers start processes that no frontend knows of; on a slow machine they need them for long.
        ours["CORRAL_ORPHAN_GRACE"] = "1h"
        if self._store:
            ours["CORRAL_STORE"] = self._store
        variables = clean_environment(**{**self.nats.secrets(), **ours, **environment})
        self.frontends[name] = Program(
            "frontend", "--data-dir", str(self.directory / f"frontend-{name}"), "--listen", f"127.0.0.1:{port}",
            "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4", "--health-interval", "0.5",
            "--backend-galleries", f"ours=file://{self.gallery_path}", "--trusted-hosts", "127.0.0.1",
            "--plain-http-hosts", "127.0.0.1", "--gallery-refresh", "1", *flags,
            log=self.directory / f"frontend-{name}.log", environment=variables,
        )  # fmt: skip
        admin = self.admin(name)
        wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what=f"{name} is ready", within_s=30)
        return admin

    def admin(self, name: str = "a") -> Admin:
        return Admin(f"http://127.0.0.1:{self._frontend_ports[name]}", ADMIN_KEY)

    def start_worker(self, name: str, *flags: str, frontend: str = "a", **environment: str) -> Program:
        port = self._worker_ports[name] = self._worker_ports.get(name) or take_ports(50)
        program = Program(
            "worker", "--join", self.admin(frontend).url, "--token", TOKEN, "--name", name,
            "--data-dir", str(self.directory / f"worker-{name}"), "--port", str(port),
            "--backend-ports", f"{port + 1}-{port + 49}", "--trusted-hosts", "127.0.0.1",
            "--plain-http-hosts", "127.0.0.1", "--no-keep-backends", *flags,
            log=self.directory / f"worker-{name}.log", environment=clean_environment(**environment),
        )  # fmt: skip
        self.workers[name] = program
        return program

    def wipe(self, name: str) -> None:
        """The disk with the backends is lost; the machine's identity is kept."""
        root = self.worker_dir(name)
        for part in ("backends", "layers", "blobs", "applied_generations.json"):
            path = root / part
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def worker_dir(self, name: str) -> Path:
        return self.directory / f"worker-{name}"

    def stop(self) -> None:
        for program in (*self.workers.values(), *self.frontends.values()):
            if program.process.poll() is None:
                program.kill()
        for root in self.directory.glob("worker-*/run/processes"):
            for marker in root.iterdir():
                for pid in find_marked(marker.name):
                    if psutil.pid_exists(pid):
                        psutil.Process(pid).kill()

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

    def wait_for_digests(self, backend: str, wanted: dict[str, str], *, within_s: float = 30.0) -> None:
        seen: dict[str, str] = {}

        def look() -> bool:
            seen.clear()
            seen.update(self.digests(backend))
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


def approve(admin: Admin, *names: str) -> None:
    for name in names:
        node = admin.wait_for_status(name, "pending")
        assert admin.call("POST", f"/api/nodes/{node['id']}/approve").status == 200
    for name in names:
        admin.wait_for_status(name, "healthy")
