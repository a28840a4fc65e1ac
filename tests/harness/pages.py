"""What every page of the web UI must hold: it fits the screen, its console is empty, and axe has nothing to complain
about."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from playwright.sync_api import ConsoleMessage, Page, Request, expect

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}


class OpenPage(Protocol):
    """Opens the UI in a browser profile of its own (a fixture of tests/browser)."""

    def __call__(
        self, address: str = "#/nodes", *, signed_in: bool = True, at_first: str = "", **context_options: Any
    ) -> Page: ...


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


def check_width(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def check_dialog(page: Page) -> None:
    """Nothing of the dialog that is open is cut off at its sides, and each of its buttons can be pressed."""
    dialog = page.locator("[role=dialog], [role=alertdialog]").last
    expect(dialog).to_be_visible()
    page.wait_for_function("document.getAnimations().every(animation => !(animation instanceof CSSTransition))")
    name = dialog.get_attribute("aria-label") or dialog.get_by_role("heading").first.inner_text()
    wide, room = dialog.evaluate("element => [element.scrollWidth, element.clientWidth]")
    assert wide <= room, f"{name}: {wide} pixels of it in {room}"
    width, height = page.evaluate("[window.innerWidth, window.innerHeight]")
    for button in dialog.get_by_role("button").all():
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box is not None
        inside = (
            box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] >= 0 and box["y"] + box["height"] <= height
        )
        assert inside, f"{name}: {button.inner_text() or button.get_attribute('aria-label')} is at {box}"
        if button.is_enabled():
            button.click(trial=True, timeout=5_000)


COLOURS = ("color-contrast", "link-in-text-block")
"""All that another theme can break of a page that was found in order."""


def check_with_axe(
    page: Page, *, exclude: str | None = None, within: str | None = None, rules: Sequence[str] = ()
) -> None:
    """`rules`: only these; all when none are named."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE.read_text())
    # Until then a dialog is still half transparent, and its colours are not yet its own.
    page.wait_for_function("document.getAnimations().every(animation => !(animation instanceof CSSTransition))")
    context = {"include": [within or "html"], **({"exclude": [exclude]} if exclude else {})}
    options = {"runOnly": list(rules)} if rules else {}
    result = page.evaluate("([context, options]) => axe.run(context, options)", [context, options])
    found = [
        f"{violation['id']}: {violation['help']}: {[node['html'] for node in violation['nodes']]}"
        for violation in result["violations"]
    ]
    assert not found, found
