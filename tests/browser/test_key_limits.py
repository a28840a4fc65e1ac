"""Limits of keys on the page: set with a new key, changed, shown with what was used, and refused where wrong."""

from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from harness.pages import OpenPage
from harness.up import Up


def test_the_limits_of_a_key_are_set_changed_and_shown(open_page: OpenPage, corral: Up) -> None:
    page = open_page("#/access")
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("limited-app")
    dialog.get_by_role("textbox", name="Requests per minute").fill("60")
    expires = (datetime.now(UTC) + timedelta(days=40)).date()
    dialog.get_by_label("Expires on").fill(expires.isoformat())
    dialog.get_by_role("button", name="Create key").click()
    dialog.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("listitem").filter(has_text="limited-app")
    expect(row).to_contain_text("60 requests/min")
    expect(row).to_contain_text("expires")
    row.get_by_role("button", name="Limits of limited-app").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("meter", name="Requests per minute")).to_contain_text("0 of 60")
    expect(dialog.get_by_role("img", name="Tokens per day, last 30 days")).to_be_visible()
    dialog.get_by_role("textbox", name="Tokens per day").fill("many")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Tokens per day: enter a whole number above 0")
    dialog.get_by_role("textbox", name="Tokens per day").fill("1,000,000")
    dialog.get_by_label("Priority").select_option("low")
    dialog.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("low priority")
    found = next(key for key in corral.admin.call("GET", "/api/keys").json() if key["name"] == "limited-app")
    assert found["limits"] == {
        "requests_per_minute": 60, "tokens_per_minute": None, "concurrent_requests": None,
        "tokens_per_day": 1_000_000, "tokens_per_month": None, "priority": "low",
    }  # fmt: skip
    assert found["expires_at"] == f"{expires.isoformat()}T23:59:59Z"


def test_default_limits_are_changed_for_all_keys(open_page: OpenPage, corral: Up) -> None:
    page = open_page("#/access")
    page.get_by_role("button", name="Default limits").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Concurrent requests").fill("500")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("listitem").filter(has_text="500 concurrent").first).to_be_visible()
    assert corral.admin.call("GET", "/api/key-defaults").json()["concurrent_requests"] == 500
    assert corral.admin.call("PATCH", "/api/key-defaults", body={"concurrent_requests": None}).status == 200
