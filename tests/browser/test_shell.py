"""Every page: both themes, small screens, accessibility, and a frontend that restarts."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from harness.pages import COLOURS, PHONE, Complaints, OpenPage, check_width, check_with_axe
from harness.up import Up


def test_the_page_recovers_automatically_when_the_frontend_restarts(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    page = open_page()
    complaints.expect("ERR_CONNECTION_REFUSED")
    complaints.expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
    complaints.expect("ERR_CONNECTION_RESET")
    complaints.expect("503")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("window.neverReloaded = true")

    corral.stop()
    expect(page.get_by_role("alert")).to_contain_text("Not connected since")
    expect(page.get_by_role("link", name="home", exact=True)).to_be_visible()

    corral.start()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_text("Not connected since")).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="home")).to_contain_text("Healthy")
    assert page.evaluate("window.neverReloaded") is True


def test_a_page_opened_while_the_frontend_is_down_opens_when_it_is_back(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    """Its code has not been fetched yet: the test keeps it away."""
    for text in ("ERR_CONNECTION_", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_FAILED", "503", "Unable to preload"):
        complaints.expect(text)
    page = open_page()
    page.route(re.compile(r"/assets/(ActivityPage|BackendsPage)"), lambda route: route.abort())
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    corral.stop()
    expect(page.get_by_role("alert")).to_contain_text("Not connected since")
    page.get_by_role("link", name="Activity").first.click()
    expect(page.get_by_text("Corral is not responding")).to_be_visible()
    page.unroute_all()
    corral.start()
    expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    page.get_by_role("link", name="Backends").first.click()
    expect(page.get_by_role("heading", name="Backends", exact=True)).to_be_visible()


def test_a_hidden_page_closes_its_connection_and_is_live_again_when_visible(open_page: OpenPage) -> None:
    page = open_page("#/system")
    state = page.locator("[data-connection]")
    page.clock.install()
    page.reload()
    expect(state).to_have_attribute("data-connection", "live")
    look_at(page, False)
    page.clock.fast_forward("00:31")
    expect(state).to_have_attribute("data-connection", "connecting")
    look_at(page, True)
    expect(state).to_have_attribute("data-connection", "live")


def look_at(page: Page, looked_at: bool) -> None:
    page.evaluate(
        """state => {
            Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        "visible" if looked_at else "hidden",
    )


def test_on_a_phone_everything_fits_the_width_and_navigation_is_at_the_bottom(open_page: OpenPage) -> None:
    page = open_page(**PHONE)
    expect(page.get_by_role("link", name="home", exact=True)).to_be_visible()
    check_width(page)
    navigation = page.get_by_role("navigation", name="Main").bounding_box()
    assert navigation is not None
    assert navigation["y"] > 844 - 100

    page.get_by_role("link", name="home", exact=True).tap()
    panel = page.get_by_role("complementary", name="Node details")
    expect(panel.get_by_role("heading", name="home")).to_be_visible()
    expect(page.get_by_label("Search nodes")).to_be_hidden()
    check_width(page)
    panel.get_by_role("button", name="Edit labels…").tap()
    expect(page.get_by_role("dialog")).to_be_visible()
    check_width(page)
    page.get_by_role("button", name="Close", exact=True).tap()
    panel.get_by_role("button", name="Close details").tap()

    page.get_by_role("navigation").get_by_role("button", name="More").tap()
    page.get_by_role("menuitem", name="System").tap()
    expect(page.get_by_role("heading", name="Message bus")).to_be_visible()
    check_width(page)


def test_the_theme_follows_the_system_until_one_is_chosen_and_the_choice_lasts(open_page: OpenPage) -> None:
    page = open_page(color_scheme="dark")
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    wait_for_brightness(page, "< 60")
    page.get_by_role("button", name=re.compile("theme and sign-out")).click()
    page.get_by_role("menuitemradio", name="Light").click()
    wait_for_brightness(page, "> 200")
    page.reload()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    wait_for_brightness(page, "> 200")


def wait_for_brightness(page: Page, condition: str) -> None:
    colours = r"getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).slice(0, 3).map(Number)"
    page.wait_for_function(f"() => Math.max(...{colours}) {condition}")


def test_the_system_page_shows_the_state_of_store_and_bus(open_page: OpenPage) -> None:
    page = open_page("#/system")
    expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    expect(page.get_by_text("Available", exact=True)).to_be_visible()


def test_an_unknown_address_leads_back(open_page: OpenPage) -> None:
    page = open_page("#/nowhere")
    expect(page.get_by_role("heading", name="Page not found", level=1)).to_be_visible()
    page.get_by_role("link", name="Go to overview").click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("device", [pytest.param({}, id="desktop"), pytest.param(PHONE, id="phone")])
def test_axe_finds_nothing_to_complain_about(
    open_page: OpenPage, corral: Up, theme: str, device: dict[str, Any]
) -> None:
    rules = COLOURS if theme == "dark" else ()
    page = open_page(color_scheme=theme, bypass_csp=True, reduced_motion="reduce", **device)
    expect(page.get_by_role("link", name="home", exact=True)).to_be_visible()
    check_with_axe(page, rules=rules)
    page.get_by_role("button", name="Actions for home").click()
    expect(page.get_by_role("menu")).to_be_visible()
    # Base UI catches the focus that leaves a menu with hidden, focusable edges; they pass it on and never keep it.
    check_with_axe(page, exclude="[data-base-ui-focus-guard]", within="[role=menu]", rules=rules)
    page.get_by_role("menuitem", name="Remove…").click()
    expect(page.get_by_role("alertdialog")).to_be_visible()
    check_with_axe(page, rules=rules)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name="home", exact=True).click()
    expect(page.get_by_role("complementary", name="Node details")).to_be_visible()
    check_with_axe(page, rules=rules)
    page.goto(page.url.split("#")[0] + "#/nodes?add=open")
    expect(page.get_by_label("Command to run on the machine")).to_be_visible()
    check_with_axe(page, rules=rules)
    page.goto(page.url.split("#")[0] + "#/system")
    expect(page.get_by_role("heading", name="Message bus")).to_be_visible()
    check_with_axe(page, rules=rules)
    page.goto("about:blank")  # else the open page may still ask without its cookie
    page.context.clear_cookies()
    page.goto(corral.url)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    check_with_axe(page, rules=rules)
