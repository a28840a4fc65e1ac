"""Routes are added, changed and deleted in the browser, and an attached endpoint is edited."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from harness.openai_upstream import OpenAiUpstream
from harness.pages import PHONE, Complaints, OpenPage, check_width, check_with_axe
from harness.up import Up


@pytest.fixture
def servers(corral: Up) -> Iterator[None]:
    """Two models, `near` and `far`."""
    started = [OpenAiUpstream(models=(name,)) for name in ("near", "far")]
    for one in started:
        answer = corral.admin.call("POST", f"/api/models/{one.models[0]}/endpoints", body={"url": one.url})
        assert answer.status == 201, answer.body
    yield
    for route in corral.admin.call("GET", "/api/routes").json():
        corral.admin.call("DELETE", f"/api/routes/{route['name']}")
    for one in started:
        corral.admin.call("DELETE", f"/api/models/{one.models[0]}")
        one.stop()


def routes_of(corral: Up) -> dict[str, Any]:
    return {one["name"]: one for one in corral.admin.call("GET", "/api/routes").json()}


@pytest.mark.usefixtures("servers")
def test_a_route_is_added_changed_used_for_a_key_and_deleted(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    complaints.expect("api/routes/chat")  # a model that does not exist
    page = open_page("#/models")
    page.get_by_role("navigation", name="Model views").get_by_role("button", name="Routes").click()
    expect(page.get_by_text("No routes yet")).to_be_visible()
    page.get_by_role("button", name="Add a route").click()
    dialog = page.get_by_role("dialog", name="Add a route")
    dialog.get_by_label("Name", exact=True).fill("chat")
    dialog.get_by_label("Models").fill("nobody")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("There is no model 'nobody'")
    dialog.get_by_label("Models").fill("near=3")
    dialog.get_by_label("Fallback 1").fill("far")
    check_with_axe(page)
    dialog.get_by_role("button", name="Save").click()
    card = page.get_by_role("listitem").filter(has_text="chat")
    expect(card).to_contain_text("near × 3 · 1 ready")
    expect(card).to_contain_text("far · 1 ready")
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    answer = corral.admin.call("POST", "/v1/chat/completions", body=body)
    assert (answer.status, answer.headers["x-corral-model"]) == (200, "near")

    card.get_by_role("button", name="Edit chat").click()
    dialog = page.get_by_role("dialog", name="Edit the route chat")
    expect(dialog.get_by_label("Models")).to_have_value("near=3")
    dialog.get_by_label("Models").fill("near, far")
    dialog.get_by_label("Fallback 1").fill("")
    dialog.get_by_label("Requests of one session stay with one model").check()
    dialog.get_by_role("button", name="Save").click()
    expect(card).to_contain_text("Sticky")
    saved = routes_of(corral)["chat"]
    assert [[one["model"] for one in tier] for tier in saved["tiers"]] == [["near", "far"]]

    phone = open_page("#/models?tab=routes", **PHONE)
    expect(phone.get_by_text("near × 1 · 1 ready")).to_be_visible()
    check_width(phone)
    check_with_axe(phone)
    keys = open_page("#/access")
    keys.get_by_role("button", name="New key").first.click()
    keys.get_by_label("Selected models").check()
    expect(keys.get_by_role("checkbox", name="chat")).to_be_visible()

    card.get_by_role("button", name="Delete chat").click()
    confirm = page.get_by_role("alertdialog", name="Delete the route chat?")
    confirm.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("No routes yet")).to_be_visible()
    assert routes_of(corral) == {}


@pytest.mark.usefixtures("servers")
def test_an_attached_endpoint_is_edited_and_keeps_what_is_not_changed(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    complaints.expect("api/models/near/endpoints")  # a CA that is none
    page = open_page("#/models?open=near")
    panel = page.get_by_role("complementary", name="Model details")
    panel.get_by_role("button", name="Edit http").click()
    dialog = page.get_by_role("dialog", name="Edit http")
    expect(dialog.get_by_label("Most open requests")).to_have_value("32")
    dialog.get_by_label("Most open requests").fill("5")
    dialog.get_by_label("CA of its certificate").fill("not a certificate")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("CA")
    dialog.get_by_label("CA of its certificate").fill("")
    check_with_axe(page)
    dialog.get_by_role("button", name="Save").click()
    expect(panel).to_contain_text("0 in flight of 5")
    (one,) = json.loads(corral.admin.call("GET", "/api/models/near/endpoints").body)
    assert (one["limit"], one["health"]) == (5, "healthy")
