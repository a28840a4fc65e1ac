"""Rollouts on three real workers, watched and steered in the page: waves, gates, a failed version and the way back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from harness.cluster import ADMIN_KEY, Cluster
from harness.localai_backend import localai_files
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.pages import COLOURS, PHONE, OpenPage, check_dialog, check_width, check_with_axe
from harness.programs import Admin
from harness.traffic import Traffic
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

NODES = ("n1", "n2", "n3")
CLASSES = ("default", "vulkan", "default")
GATES = (
    "--rollout-strategy", "waves", "--rollout-soak", "3", "--rollout-min-requests", "5",
    # On a busy machine a good version may be slow.
    "--rollout-min-throughput-ratio", "0", "--rollout-max-first-token-ratio", "1000",
    "--rollout-max-memory-ratio", "1000",
)  # fmt: skip
CONFIG = "name: tiny\nbackend: echo\ntemplate: {use_tokenizer_template: true}\n"
BROKEN = {"run.sh": b"#!/bin/sh\necho the engine is on fire >&2\nexit 3\n"}


class FleetCorral:
    def __init__(self, fleet: Cluster) -> None:
        self.fleet = fleet
        self.url = fleet.admin().url

    @property
    def admin(self) -> Admin:
        return self.fleet.admin()

    def upgrade(self, version: str, files: dict[str, bytes], strategy: str = "waves") -> str:
        """Offers the version and begins its rollout; the id."""
        self.fleet.offer_image("echo", files, version=version)
        self.admin.refresh_galleries()
        return self.fleet.begin("/api/backends/upgrade/echo", {"rollout": {"strategy": strategy}})

    def wait_for(self, rollout: str, state: str) -> None:
        def look() -> bool:
            found = self.admin.call("GET", f"/api/rollouts/{rollout}").json()
            assert found["state"] == state, f"{found['state']}: {found['summary']}"
            return True

        wait_until(look, what=f"the rollout is {state}", within_s=120)


@pytest.fixture(scope="module")
def corral(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetCorral]:
    directory = tmp_path_factory.mktemp("rollouts")
    registry, server = OciRegistry(directory / "registry"), Nats(directory / "nats")
    fleet = Cluster(directory, server, f"sqlite://{directory / 'shared.db'}", registry=registry)
    try:
        fleet.offer_image("echo", localai_files("1"), version="1.0")
        admin = fleet.start_frontend("a", "--auto-approve", *GATES)
        for name, capability in zip(NODES, CLASSES, strict=True):
            fleet.start_worker(name, "--capability", capability)
        for name in NODES:
            admin.wait_for_status(name, "healthy", within_s=120)
        fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"), within_s=120)
        assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
        wanted = {"model_name": "tiny", "min_replicas": 3, "max_replicas": 3}
        assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
        fleet.wait_for_ready("tiny", 3, within_s=120)
        yield FleetCorral(fleet)
    finally:
        fleet.stop()
        server.stop()
        registry.stop()


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("list", name="Rollouts", exact=True).get_by_role("listitem").filter(has_text=title).first


def confirm(page: Page, name: str) -> None:
    page.get_by_role("alertdialog").get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("alertdialog")).to_have_count(0)


def test_a_canary_rollout_is_watched_paused_resumed_and_promoted(open_page: OpenPage, corral: FleetCorral) -> None:
    page = open_page("#/rollouts", bypass_csp=True)
    expect(page.get_by_role("heading", name="No rollouts yet")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    with Traffic(corral.url, ADMIN_KEY, "tiny", per_s=8):
        job = corral.upgrade("2.0", localai_files("2"), "canary")
        shown = card(page, "1.0 → 2.0")
        expect(shown).to_contain_text("Waiting for promotion")
        expect(shown).to_contain_text("2 of 3 nodes have the new version")
        shown.get_by_role("link", name="Upgrade echo").click()
        expect(page.get_by_role("heading", name="Upgrade echo 1.0 → 2.0")).to_be_visible()
        canaries = page.get_by_role("table", name="Nodes of Wave 1 of 2")
        expect(canaries.get_by_role("row").filter(has_text="New version")).to_have_count(2)
        expect(canaries.get_by_role("row").filter(has_text="n2")).to_contain_text(re.compile("rolling|stop-first"))
        expect(page.get_by_role("table", name="Nodes of Wave 2 of 2")).to_contain_text("Waiting")
        gates = page.get_by_role("table", name="Gates of Wave 1 of 2")
        expect(gates.get_by_role("row").filter(has_text="Keeps running").first).to_contain_text("Passed")
        expect(gates.get_by_role("row").filter(has_text="Time to first token").first).to_contain_text("Not judged")
        check_with_axe(page)

        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_text("Paused", exact=True)).to_be_visible()
        overview = open_page("#/")
        expect(overview.get_by_text("The rollout of echo 2.0 is paused")).to_be_visible()
        page.get_by_role("button", name="Resume", exact=True).click()
        page.get_by_role("button", name="Promote", exact=True).click()
        check_dialog(page)
        confirm(page, "Promote")
        expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
    timeline = page.get_by_role("list", name="Timeline")
    for words in ("canary: 2, 1 nodes", "by key admin", "Wave 2 of 2 begins", "All waves passed"):
        expect(timeline).to_contain_text(words)
    corral.wait_for(job, "completed")


def test_a_failed_version_is_held_back_until_someone_allows_it_again(open_page: OpenPage, corral: FleetCorral) -> None:
    job = corral.upgrade("3.0", BROKEN)
    corral.wait_for(job, "failed")
    page = open_page("#/", bypass_csp=True, color_scheme="dark")
    row = page.get_by_role("listitem").filter(has_text="The rollout of echo 3.0 failed; the version is held back")
    expect(row).to_contain_text("the engine is on fire")
    row.get_by_role("link", name="View").click()
    expect(page.get_by_text("This version is not offered again until")).to_be_visible()
    expect(page.get_by_role("table", name="Nodes of Wave 2 of 2")).to_contain_text("Not reached")
    expect(page.get_by_role("list", name="Timeline")).to_contain_text("the engine is on fire")
    check_with_axe(page, rules=COLOURS)

    backends = open_page("#/backends")
    notice = backends.get_by_role("region", name="Upgrades", exact=True)
    expect(notice).to_contain_text("1 newer version is held back")
    expect(notice).to_contain_text("rollouts allow")
    expect(backends.get_by_role("button", name=re.compile("^Held back: 3.0 is held back since"))).to_have_count(3)
    assert backends.get_by_role("button", name="Upgrade all").count() == 0

    page.get_by_role("button", name="Allow this version again").click()
    confirm(page, "Allow")
    expect(page.get_by_text("key admin allowed this version again")).to_be_visible()
    expect(notice).to_contain_text("1 backend can be upgraded")
    expect(notice.get_by_role("button", name="Upgrade all")).to_be_visible()


def test_rollouts_are_aborted_and_fit_a_phone(open_page: OpenPage, corral: FleetCorral) -> None:
    job = corral.upgrade("4.0", localai_files("4"), "canary")
    corral.wait_for(job, "awaiting_promotion")
    page = open_page("#/rollouts", bypass_csp=True, **PHONE)
    shown = card(page, "2.0 → 4.0")
    expect(shown).to_contain_text("Waiting for promotion")
    check_width(page)
    shown.get_by_role("link", name="Upgrade echo").click()
    expect(page.get_by_role("table", name="Gates of Wave 1 of 2")).to_be_visible()
    check_width(page)
    check_with_axe(page)
    page.get_by_role("button", name="Abort…").click()
    check_dialog(page)
    confirm(page, "Abort rollout")
    expect(page.get_by_role("table", name="Nodes of Wave 1 of 2").get_by_text("Rolled back")).to_have_count(2)
    corral.wait_for(job, "aborted")


def test_the_strategy_of_a_policy_is_shown_and_changed(open_page: OpenPage, corral: FleetCorral) -> None:
    page = open_page("#/backends?tab=policies")
    choice = page.get_by_label("Rollout: echo on every node")
    expect(choice).to_have_value("default")
    choice.select_option("canary")
    wait_until(
        lambda: corral.admin.call("GET", "/api/policies").json()[0]["rollout"],
        what="the policy has a strategy",
    )
    page.reload()
    expect(choice).to_have_value("canary")
    choice.select_option("default")
    expect(choice).to_have_value("default")


def test_edits_of_models_are_listed_beside_the_rollouts(open_page: OpenPage, corral: FleetCorral) -> None:
    changed = {"config": f"{CONFIG}context_size: 1024\n", "comment": "less memory"}
    assert corral.admin.call("PUT", "/api/models/tiny", body=changed).status == 200
    page = open_page("#/rollouts?tab=models", bypass_csp=True)
    row = page.get_by_role("list", name="Model configurations").get_by_role("listitem").filter(has_text="tiny")
    expect(row).to_contain_text("revision 1 → 2")
    expect(row).to_contain_text("less memory")
    expect(row).to_contain_text("Completed")
    check_with_axe(page)
    row.get_by_role("link", name="tiny").click()
    expect(page.get_by_role("list", name="Revisions").locator("> li")).to_have_count(2)
