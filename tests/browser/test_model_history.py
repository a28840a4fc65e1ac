"""The history of a model on its page: what each revision changed, and the way back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from harness.pages import OpenPage, check_with_axe
from harness.up import Up

CONFIG = "name: versioned\nbackend: llama-cpp\nparameters: {model: weights.gguf}\n"


@pytest.fixture
def edited(corral: Up) -> Iterator[None]:
    admin = corral.admin
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    changed = {"config": f"{CONFIG}threads: 2\n", "comment": "two are enough"}
    assert admin.call("PUT", "/api/models/versioned", body=changed).status == 200
    yield
    assert admin.call("DELETE", "/api/models/versioned").status == 200


def test_a_model_goes_back_to_an_earlier_revision(open_page: OpenPage, corral: Up, edited: None) -> None:
    page = open_page("#/models?open=versioned", bypass_csp=True, reduced_motion="reduce")
    rows = page.get_by_role("list", name="Revisions").locator("> li")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("Revision 2 Current")
    expect(rows.first).to_contain_text("two are enough")
    expect(rows.last).to_contain_text("Superseded")
    rows.first.get_by_text("Changes of revision 2").click()
    expect(rows.first).to_contain_text("Since revision 1:")
    expect(rows.first.locator("pre")).to_have_text("+ threads: 2")
    check_with_axe(page)
    rows.last.get_by_role("button", name="Roll back to revision 1").click()
    asked = page.get_by_role("alertdialog", name="Roll versioned back to revision 1?")
    asked.get_by_role("button", name="Roll back").click()
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("rollback to revision 1")
    assert corral.admin.call("GET", "/api/models/versioned").json()["config"] == CONFIG
