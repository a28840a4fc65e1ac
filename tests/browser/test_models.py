"""A model from the gallery, loaded on a real node and used in a chat; keys; every page in both themes and widths."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from harness.pages import COLOURS, PHONE, Complaints, OpenPage, check_width, check_with_axe
from harness.up import Up

PAGES = ("", "nodes", "backends", "backends?tab=gallery", "backends?tab=policies", "models?open=smollm2",
         "models?tab=gallery", "chat", "activity", "activity?tab=finished", "activity?tab=exhausted", "access",
         "access?tab=audit", "system")  # fmt: skip


def go(page: Page, address: str) -> None:
    page.goto(page.url.split("#")[0] + "#/" + address)


def test_a_backend_and_a_model_are_installed_and_the_model_answers(open_page: OpenPage) -> None:
    page = open_page("#/backends?tab=gallery")
    page.get_by_role("button", name="Install llama-cpp", exact=True).click()
    page.get_by_role("dialog", name="Install llama-cpp").get_by_role("button", name="Install", exact=True).click()
    bar = page.get_by_role("region", name="Operations").get_by_role("article", name="Install llama-cpp")
    expect(bar).to_contain_text("1 of 1 node done", timeout=90_000)

    go(page, "models?tab=gallery")
    expect(page.get_by_text("Could not refresh gallery lost")).to_be_visible()
    page.get_by_role("button", name="Install smollm2").click()
    panel = page.get_by_role("complementary", name="Model details")
    expect(panel).to_contain_text("Not loaded")
    panel.get_by_role("button", name="Load", exact=True).click()
    expect(panel.get_by_role("listitem").filter(has_text="home").filter(has_text="Ready")).to_be_visible(timeout=90_000)

    panel.get_by_role("link", name="Chat").click()
    page.get_by_role("button", name="Parameters").click()
    page.get_by_label("System prompt").fill("Answer in few words.")
    page.get_by_label("Max tokens").fill("24")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Message to smollm2").fill("What is a corral?")
    page.keyboard.press("Enter")
    answer = page.locator("[data-answer]")
    expect(answer).to_have_attribute("data-answer", "ended", timeout=180_000)
    expect(answer).to_contain_text(re.compile(r"answered by home · [\d.]+ tokens/s · \d+ tokens · first token after"))

    page.get_by_role("button", name="Clear").click()
    expect(answer).to_have_count(0)
    page.get_by_label("System prompt").fill("")
    page.get_by_label("Max tokens").fill("2000")
    page.get_by_label("Message to smollm2").fill("Write a long story about a horse, with many details.")
    page.get_by_role("button", name="Send").click()
    expect(answer).to_have_count(1)
    expect(answer.last).to_contain_text("first token after")
    page.get_by_role("button", name="Stop").click()
    expect(answer.last).to_contain_text("stopped")

    page.get_by_label("Message to smollm2").fill("Write the next chapter, at least as long.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_text("Chat with smollm2")).to_be_visible()

    page.get_by_role("button", name="View code").click()
    code = page.get_by_role("dialog")
    expect(code.get_by_label("curl command")).to_contain_text("/v1/chat/completions")
    expect(code.get_by_label("Python code")).to_contain_text('model="smollm2"')


def test_an_alias_is_as_loaded_as_the_model_it_stands_for(open_page: OpenPage, corral: Up) -> None:
    admin = corral.admin
    assert admin.call("POST", "/api/models", body={"config": "name: gpt-small\nalias: smollm2\n"}).status in (200, 201)
    try:
        page = open_page("#/chat?model=gpt-small")
        picker = page.get_by_label("Model", exact=True)
        expect(picker.locator("option:checked")).to_have_text("gpt-small")
        expect(page.get_by_text("Messages go to one of its replicas")).to_be_visible()
        go(page, "models?open=gpt-small")
        panel = page.get_by_role("complementary", name="Model details")
        expect(panel).to_contain_text("Alias of smollm2")
        expect(panel.get_by_role("button", name="Load", exact=True)).to_have_count(0)
        panel.get_by_role("link", name="Show smollm2").click()
        expect(panel).to_contain_text("Ready")
        expect(panel).to_contain_text(re.compile(r"Footprint[\d.]+ [MG]iB on CPU"))
    finally:
        admin.call("DELETE", "/api/models/gpt-small")


def test_an_operation_on_a_drained_node_shows_what_it_waits_for(open_page: OpenPage, corral: Up) -> None:
    admin = corral.admin
    home = admin.nodes()["home"]["id"]
    assert admin.call("POST", f"/api/nodes/{home}/drain").status == 200
    started = admin.call("POST", "/api/backends/install/llama-cpp", body={}).json()["jobID"]
    try:
        page = open_page("#/activity")
        bar = page.get_by_role("region", name="Operations").get_by_role("article", name="Install llama-cpp")
        bar.get_by_role("button", name=re.compile("1 node")).click()
        expect(bar).to_contain_text("The node is drained; this continues when it is resumed.")
    finally:
        admin.call("POST", f"/api/nodes/{home}/resume")
    expect(bar).to_contain_text("1 of 1 node done")
    assert admin.call("GET", f"/api/operations/{started}").json()["state"] == "completed"
    admin.wait_for_status("home", "healthy")


def test_the_overview_lists_a_model_below_its_desired_replicas(open_page: OpenPage, corral: Up) -> None:
    admin = corral.admin
    config = "name: ghost\nbackend: no-such-backend\nparameters:\n  model: nowhere.gguf\n"
    wanted = {"model_name": "ghost", "min_replicas": 2, "max_replicas": 2}
    assert admin.call("POST", "/api/models", body={"config": config}).status in (200, 201)
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    try:
        page = open_page("#/")
        listed = page.get_by_role("listitem").filter(
            has_text=re.compile("ghost( failed|: desired replicas cannot be placed)")
        )
        expect(listed).to_be_visible()
        expect(page.get_by_text("Nothing needs attention")).to_have_count(0)
        listed.get_by_role("link", name="View").click()
        panel = page.get_by_role("complementary", name="Model details")
        expect(panel.get_by_role("heading", name="ghost")).to_be_visible()
    finally:
        admin.call("DELETE", "/api/nodes/scheduling/ghost")
        admin.call("DELETE", "/api/models/ghost")
    go(page, "")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    expect(page.get_by_text("ghost")).to_have_count(0)


def test_logs_of_a_process_are_followed(open_page: OpenPage) -> None:
    page = open_page("#/nodes")
    page.get_by_role("link", name="home", exact=True).click()
    panel = page.get_by_role("complementary", name="Node details")
    expect(panel).to_contain_text("smollm2#0")
    expect(panel).to_contain_text("llama-cpp")
    expect(panel).to_contain_text("chosen")
    panel.get_by_role("button", name="Live logs").click()
    logs = page.get_by_role("dialog", name="Logs of home")
    expect(logs).to_contain_text("Live")
    lines = logs.get_by_role("log")
    expect(lines).to_contain_text("init")
    before = lines.inner_text().count("\n")
    page.evaluate(
        """() => fetch("v1/chat/completions", { method: "POST",
            headers: { "Content-Type": "application/json", "X-Corral-Client": "ui" },
            body: JSON.stringify({ model: "smollm2", max_tokens: 2, messages: [{ role: "user", content: "hi" }] }) })"""
    )
    page.wait_for_function(
        "before => document.querySelector('[role=log]').innerText.split('\\n').length > before + 1", arg=before
    )


def log_address(url: str, node: str) -> str:
    return f"ws{url.removeprefix('http')}/ws/nodes/{node}/backend-logs/smollm2"


def test_logs_are_followed_over_a_websocket_as_localais_pages_do(corral: Up) -> None:
    home = corral.admin.nodes()["home"]["id"]
    allowed = {"Authorization": f"Bearer {corral.admin.key}"}
    with connect(log_address(corral.url, home), additional_headers=allowed, proxy=None) as socket:
        first = json.loads(socket.recv(timeout=20))
        assert first["type"] == "initial"
        assert any("init" in line["text"] for line in first["lines"])
        question = {"model": "smollm2", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
        assert corral.admin.call("POST", "/v1/chat/completions", body=question).status == 200
        line = json.loads(socket.recv(timeout=20))
        assert (line["type"], line["line"]["text"] != "") == ("line", True)


def test_a_log_socket_is_refused_without_permission(corral: Up, open_page: OpenPage) -> None:
    home = corral.admin.nodes()["home"]["id"]
    (session,) = [one for one in open_page().context.cookies() if one["name"] == "corral_session"]
    cookie = f"corral_session={session['value']}"
    bearer = {"Authorization": f"Bearer {corral.admin.key}"}

    def status(node: str = home, **headers: str) -> int:
        try:
            with connect(log_address(corral.url, node), additional_headers=headers, proxy=None):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    assert status() == 401
    assert status(Authorization="Bearer corral-wrong") == 401
    assert status("no-such-node", **bearer) == 404
    assert status(Cookie=cookie, Origin="http://127.0.0.1:1") == 403
    assert status(Cookie=cookie, Origin=corral.url) == 101


def test_a_model_is_edited_and_a_second_editor_sees_the_change_of_the_first(
    open_page: OpenPage, corral: Up, complaints: Complaints
) -> None:
    complaints.expect("api/models/smollm2")
    page = open_page("#/models?open=smollm2")
    page.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog", name="Configuration of smollm2")
    field = dialog.get_by_label("Configuration (YAML)")
    text = field.input_value()
    field.fill(text + "\nbackend: [\n")
    field.press("Escape")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_be_visible()

    theirs = text.rstrip() + "\ndescription: changed by another hand\n"
    theirs = re.sub(r"(?m)^description: .*\n(?=(?s:.)*description:)", "", theirs)
    assert corral.admin.call("PUT", "/api/models/smollm2", body={"config": theirs}).status == 200
    field.fill(text + "# mine\n")
    expect(dialog.get_by_role("alert")).to_contain_text("Another user changed this configuration")
    dialog.get_by_role("button", name="Use their version").click()
    expect(field).to_have_value(re.compile("changed by another hand"))


def test_the_overview_counts_requests(open_page: OpenPage) -> None:
    page = open_page("#/")
    expect(page.get_by_label("Fleet status")).to_contain_text("1 of 1 model ready")
    expect(page.get_by_role("img", name=re.compile(r"Requests.s, last hour: maximum 0\.0[1-9]"))).to_be_visible(
        timeout=60_000
    )


def test_a_node_shows_its_last_hour(open_page: OpenPage) -> None:
    page = open_page("#/nodes")
    page.get_by_role("link", name="home", exact=True).click()
    panel = page.get_by_role("complementary", name="Node details")
    charts = panel.get_by_role("img")
    expect(
        charts.and_(panel.get_by_label(re.compile(r"^RAM in use, last hour: maximum [\d.]+ [GM]iB")))
    ).to_be_visible()
    answered = panel.get_by_label(re.compile(r"^Requests/s, last hour: maximum 0\.0[1-9]"))
    expect(charts.and_(answered)).to_be_visible(timeout=60_000)
    expect(charts.and_(panel.get_by_label(re.compile("^Requests in flight, last hour: maximum [01]")))).to_be_visible()


def test_a_model_is_scaled_and_unloaded(open_page: OpenPage) -> None:
    page = open_page("#/models?open=smollm2")
    panel = page.get_by_role("complementary", name="Model details")
    panel.get_by_role("button", name="Scale…").click()
    dialog = page.get_by_role("dialog", name="Scale smollm2")
    dialog.get_by_label("Number of replicas").check()
    dialog.get_by_label("Minimum").fill("0")
    dialog.get_by_label("Maximum").fill("2")
    dialog.get_by_role("button", name="Save").click()
    expect(panel).to_contain_text("0 to 2 replicas")
    panel.get_by_role("button", name="Load", exact=True).click()
    expect(panel.get_by_role("listitem").filter(has_text="Ready")).to_be_visible(timeout=60_000)
    panel.get_by_role("button", name="Unload from home").click()
    asked = page.get_by_role("alertdialog", name="Unload smollm2 from home?")
    expect(asked).to_contain_text("the next request loads the model again")
    asked.get_by_role("button", name="Unload").click()
    expect(panel).to_contain_text("Replicas (0)", timeout=30_000)


def test_a_model_with_desired_replicas_is_scaled_instead_of_unloaded(open_page: OpenPage, corral: Up) -> None:
    admin = corral.admin
    wanted = {"model_name": "smollm2", "min_replicas": 1, "max_replicas": 1}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    try:
        page = open_page("#/models?open=smollm2")
        panel = page.get_by_role("complementary", name="Model details")
        expect(panel.get_by_role("listitem").filter(has_text="Ready")).to_be_visible(timeout=60_000)
        panel.get_by_role("button", name="Unload…").click()
        asked = page.get_by_role("alertdialog", name="Unload smollm2?")
        expect(asked).to_contain_text("Corral would load it again immediately")
        asked.get_by_role("button", name="Scale…").click()
        expect(page.get_by_role("dialog", name="Scale smollm2").get_by_label("Minimum")).to_have_value("1")
    finally:
        admin.call("DELETE", "/api/nodes/scheduling/smollm2")


def test_a_key_is_created_shown_once_limited_and_revoked(open_page: OpenPage, corral: Up) -> None:
    page = open_page("#/access")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name").fill("plugin")
    page.get_by_role("button", name="Create key").click()
    secret = page.get_by_label("New API key").inner_text()
    assert secret.startswith("corral-")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("listitem").filter(has_text="plugin")
    expect(row).to_contain_text("user")
    expect(row).to_contain_text("All models")
    row.get_by_role("button", name="Models of plugin").click()
    page.get_by_label("Selected models").check()
    page.get_by_label("smollm2").check()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(row).to_contain_text("Only smollm2")
    assert secret not in page.content()
    row.get_by_role("button", name="Revoke plugin").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("Revoked")
    page.get_by_role("button", name="Audit log").click()
    expect(page.get_by_role("listitem").filter(has_text="plugin").first).to_contain_text("key.revoked plugin")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("device", [pytest.param({}, id="desktop"), pytest.param(PHONE, id="phone")])
def test_every_page_fits_and_axe_finds_nothing(open_page: OpenPage, theme: str, device: dict[str, Any]) -> None:
    page = open_page("#/", color_scheme=theme, bypass_csp=True, reduced_motion="reduce", **device)
    for address in PAGES:
        go(page, address)
        expect(page.get_by_role("heading").first).to_be_visible()
        expect(page.get_by_text(re.compile("^Loading .*…$"))).to_have_count(0)
        if device:
            check_width(page)
        check_with_axe(page, rules=COLOURS if theme == "dark" else ())
