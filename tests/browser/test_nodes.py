"""The Nodes page against real workers: it shows the state of the server, live."""

import re

from playwright.sync_api import Locator, Page, expect

from harness.pages import Complaints, OpenPage
from harness.programs import call
from harness.up import Up
from harness.waiting import wait_until


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def choose(page: Page, name: str, action: str) -> None:
    page.get_by_role("button", name=f"Actions for {name}").click()
    page.get_by_role("menuitem", name=action).click()


def test_the_local_node_is_shown_healthy_with_its_hardware(open_page: OpenPage) -> None:
    page = open_page()
    expect(row(page, "home")).to_contain_text("Healthy")
    expect(row(page, "home").get_by_role("meter", name="RAM")).to_have_attribute(
        "aria-valuetext", re.compile(r"[\d.]+ / [\d.]+ [KMGT]iB used")
    )
    expect(row(page, "home").get_by_role("meter", name="Disk")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()

    page.get_by_role("link", name="home", exact=True).click()
    panel = page.get_by_role("complementary", name="Node details")
    expect(panel.get_by_role("heading", name="home")).to_be_focused()
    expect(panel).to_contain_text(re.compile(r"CPU.*\d+ threads"))


def test_a_node_joins_with_the_shown_command_is_approved_managed_and_removed_without_a_reload(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    complaints.expect("/labels")
    page = open_page()
    page.evaluate("window.neverReloaded = true")
    page.get_by_role("button", name="Add a node").click()
    dialog = page.get_by_role("dialog", name="Add a node")
    command = dialog.get_by_label("Command to run on the machine").inner_text()
    expect(dialog).to_contain_text("Waiting for a node")
    expect(dialog).to_contain_text("reachable only from the machine that runs Corral")
    expect(dialog).to_contain_text("--data-dir DIRECTORY")

    worker = corral.start_worker("second", command)
    expect(dialog.get_by_role("listitem")).to_contain_text("second")
    expect(dialog.get_by_role("listitem")).to_contain_text("Pending")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(row(page, "second")).to_contain_text("Pending")
    expect(page.get_by_role("navigation").get_by_text("1 waiting for approval")).to_be_visible()

    page.get_by_role("button", name="Approve second").click()
    expect(row(page, "second")).to_contain_text("Healthy")
    expect(page.get_by_role("button", name="Approve second")).to_have_count(0)

    choose(page, "second", "Drain…")
    page.get_by_role("alertdialog", name="Drain second?").get_by_role("button", name="Drain").click()
    expect(row(page, "second")).to_contain_text("Draining")
    choose(page, "second", "Resume")
    expect(row(page, "second")).to_contain_text("Healthy")

    choose(page, "second", "Edit labels…")
    labels = page.get_by_role("dialog", name="Labels of second")
    labels.get_by_label("Key").fill("not a key")
    labels.get_by_label("Value").fill("fast")
    labels.get_by_role("button", name="Add").click()
    expect(labels.get_by_role("alert")).to_contain_text("is not a valid label key")
    labels.get_by_label("Key").fill("tier")
    labels.get_by_role("button", name="Add").click()
    expect(labels.get_by_role("button", name="Remove label tier")).to_be_visible()
    expect(labels.get_by_label("Key")).to_have_value("")
    page.keyboard.press("Escape")
    expect(row(page, "second")).to_contain_text("tier=fast")

    choose(page, "second", "Edit labels…")
    labels.get_by_role("button", name="Remove label tier").click()
    expect(labels).to_contain_text("None yet")
    page.keyboard.press("Escape")
    expect(row(page, "second")).not_to_contain_text("tier=fast")

    worker.stop()
    expect(row(page, "second")).to_contain_text("Offline")
    choose(page, "second", "Remove…")
    confirm = page.get_by_role("alertdialog", name="Remove second?")
    expect(confirm).to_contain_text("revokes its credentials")
    confirm.get_by_role("button", name="Cancel").click()
    expect(row(page, "second")).to_be_visible()
    choose(page, "second", "Remove…")
    confirm.get_by_role("button", name="Remove").click()
    expect(row(page, "second")).to_have_count(0)
    assert page.evaluate("window.neverReloaded") is True
    page.goto(page.url.split("#")[0] + "#/access?tab=audit")
    expect(page.get_by_role("listitem").filter(has_text="node.labelled").first).to_contain_text("second")


def test_two_pages_show_the_same(open_page: OpenPage) -> None:
    one, other = open_page(), open_page()
    expect(row(other, "home")).to_contain_text("Healthy")
    choose(one, "home", "Drain…")
    one.get_by_role("alertdialog").get_by_role("button", name="Drain").click()
    expect(row(other, "home")).to_contain_text("Draining")
    choose(other, "home", "Resume")
    expect(row(one, "home")).to_contain_text("Healthy")


def test_the_address_holds_the_view_of_the_page(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_label("Search nodes").fill("no such node")
    expect(page.get_by_text("No matching nodes")).to_be_visible()
    expect(page).to_have_url(re.compile(r"#/nodes\?q=no\+such\+node$"))
    page.reload()
    expect(page.get_by_text("No matching nodes")).to_be_visible()
    page.get_by_role("button", name="Show all nodes").click()
    expect(row(page, "home")).to_be_visible()

    page.get_by_role("button", name="Offline").click()
    expect(page.get_by_text("No matching nodes")).to_be_visible()
    expect(page).to_have_url(re.compile(r"status=offline"))
    page.go_back()
    expect(row(page, "home")).to_be_visible()

    page.get_by_role("columnheader", name="Last seen").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="Last seen")).to_have_attribute("aria-sort", "ascending")
    expect(page).to_have_url(re.compile(r"sort=seen"))


def test_no_width_of_the_window_cuts_anything_off(open_page: OpenPage) -> None:
    page = open_page()
    expect(row(page, "home")).to_contain_text("Healthy")
    for panel_open in (False, True):
        for width in (1920, 1440, 1420, 1280, 1240, 1220, 1100, 1024, 900, 720, 560, 390, 340):
            page.set_viewport_size({"width": width, "height": 800})
            what = f"nothing is cut off at {width}, panel open: {panel_open}"
            wait_until(lambda: too_wide(page) == [], what=what, within_s=2)  # once the page has its new layout
        page.set_viewport_size({"width": 1440, "height": 800})
        page.get_by_role("link", name="home", exact=True).click()
        expect(page.get_by_role("complementary", name="Node details")).to_be_visible()


def too_wide(page: Page) -> list[str]:
    """What can be scrolled sideways, but for the status filters, which may."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("html, main, main *")]
            .filter(element => element.scrollWidth > element.clientWidth && element.clientWidth > 0)
            .filter(element => ["auto", "scroll", "visible"].includes(getComputedStyle(element).overflowX))
            .filter(element => getComputedStyle(element).display !== "inline" && !element.closest("[role=group]"))
            .map(element => element.outerHTML.slice(0, 120))"""
    )
    return found


