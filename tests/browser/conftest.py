"""Real Chromium against a real `corral up`, with the UI built from these sources."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

ROOT = Path(__file__).parents[2]
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0

expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Program:
    """A `corral` command that runs until it is stopped."""

    def __init__(self, arguments: list[str], *, log: Path) -> None:
        self.log = log
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("CORRAL_", "LOCALAI_"))}
        environment["PYTHONPATH"] = str(ROOT / "src")
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "corral.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def keep_watch(self, for_s: float) -> None:
        """Lets some time pass, in which it must not end."""
        try:
            status = self._process.wait(for_s)
        except subprocess.TimeoutExpired:
            return
        pytest.fail(f"corral ended with status {status}:\n{self.log.read_text()[-4000:]}")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                pytest.fail(f"corral did not stop within {STOP_WITHIN_S} s:\n{self.log.read_text()[-4000:]}")


class Corral:
    """`corral up` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{free_port()}"
        self._bus_port = free_port()
        self._up: Program | None = None
        self._workers: list[Program] = []

    def start(self) -> None:
        arguments = ["up", "--data-dir", str(self.directory / "up"), "--listen", self.url.removeprefix("http://")]
        arguments += ["--bus-port", str(self._bus_port), "--name", "home", "--heartbeat-interval", "1s"]
        self._up = Program(arguments, log=self.directory / "up.log")
        deadline = time.monotonic() + START_WITHIN_S
        while not self._answers():
            self._up.keep_watch(0.1)
            if time.monotonic() > deadline:
                pytest.fail(f"no answer within {START_WITHIN_S} s:\n{self._up.log.read_text()[-4000:]}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def stop(self) -> None:
        if self._up is not None:
            self._up.stop()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.stop()

    def start_worker(self, name: str, join_command: str) -> Program:
        """Runs the command the UI shows, with what a second worker on one machine needs beside it."""
        program, *arguments = join_command.split()
        assert program == "corral"
        directory = self.directory / f"worker-{name}"
        arguments += ["--data-dir", str(directory), "--name", name, "--port", str(free_port())]
        worker = Program(arguments, log=self.directory / f"{name}.log")
        self._workers.append(worker)
        return worker

    @property
    def admin_key(self) -> str:
        (found,) = (self.directory / "up").rglob("admin.key")
        return found.read_text().strip()

    def call(self, method: str, path: str, body: object = None, *, key: str | None = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key or self.admin_key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@pytest.fixture(scope="session")
def static() -> Path:
    """The UI, built from these sources if it is not yet."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hatch_build = importlib.util.module_from_spec(spec)
    sys.modules["hatch_build"] = hatch_build
    spec.loader.exec_module(hatch_build)
    hook = hatch_build.UiBuildHook(str(ROOT), {}, None, None, "", "wheel")
    hook.initialize("standard", {})
    return Path(hook.static)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("Chromium is missing (Debian: apt-get install chromium); without it no browser test can run")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def corral(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corral]:
    corral = Corral(tmp_path_factory.mktemp("corral"))
    try:
        corral.start()
        yield corral
    finally:
        corral.close()


class Complaints:
    """What the browser complained about. A page that works has nothing in its console."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._expected: list[str] = []
        self.heard: list[str] = []

    def expect(self, text: str) -> None:
        self._expected.append(text)

    def watch(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.heard.append(f"uncaught: {error}"))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        said = f"{message.text} ({message.location.get('url', '')})"
        if not any(text in said for text in self._expected):
            self.heard.append(said)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self._origin, "data:", "blob:")):
            self.heard.append(f"asked another server: {request.url}")


@pytest.fixture
def complaints(corral: Corral) -> Iterator[Complaints]:
    complaints = Complaints(corral.url)
    yield complaints
    assert complaints.heard == []


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(chromium: Browser, corral: Corral, complaints: Complaints) -> Iterator[OpenPage]:
    """Opens the UI in a browser profile of its own, signed in unless told otherwise."""
    contexts = []

    def open_page(address: str = "", *, signed_in: bool = True, **context_options: Any) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **context_options})
        contexts.append(context)
        page = context.new_page()
        complaints.watch(page)
        if signed_in:
            # Asks for a session once before it has one: the browser notes the answer 401 as an error.
            context.request.post(f"{corral.url}/api/session", data={"api_key": corral.admin_key})
        page.goto(f"{corral.url}/{address}")
        return page

    yield open_page
    for context in contexts:
        context.close()
