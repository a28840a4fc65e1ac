"""A server that already runs is attached to a model, used and detached, in the browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from harness.openai_upstream import OpenAiUpstream
from harness.pages import PHONE, OpenPage, check_width, check_with_axe
from harness.up import Up

SECRET = "sk-of-the-server-5521"


@pytest.fixture
def server() -> Iterator[OpenAiUpstream]:
    one = OpenAiUpstream(models=("their-name",), token=SECRET)
    yield one
    one.stop()


def test_a_server_is_attached_used_and_detached(open_page: OpenPage, corral: Up, server: OpenAiUpstream) -> None:
    page = open_page("#/models")
    page.get_by_role("button", name="Attach a server").click()
    dialog = page.get_by_role("dialog", name="Attach a server")
    dialog.get_by_label("Model", exact=True).fill("hosted")
    dialog.get_by_label("URL").fill(server.url)
    dialog.get_by_label("Name of the model there").fill("their-name")
    dialog.get_by_label("API key").fill(SECRET)
    dialog.get_by_label("/v1/responses").check()
    dialog.get_by_label("As vLLM").check()
    check_with_axe(page)
    dialog.get_by_role("button", name="Attach", exact=True).click()

    panel = page.get_by_role("complementary", name="Model details")
    row = panel.get_by_role("listitem").filter(has_text=f"{server.url}/v1")
    expect(row).to_contain_text("Healthy")
    expect(row).to_contain_text(
        "as their-name · has /v1/responses · continues answers · 0 in flight of 32 · with a key"
    )
    expect(panel.get_by_role("button", name="Load", exact=True)).to_have_count(0)
    assert SECRET not in page.content()
    answer = corral.admin.call(
        "POST", "/v1/chat/completions", body={"model": "hosted", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert (answer.status, answer.json()["model"]) == (200, "hosted")

    phone = open_page("#/models?open=hosted", **PHONE)
    expect(phone.get_by_text(f"{server.url}/v1")).to_be_visible()
    check_width(phone)
    check_with_axe(phone)
    row.get_by_role("button", name="Detach").click()
    page.get_by_role("alertdialog", name="Detach").get_by_role("button", name="Detach", exact=True).click()
    expect(panel).to_contain_text("None. Attach a server that already runs")
    corral.admin.call("DELETE", "/api/models/hosted")