def test_the_address_of_a_removed_node_leads_back(open_page: OpenPage) -> None:
    page = open_page("#/nodes/gone")
    expect(page.get_by_text("Node not found")).to_be_visible()
    page.get_by_role("button", name="Back to all nodes").click()
    expect(page).to_have_url(re.compile(r"#/nodes$"))


def test_a_node_is_found_by_its_name_too(open_page: OpenPage) -> None:
    page = open_page("#/nodes/home")
    expect(page.get_by_role("complementary", name="Node details").get_by_role("heading", name="home")).to_be_visible()


def test_everything_is_reachable_by_keyboard(open_page: OpenPage) -> None:
    page = open_page()
    expect(row(page, "home")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search nodes")).to_be_focused()
    page.keyboard.type("home")
    link = page.get_by_role("link", name="home", exact=True)
    tab_to(page, link)
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Node details")
    expect(panel.get_by_role("heading", name="home")).to_be_focused()

    tab_to(page, panel.get_by_role("button", name="Remove…"))
    page.keyboard.press("Enter")
    confirm = page.get_by_role("alertdialog")
    expect(confirm.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(confirm).to_have_count(0)
    expect(panel.get_by_role("button", name="Remove…")).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(link).to_be_focused()

    tab_to(page, page.get_by_role("button", name="Actions for home"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Drain…")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Edit labels…")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Actions for home")).to_be_focused()


def tab_to(page: Page, target: Locator) -> None:
    for _ in range(40):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"40 tabs do not reach {target}")


def test_a_second_machine_that_claims_to_be_a_node_is_shown_with_an_action(open_page: OpenPage, corral: Up) -> None:
    page = open_page()
    expect(row(page, "home")).to_contain_text("Healthy")
    token = corral.admin.call("GET", "/api/join-command").json()["token"]
    claim = {"name": "home", "address": "10.9.9.9:50051", "http_address": "10.9.9.9:50050", "token": token}
    assert call("POST", f"{corral.url}/api/node/register", key=token, body=claim).status == 409

    expect(row(page, "home")).to_contain_text("duplicate node identity")
    page.get_by_role("link", name="home", exact=True).click()
    panel = page.get_by_role("complementary", name="Node details")
    conflict = corral.admin.nodes()["home"]["conflict"]
    expect(panel.get_by_role("alert")).to_contain_text(conflict["message"], ignore_case=True)
    page.get_by_role("link", name="Overview").first.click()
    attention = page.get_by_role("listitem").filter(has_text="Another machine claims to be home")
    expect(attention).to_contain_text(conflict["message"], ignore_case=True)
    expect(attention.get_by_role("link", name="Resolve")).to_be_visible()
