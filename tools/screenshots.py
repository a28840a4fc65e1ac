"""Pictures every page of the web UI, in two widths and both themes, from a small fleet made for it.

`./dev screenshots` writes docs/screenshots anew. It needs Chromium, and PyPI and a model gallery for what it installs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

PAGES = {
    "overview": "",
    "nodes": "nodes",
    "node": "nodes/{node}",
    "add-node": "nodes?add=open",
    "backends": "backends",
    "gallery": "backends?tab=gallery",
    "policies": "backends?tab=policies",
    "models": "models?open=smollm2",
    "model-gallery": "models?tab=gallery",
    "rollouts": "rollouts",
    "rollout": "rollouts/{rollout}",
    "chat": "chat?model=smollm2",
    "finished": "activity?tab=finished",
    "needs-retry": "activity?tab=exhausted",
    "access": "access",
    "audit": "access?tab=audit",
    "system": "system",
}
DEVICES: dict[str, dict[str, object]] = {
    "desktop": {"viewport": {"width": 1440, "height": 900}},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "is_mobile": True,
        "has_touch": True,
    },
}
IN_PROGRESS = {"operations": "", "activity": "activity"}
URL = "http://127.0.0.1:18764"


class SlowArchive(BaseHTTPRequestHandler):
    """An archive that is sent slowly, so that there is progress to picture."""

    total_bytes, bytes_per_s = 640 << 20, 4 << 20

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(self.total_bytes))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        with suppress(OSError):  # the download was cancelled
            for _ in range(self.total_bytes // self.bytes_per_s * 10):
                self.wfile.write(bytes(self.bytes_per_s // 10))
                time.sleep(0.1)

    def log_message(self, format: str, *args: object) -> None: ...


class Fleet:
    """`corral up` and three more workers on this machine: one drained, one waiting for approval."""

    def __init__(self, directory: Path, opened: ExitStack) -> None:
        self.directory, self._opened = directory, opened
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CORRAL_", "LOCALAI_", "XDG_"))}
        own = {"CORRAL_BACKEND_GALLERIES": "", "CORRAL_MODEL_GALLERIES": "", "CORRAL_TRUSTED_HOSTS": "127.0.0.1"}
        self._environment = {**kept, **own, "CORRAL_BACKEND_MAX_ATTEMPTS": "1"}
        up = ("--listen", URL.removeprefix("http://"), "--bus-port", "18765", "--name", "studio")
        self._start("up", "--data-dir", str(directory / "up"), *up)
        wait(lambda: "Ready in" in (directory / "up.log").read_text(), "corral up is ready")

    @property
    def key(self) -> str:
        return (self.directory / "up" / "keys" / "admin.key").read_text().strip()

    def _start(self, command: str, *arguments: str, name: str = "") -> None:
        with (self.directory / f"{name or command}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "corral", command, *arguments], stdout=log, stderr=log, env=self._environment
            )
        self._opened.callback(stop, process)

    def corral(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "corral", *arguments],
            env={**self._environment, "CORRAL_URL": URL, "CORRAL_API_KEY": self.key},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if check and done.returncode != 0:
            raise SystemExit(f"corral {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def join(self, name: str, port: int) -> None:
        join = self.corral("join-command").split("corral worker ")[1].split()
        place = ("--data-dir", str(self.directory / name), "--name", name, "--port", str(port))
        self._start(
            "worker", *join[:4], *place, "--no-keep-backends", "--backend-ports", f"{port + 1}-{port + 40}", name=name
        )
        wait(lambda: name in self.corral("nodes", "list"), f"{name} has joined")

    def prepare(self) -> None:
        for number, name in enumerate(("barn", "attic", "newcomer")):
            self.join(name, 18800 + 50 * number)
        for name, label in (("barn", "tier=fast"), ("attic", "tier=spare")):
            self.corral("nodes", "approve", name)
            self.corral("nodes", "label", name, label)
        self.corral("backends", "install", "llama-cpp")
        lost = ("--uri", "pypi://corral-no-such-backend==1", "--name", "lost", "--node", "barn")
        self.corral("backends", "install", *lost, "--timeout", "60s", check=False)
        self.corral("ops", "dismiss", "lost", check=False)
        self.corral("models", "install", "smollm2")
        self.corral("models", "scale", "smollm2", "2")
        self.corral("models", "load", "smollm2")
        for question in ("What is a corral?", "Name three breeds of horses.", "Why do horses sleep standing?"):
            self.corral("chat", "smollm2", "--max-tokens", "40", question)
        limits = ("--rpm", "60", "--daily-tokens", "200,000", "--priority", "low", "--expires", "90d")
        self.corral("keys", "create", "--name", "editor-plugin", "--models", "smollm2", *limits)
        self.corral("nodes", "drain", "attic")
        self.roll_out()

    def roll_out(self) -> None:
        """A rollout whose canary is proven, and that waits for its promotion."""
        source = self.directory / "spell-checker"
        source.mkdir()
        manifest = {
            "protocol": "openai",
            "start": ["{dir}/serve", "--port={port}"],
            "trial": {"command": ["/bin/true"]},
        }
        (source / "corral.json").write_text(json.dumps(manifest))
        nodes = ("--node", "studio", "--node", "barn")
        self.corral("backends", "install", "--uri", str(source), "--name", "spell-checker", *nodes)
        (source / "words.txt").write_text("horse\nstable\n")
        how = ("--strategy", "canary", "--soak", "1", "--no-wait")
        self.corral("backends", "upgrade", "spell-checker", *how)
        wait(lambda: "awaiting promotion" in self.corral("rollouts", "list"), "the canary is proven")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def wait(condition: Callable[[], bool], what: str, within_s: float = 90.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.3)


def open_pages(browser: Browser) -> Iterator[tuple[str, Page]]:
    """One page for each device and theme, not signed in."""
    for device, options in DEVICES.items():
        for theme in ("light", "dark"):
            context = browser.new_context(color_scheme=theme, reduced_motion="reduce", **options)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{URL}/#/")
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            yield f"{device}-{theme}", page
            context.close()


def sign_in(page: Page, fleet: Fleet) -> None:
    page.context.request.post(f"{URL}/api/session", data={"api_key": fleet.key})
    page.reload()


def picture(browser: Browser, fleet: Fleet, out: Path) -> None:
    node = re.search(r'"id": "([^"]+)"', fleet.corral("nodes", "show", "studio", "--json"))
    rollout = re.search(r'"id": "([^"]+)"', fleet.corral("rollouts", "list", "--json"))
    assert node is not None
    assert rollout is not None
    for look, page in open_pages(browser):
        shoot(page, out / f"sign-in-{look}.png")
        sign_in(page, fleet)
        for name, address in PAGES.items():
            page.goto(f"{URL}/#/{address.format(node=node[1], rollout=rollout[1])}")
            settle(page)
            if name == "chat":
                talk(page)
            shoot(page, out / f"{name}-{look}.png")


@contextmanager
def slow_install(fleet: Fleet) -> Iterator[None]:
    """An operation on three nodes, one of them drained; cancelled at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowArchive)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_port}/night-build.tar"
    fleet.corral("backends", "install", "--uri", uri, "--name", "night-build", "--no-wait")
    try:
        yield
    finally:
        fleet.corral("ops", "cancel", "night-build", check=False)
        server.shutdown()


