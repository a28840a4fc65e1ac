"""A new installation: every page shows its empty state."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from harness.pages import PHONE, OpenPage, check_width, check_with_axe
from harness.up import Up, running_up

PAGES = (
    "",
    "nodes",
    "backends",
    "backends?tab=policies",
    "models",
    "chat",
    "activity",
    "activity?tab=exhausted",
    "access",
)


@pytest.fixture(scope="module")
def corral(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("new")) as new:
        yield new


@pytest.mark.parametrize("device", [pytest.param({}, id="desktop"), pytest.param(PHONE, id="phone")])
def test_every_page_of_a_new_installation_fits_and_axe_finds_nothing(
    open_page: OpenPage, device: dict[str, Any]
) -> None:
    page = open_page("#/", color_scheme="light", bypass_csp=True, reduced_motion="reduce", **device)
    for address in PAGES:
        page.goto(page.url.split("#")[0] + "#/" + address)
        expect(page.get_by_role("heading").first).to_be_visible()
        expect(page.get_by_text(re.compile("^Loading .*…$"))).to_have_count(0)
        if device:
            check_width(page)
        check_with_axe(page)
