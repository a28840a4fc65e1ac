"""`corral` commands as real processes, and an admin's view of what they do."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness.waiting import PATIENCE, wait_until
from harness.zygote import ForkedProcess, find_zygote

FORKED = ("frontend", "worker")
"""Roles that are forked from a preloaded parent. `up` is found by its command line and imports little."""


one_thread_each = False
"""Engines compute with one thread. Those that compute with two spin while one waits for the other, which on a busy
machine costs a hundred times the work itself. Set by tests/conftest.py: benchmarks measure engines as users have them.
"""
ONE_THREAD = {"OMP_THREAD_LIMIT": "1", "CORRAL_BACKEND_ENVIRONMENT": "OMP_THREAD_LIMIT"}


def clean_environment(**more: str) -> dict[str, str]:
    """Without galleries beyond Corral's own, unless a test names some: no test asks the world."""
    own_only = {"CORRAL_BACKEND_GALLERIES": "", "CORRAL_MODEL_GALLERIES": ""}
    if any(key.endswith("GALLERIES") for key in more):
        own_only = {}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CORRAL_", "LOCALAI_", "XDG_"))}
    return {**kept, **(ONE_THREAD if one_thread_each else {}), **own_only, **more}


class Program:
    """Ended at the latest when the run ends: a test that fails half-way leaves nothing running."""

    started: ClassVar["list[Program]"] = []

    def __init__(
        self, *arguments: str, log: Path, environment: dict[str, str] | None = None, inside: Sequence[str] = ()
    ) -> None:
        """`inside`: words to put before the command, for example to run it in a network namespace. With `env` it is a
        process of its own, not forked from a preloaded one: where its memory is measured."""
        self.log = log
        Program.started.append(self)
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = environment or clean_environment()
        self.process: subprocess.Popen[bytes] | ForkedProcess
        with log.open("ab") as output:
            zygote = find_zygote(environment) if arguments[0] in FORKED and not inside else None
            if zygote is not None:
                self.process = zygote.start(
                    arguments, environment=environment, output=output.fileno(), errors=output.fileno()
                )
                return
            self.process = subprocess.Popen(
                [*inside, sys.executable, "-m", "corral", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for_output(self, text: str, *, within_s: float = 30.0) -> None:
        wait_until(lambda: text in self.output() or None, what=f"{text!r} in\n{self.output()}", within_s=within_s)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, within_s: float = 30.0) -> int:
        return self.process.wait(within_s * PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def stop(self, within_s: float = 30.0) -> int:
        if (code := self.process.poll()) is not None:
            return code
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
            raise


def run_cli(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = environment or clean_environment()
    zygote = find_zygote(environment)
    if zygote is None:
        return subprocess.run(
            [sys.executable, "-m", "corral", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=60,
        )
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = zygote.start(arguments, environment=environment, output=output.fileno(), errors=errors.fileno())
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read().decode(), errors.read().decode())


class Answer:
    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        error = self.json()["error"]
        return error if isinstance(error, str) else error["message"]


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def call(
    method: str,
    url: str,
    *,
    key: str | None = None,
    body: Any = None,
    raw: bytes | None = None,
    headers: dict[str, str] | None = None,
    within_s: float = 60.0,
) -> Answer:
    sent = {**(headers or {})}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
    if data is not None:
        sent.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, data=data, method=method, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=within_s) as response:
            return Answer(response.status, response.read(), _lower(response.headers))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read(), _lower(error.headers))


class Admin:
    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key

    def call(self, method: str, path: str, **options: Any) -> Answer:
        return call(method, self.url + path, key=self.key, **options)

    def nodes(self) -> dict[str, dict[str, Any]]:
        answer = self.call("GET", "/api/nodes")
        assert answer.status == 200, answer.body
        return {node["name"]: node for node in answer.json()}

    def refresh_galleries(self) -> None:
        answer = self.call("POST", "/api/galleries/refresh")
        assert answer.status == 200, answer.body

    def backends_on_offer(self) -> set[str]:
        answer = self.call("GET", "/api/backends/available?everything=true")
        assert answer.status == 200, answer.body
        return {backend["name"] for backend in answer.json()["backends"]}

    def wait_for_status(self, name: str, status: str, *, within_s: float = 30.0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            node = self.nodes().get(name)
            return node if node is not None and node["status"] == status else None

        return wait_until(look, what=f"node {name} is {status}", within_s=within_s)
