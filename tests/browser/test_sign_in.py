"""Who is not signed in sees nothing; who is stays so until signing out."""

import re

from playwright.sync_api import Page, expect

from harness.pages import Complaints, OpenPage
from harness.up import Up


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_a_wrong_key_is_refused_in_the_servers_words_and_the_right_one_opens_the_page_that_was_requested(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    page = open_page("#/nodes?q=home", signed_in=False)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert complaints.heard == [], "nobody has asked for anything yet"
    complaints.expect("api/session")
    sign_in(page, "corral-wrong")
    expect(page.get_by_role("alert")).to_contain_text("unknown or revoked")

    sign_in(page, corral.admin.key)
    expect(page.get_by_role("link", name="home", exact=True)).to_be_visible()
    expect(page.get_by_label("Search nodes")).to_have_value("home")

    page.reload()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()


def test_signing_out_ends_the_session(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name=re.compile("theme and sign-out")).click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.context.cookies() == []


def test_the_session_cookie_is_out_of_reach_for_scripts_and_other_sites(open_page: OpenPage) -> None:
    page = open_page()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in page.context.cookies()}
    assert {cookie["sameSite"] for cookie in cookies.values()} == {"Strict"}
    assert cookies.pop("corral_session")["httpOnly"] is True
    # What scripts can read tells nothing but that somebody is signed in.
    assert {name: cookie["value"] for name, cookie in cookies.items()} == {"corral_signed_in": "yes"}


def test_a_key_without_the_admin_scope_is_told_why_it_does_not_sign_in(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    complaints.expect("api/session")
    key = corral.admin.call("POST", "/api/keys", body={"name": "guest", "scope": "user"}).json()["key"]
    page = open_page(signed_in=False)
    sign_in(page, key)
    expect(page.get_by_role("alert")).to_contain_text("Signing in needs an admin key")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
