"""Operations on three real workers, watched in the page: progress, failures, retries, upgrades, rollback."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.nats import Nats
from harness.oci_registry import OciRegistry, Trickle
from harness.pages import OpenPage
from harness.programs import Admin
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

NODES = ("n1", "n2", "n3")
FLAGS = ("--backend-install-timeout", "2", "--backend-max-attempts", "1", "--backend-retry-base", "0.2",
         "--backend-retry-max", "0.4")  # fmt: skip
SLOW_BYTES = 1 << 20
RATE = 200_000
"""Five seconds: longer than the time-out."""


class FleetCorral:
    def __init__(self, fleet: Cluster, line: Trickle) -> None:
        self.fleet, self.line = fleet, line
        self.url = fleet.admin().url

    @property
    def admin(self) -> Admin:
        return self.fleet.admin()

    def offer(self, name: str, version: str, *, extra: dict[str, bytes] | None = None) -> None:
        """Known to the frontend when this returns: a page opened afterwards shows it."""
        files = {**localai_files(version), **(extra or {})}
        description = f"Says what it hears ({name})."
        self.fleet.offer_image(name, files, uri=f"127.0.0.1:{self.line.port}/{name}:latest", description=description)
        self.admin.refresh_galleries()
        assert name in self.admin.backends_on_offer()


@pytest.fixture(scope="module")
def corral(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetCorral]:
    directory = tmp_path_factory.mktemp("fleet")
    registry = OciRegistry(directory / "registry")
    line = Trickle(registry.port, bytes_per_s=RATE)
    server = Nats(directory / "nats")
    fleet = Cluster(directory, server, f"sqlite://{directory / 'shared.db'}", registry=registry)
    try:
        # The frontend looks up versions at the registry itself, so that only workers depend on the line.
        fleet.start_frontend("a", *FLAGS, "--registry-mirrors", f"127.0.0.1:{line.port}={registry.host}")
        for name in NODES:
            fleet.start_worker(name)
        for name in NODES:
            fleet.admin().wait_for_status(name, "pending")
        yield FleetCorral(fleet, line)
    finally:
        fleet.stop()
        line.stop()
        server.stop()
        registry.stop()


def operation(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name="Operations").get_by_role("article", name=title)


def node_rows(shown: Locator) -> Locator:
    return shown.get_by_role("listitem")


def install(page: Page, name: str) -> Locator:
    """From the gallery, on all nodes; its operation, opened."""
    page.goto(page.url.split("#")[0] + "#/backends?tab=gallery")
    expect(page.get_by_role("button", name=f"Install {name}", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"Install {name}", exact=True).click()
    page.get_by_role("dialog", name=f"Install {name}").get_by_role("button", name="Install", exact=True).click()
    shown = operation(page, f"Install {name}")
    shown.get_by_role("button", name="3 nodes").click()
    return shown


def test_nodes_are_approved_on_the_overview(open_page: OpenPage) -> None:
    page = open_page("#/")
    for name in NODES:
        page.get_by_role("button", name=f"Approve {name}").click()
        expect(page.get_by_role("button", name=f"Approve {name}")).to_have_count(0)
    expect(page.get_by_label("Fleet status")).to_contain_text("3 healthy")
    expect(page.get_by_label("Fleet status")).to_contain_text("0 pending")


def test_an_install_is_shown_on_every_node_through_unconfirmed_to_done(
    open_page: OpenPage, corral: FleetCorral
) -> None:
    corral.offer("slow", "1", extra={"weights": os.urandom(SLOW_BYTES)})
    page = open_page("#/backends")
    shown = install(page, "slow")
    rows = node_rows(shown)
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text=re.compile(r"[\d.]+ MiB · \d+ %")).first).to_be_visible()
    expect(rows.filter(has_text="Downloading").first).to_contain_text(re.compile(r"[\d.]+ [KM]iB/s"))

    unconfirmed = rows.get_by_role("button", name=re.compile("^Unconfirmed: ")).first
    expect(unconfirmed).to_be_visible()
    unconfirmed.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("the install is not started twice")

    expect(rows.filter(has_text="Done")).to_have_count(3)
    expect(shown).to_contain_text("Completed")
    expect(shown).to_contain_text("3 of 3 nodes done")
    page.get_by_role("button", name="Installed", exact=True).click()
    table = page.get_by_role("table", name="Backends by node")
    for name in NODES:
        expect(table.get_by_role("row").filter(has_text=name)).not_to_contain_text("not installed")


def test_an_open_gallery_shows_new_backends(open_page: OpenPage, corral: FleetCorral) -> None:
    page = open_page("#/backends?tab=gallery")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Install slow", exact=True)).to_be_visible()
    corral.offer("large", "1", extra={"weights": os.urandom(4 * SLOW_BYTES)})
    expect(page.get_by_role("button", name="Install large", exact=True)).to_be_visible()


def test_a_cancelled_install_stops_and_is_shown_as_cancelled(open_page: OpenPage, corral: FleetCorral) -> None:
    page = open_page("#/backends")
    shown = install(page, "large")
    expect(node_rows(shown).filter(has_text=re.compile(r"\d+ %")).first).to_be_visible()
    shown.get_by_role("button", name="Cancel Install large").click()
    asked = page.get_by_role("alertdialog")
    expect(asked).to_contain_text("Completed nodes go back to what was desired before")
    asked.get_by_role("button", name="Cancel operation").click()
    expect(node_rows(shown).filter(has_text="Cancelled")).to_have_count(3)
    page.goto(page.url.split("#")[0] + "#/activity?tab=finished")
    expect(page.get_by_role("button", name=re.compile("^Install large Cancelled by key "))).to_be_visible()


def test_failed_nodes_show_the_error_and_are_retried_one_by_one_or_together(
    open_page: OpenPage, corral: FleetCorral
) -> None:
    corral.offer("flaky", "1")
    corral.line.refuse()
    page = open_page("#/backends")
    shown = install(page, "flaky")
    failed = node_rows(shown).filter(has_text="Failed")
    expect(failed).to_have_count(3, timeout=60_000)
    expect(failed.first).to_contain_text(re.compile("127.0.0.1|connect", re.IGNORECASE))
    expect(shown).to_contain_text("3 failed")
    page.goto(page.url.split("#")[0] + "#/")
    expect(page.get_by_text("Install of flaky on n2 failed: retries exhausted")).to_be_visible()
    expect(page.get_by_text("Nothing needs attention")).to_have_count(0)
    page.goto(page.url.split("#")[0] + "#/activity?tab=exhausted")
    expect(page.get_by_role("button", name="Retry flaky on n2")).to_be_visible()

    corral.line.refusing = False
    page.get_by_role("button", name="Retry flaky on n2").click()
    if shown.get_by_role("button", name="3 nodes").get_attribute("aria-expanded") != "true":
        shown.get_by_role("button", name="3 nodes").click()
    expect(node_rows(shown).filter(has_text="n2")).to_contain_text("Done")
    expect(node_rows(shown).filter(has_text="n1")).to_contain_text("Failed")
    shown.get_by_role("button", name="Retry on n1").click()
    expect(node_rows(shown).filter(has_text="n1")).to_contain_text("Done")
    shown.get_by_role("button", name=re.compile("^Retry Install flaky on all")).click()
    expect(shown).to_contain_text("3 of 3 nodes done")
    expect(shown).to_contain_text("Completed")
    page.goto(page.url.split("#")[0] + "#/activity?tab=exhausted")
    expect(page.get_by_role("heading", name="Nothing needs a manual retry")).to_be_visible()


def test_upgrade_all_empties_the_list_and_a_node_is_rolled_back(open_page: OpenPage, corral: FleetCorral) -> None:
    corral.offer("flaky", "2")
    page = open_page("#/backends")
    page.get_by_role("button", name="Check for upgrades").click()
    notice = page.get_by_role("region", name="Upgrades", exact=True)
    expect(notice).to_contain_text("flaky")
    expect(notice).to_contain_text("on 3 nodes")
    notice.get_by_role("button", name="Upgrade all").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Upgrade all").click()
    expect(operation(page, "Upgrade flaky")).to_contain_text("Completed")
    expect(notice).to_have_count(0)

    page.get_by_role("button", name="flaky on n1").click()
    page.get_by_role("menuitem", name=re.compile("^Roll back to ")).first.click()
    page.get_by_role("dialog", name="Roll back flaky").get_by_role("button", name="Roll back").click()
    expect(operation(page, "Roll back flaky")).to_contain_text("Completed")
    expect(notice).to_contain_text("on 1 node; n1: pinned to ")
    expect(notice.get_by_role("button", name="Upgrade all")).to_have_count(0)
    row = page.get_by_role("table", name="Backends by node").get_by_role("row").filter(has_text="n1")
    expect(row).to_contain_text("Pinned")

    page.get_by_role("button", name="flaky on n1").click()
    page.get_by_role("menuitem", name="Follow the galleries here").click()
    dialog = page.get_by_role("dialog", name="Follow the galleries with flaky")
    dialog.get_by_role("button", name="Follow", exact=True).click()
    expect(row).not_to_contain_text("Pinned")
    expect(notice.get_by_role("button", name="Upgrade all")).to_have_count(1)
    page.get_by_role("button", name="Actions for flaky").click()
    page.get_by_role("menuitem", name="Pin version").click()
    dialog = page.get_by_role("dialog", name="Pin flaky")
    dialog.get_by_role("button", name="Pin", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Enter a version")
    dialog.get_by_label("Version").fill(corral.fleet.digests("flaky")["n2"][:19])
    dialog.get_by_label("Reason").fill("tested")
    dialog.get_by_role("button", name="Pin", exact=True).click()
    expect(operation(page, "Pin flaky")).to_contain_text("Completed")
    expect(page.get_by_role("table", name="Backends by node").get_by_text("Pinned")).to_have_count(3)


def test_a_backend_that_is_not_in_a_gallery_is_installed_from_a_uri(open_page: OpenPage, corral: FleetCorral) -> None:
    corral.fleet.registry.push("homemade", localai_files("1"))
    page = open_page("#/backends?tab=gallery")
    page.get_by_role("button", name="Install from a URI").click()
    dialog = page.get_by_role("dialog", name="Install from a URI")
    dialog.get_by_label("URI").fill(f"oci://{corral.fleet.registry.host}/homemade:latest")
    dialog.get_by_label("Name").fill("homemade")
    dialog.get_by_label("Selected nodes").check()
    dialog.get_by_role("button", name="Install", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Select at least one node")
    dialog.get_by_label("n2").check()
    dialog.get_by_role("button", name="Install", exact=True).click()
    expect(operation(page, "Install homemade")).to_contain_text("1 of 1 node done")
    page.get_by_role("button", name="Installed", exact=True).click()
    expect(page.get_by_role("button", name="homemade on n2")).to_be_visible()


def read_table(page: Page) -> str:
    return page.get_by_role("table", name="Backends by node").inner_text()


def test_two_frontends_show_the_same(chromium: Browser, corral: FleetCorral, open_page: OpenPage) -> None:
    other = corral.fleet.start_frontend("b", *FLAGS)
    page = open_page("#/backends")
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    context.request.post(f"{other.url}/api/session", data={"api_key": other.key})
    second = context.new_page()
    second.goto(f"{other.url}/#/backends")
    names = ("flaky", "slow")
    for shown in (page, second):
        for name in names:
            expect(shown.get_by_role("columnheader").filter(has_text=name)).to_be_visible()
    # Upgrades and drift are marked when their lists are loaded, perhaps a little later in one page.
    wait_until(lambda: len({read_table(shown) for shown in (page, second)}) == 1, what="both tables are the same")

    # An operation started in one page is shown in the other, live.
    page.get_by_role("button", name="Actions for slow").click()
    page.get_by_role("menuitem", name="Delete…").click()
    dialog = page.get_by_role("dialog", name="Delete slow")
    expect(dialog.get_by_role("status")).to_contain_text("Nodes that join later do not get it.")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(operation(second, "Delete slow")).to_contain_text("Completed")
    expect(second.get_by_role("columnheader").filter(has_text="slow")).to_have_count(0)
    context.close()


def test_a_policy_is_shown_changed_and_ended(open_page: OpenPage, corral: FleetCorral) -> None:
    page = open_page("#/backends?tab=policies")
    row = page.get_by_role("listitem").filter(has=page.get_by_text("flaky", exact=True))
    expect(row).to_contain_text("Present")
    expect(row).not_to_contain_text("except")
    corral.fleet.begin("/api/backends/delete/flaky", {"nodes": ["n2"]})
    expect(row).to_contain_text(re.compile(r"except n2 \(deleted (just now|\d+ s ago)\)"))
    row.get_by_label("On drift").select_option("report")
    expect(row.get_by_label("On drift")).to_have_value("report")
    row.get_by_role("button", name=re.compile("^End the policy for flaky")).click()
    page.get_by_role("alertdialog").get_by_role("button", name="End policy").click()
    expect(row).to_have_count(0)