def picture_operation(browser: Browser, fleet: Fleet, out: Path) -> None:
    with slow_install(fleet):
        for look, page in open_pages(browser):
            sign_in(page, fleet)
            for name, address in IN_PROGRESS.items():
                page.goto(f"{URL}/#/{address}")
                settle(page)
                bar = page.get_by_role("region", name="Operations")
                fold = bar.get_by_role("button", name=re.compile("3 nodes"))
                if (fold.get_attribute("aria-expanded") == "true") != (name == "operations"):
                    fold.click()
                expect(page.get_by_text(re.compile(r"MiB/s")).first).to_be_visible(timeout=60_000)
                shoot(page, out / f"{name}-{look}.png")


def settle(page: Page) -> None:
    expect(page.get_by_role("heading").first).to_be_visible()
    expect(page.get_by_text(re.compile("^Loading .*…$"))).to_have_count(0)
    page.wait_for_load_state("load")
    page.wait_for_timeout(400)


def talk(page: Page) -> None:
    page.get_by_label("Message to smollm2").fill("Write one sentence about horses.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[data-answer]")).to_have_attribute("data-answer", "ended", timeout=240_000)


def shoot(page: Page, path: Path) -> None:
    page.screenshot(path=path)
    print(path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path(__file__).parents[1] / "docs" / "screenshots")
    out = parser.parse_args().out
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("Chromium is missing; on Debian: apt-get install chromium")
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened, sync_playwright() as playwright:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="corral-pictures-")))
        fleet = Fleet(directory, opened)
        fleet.prepare()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox"])
        picture(browser, fleet, out)
        picture_operation(browser, fleet, out)
        browser.close()


if __name__ == "__main__":
    main()
