"""Every dialog on a phone: nothing is cut off, and its buttons can be reached."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from harness.pages import PHONE, Complaints, OpenPage, check_dialog, check_width, check_with_axe
from harness.up import Up

LONG = "a-model-with-a-name-that-is-as-long-as-those-of-quantised-mixtures-often-are.Q4_K_M"
CONFIG = f"name: {LONG}\nbackend: llama-cpp\nparameters: {{model: weights.gguf}}\n"


@pytest.fixture
def furnished(corral: Up) -> Iterator[None]:
    """The subjects of the dialogs: a model with older revisions, and a key."""
    admin = corral.admin
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    for threads in (1, 2):
        edited = admin.call("PUT", f"/api/models/{LONG}", body={"config": f"{CONFIG}threads: {threads}\n"})
        assert edited.status == 200, edited.body
    key = admin.call("POST", "/api/keys", body={"name": "a-key-of-somebody-with-a-long-name"}).json()
    yield
    assert admin.call("DELETE", f"/api/models/{LONG}").status == 200
    assert admin.call("DELETE", f"/api/keys/{key['id']}").status == 200


def go(page: Page, address: str) -> None:
    page.goto(page.url.split("#")[0] + "#/" + address)
    expect(page.get_by_role("heading").first).to_be_visible()


def look_at(page: Page, *buttons: str) -> None:
    """Opens each dialog by its button, looks at it, and closes it."""
    for name in buttons:
        page.get_by_role("button", name=name, exact=True).first.click()
        check_dialog(page)
        check_width(page)
        page.locator("[role=dialog], [role=alertdialog]").last.press("Escape")
        expect(page.locator("[role=dialog], [role=alertdialog]")).to_have_count(0)


def test_no_dialog_is_cut_off_on_a_phone(open_page: OpenPage, furnished: None) -> None:
    page = open_page("#/nodes", bypass_csp=True, reduced_motion="reduce", **PHONE)
    page.set_default_timeout(20_000)
    look_at(page, "Add a node")
    page.get_by_role("link", name="home", exact=True).click()
    look_at(page, "Drain…", "Edit labels…", "Remove…", "Live logs")
    go(page, "models")
    look_at(page, "Add a configuration")
    go(page, f"models?open={LONG}")
    look_at(page, "Scale…", "Edit…", "Delete…")
    go(page, "access")
    look_at(
        page, "New key", "Models of a-key-of-somebody-with-a-long-name", "Revoke a-key-of-somebody-with-a-long-name"
    )
    go(page, f"chat?model={LONG}")
    look_at(page, "View code")
    go(page, "backends?tab=gallery")
    look_at(page, "Install from a URI", "Install llama-cpp")


def test_a_rejected_edit_on_a_phone_shows_the_reason_and_can_still_be_saved(
    open_page: OpenPage, furnished: None, complaints: Complaints
) -> None:
    complaints.expect("api/models/")
    page = open_page(f"#/models?open={LONG}", bypass_csp=True, reduced_motion="reduce", **PHONE)
    page.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Configuration (YAML)")
    field.fill(CONFIG + "context_sizee: 9\n")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("context_sizee (did you mean context_size?)")
    for name in ("Cancel", "Save"):  # the text above them grew, and the page was not scrolled
        expect(dialog.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    check_dialog(page)
    check_with_axe(page, within="[role=dialog]")
    dialog.get_by_label("Save despite unknown fields or an unknown backend").check()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
