"""A thousand nodes and fifty operations: found, filtered and scrolled without making the page wait."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from harness.burst import EventBurst
from harness.machine_speed import Yardstick
from harness.pages import OpenPage
from harness.programs import call
from harness.up import Up, running_up

COUNT = 1000
OPERATIONS = 50
EVENTS_PER_S = 500
# The aim is 1.5 s on an idle machine; tests share theirs with others.
SHOWN_WITHIN_S = 4.0


@pytest.fixture(scope="module")
def corral(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("fleet")) as corral:
        yield corral


@pytest.fixture(scope="module")
def fleet(corral: Up) -> Up:
    token = corral.admin.call("GET", "/api/join-command").json()["token"]

    def register(number: int) -> None:
        host = f"10.0.{number // 250}.{number % 250}"
        node = {
            "name": f"node-{number}",
            "address": f"{host}:50051",
            "http_address": f"{host}:50050",
            "token": token,
            "total_ram": 64 << 30,
            "available_ram": (number % 64) << 30,
            "labels": {"rack": str(number % 40)},
        }
        assert call("POST", f"{corral.url}/api/node/register", key=token, body=node).status == 201

    def occupy(node: str) -> None:
        assert corral.admin.call("POST", f"/api/nodes/{node}/approve").status == 200
        answer = corral.admin.call("POST", f"/api/nodes/{node}/backends/install", body={"backend": "llama-cpp"})
        assert answer.status == 202, answer.body

    with ThreadPoolExecutor(8) as several:
        list(several.map(register, range(COUNT)))
        by_name = corral.admin.nodes()
        list(several.map(occupy, [by_name[f"node-{number}"]["id"] for number in range(OPERATIONS)]))
    return corral


def test_only_what_is_in_view_is_in_the_page_and_the_rest_is_found(open_page: OpenPage, fleet: Up) -> None:
    page = open_page()
    table = page.get_by_role("table", name="Nodes")
    expect(table).to_have_attribute("aria-rowcount", str(COUNT + 2))
    assert page.get_by_role("row").count() < 60

    page.get_by_label("Search nodes").fill("rack=7 node-9")
    expect(table).to_have_attribute("aria-rowcount", "3")
    expect(page.get_by_role("link", name="node-927", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="node-967", exact=True)).to_be_visible()
    page.get_by_label("Search nodes").fill("")
    expect(table).to_have_attribute("aria-rowcount", str(COUNT + 2))

    table.hover()
    page.mouse.wheel(0, 10_000_000)
    expect(page.get_by_role("link", name=f"node-{COUNT - 1}", exact=True)).to_be_visible()
    assert page.get_by_role("row").count() < 60


def test_the_roster_and_the_operations_are_there_soon_after_the_page_is_opened(open_page: OpenPage, fleet: Up) -> None:
    with Yardstick() as yardstick:
        page = open_page(at_first=NOTE_FIRST_PAINT)
        page.wait_for_function("() => window.nodesShownMs && window.operationsShownMs")
    nodes_ms, operations_ms = page.evaluate("[window.nodesShownMs, window.operationsShownMs]")
    print(f"painted after the page was asked for: {COUNT} nodes {nodes_ms:.0f} ms, operations {operations_ms:.0f} ms")
    print("\n".join(page.evaluate(LIST_REQUESTS)))
    assert max(nodes_ms, operations_ms) < yardstick.allows_s(SHOWN_WITHIN_S) * 1000
    expect(page.get_by_role("region", name="Operations")).to_contain_text(f"{OPERATIONS - 3} more operations")


# After the frame that shows it: that is when a person sees it.
NOTE_FIRST_PAINT = """
    const awaited = { nodesShownMs: "a[data-node]", operationsShownMs: "section[aria-label=Operations]" };
    new MutationObserver(() => {
        for (const [name, selector] of Object.entries(awaited)) {
            if (document.querySelector(selector) === null) continue;
            delete awaited[name];
            requestAnimationFrame(() => setTimeout(() => { window[name] = performance.now(); }));
        }
    }).observe(document, { childList: true, subtree: true });
"""
LIST_REQUESTS = """() => performance.getEntriesByType("resource").map((one) => {
    const times = [one.startTime, one.responseStart, one.responseEnd].map((at) => at.toFixed(0).padStart(6));
    return `${times.join("")} ms ${(one.transferSize / 1000).toFixed(0).padStart(5)} kB  ${new URL(one.name).pathname}`;
})"""


def test_scrolling_through_a_thousand_nodes_stays_smooth(open_page: OpenPage, fleet: Up) -> None:
    page = open_page()
    expect(page.get_by_role("link", name="node-0", exact=True)).to_be_visible()
    page.get_by_role("table", name="Nodes").hover()
    page.evaluate(NOTE_FRAMES)
    last = page.get_by_role("link", name=f"node-{COUNT - 1}", exact=True)
    with Yardstick() as yardstick:
        for _ in range(400):
            page.mouse.wheel(0, 600)
            if last.is_visible():
                break
        expect(last).to_be_visible()
    frames_ms = sorted(page.evaluate("window.framesMs"))
    middle_ms, most_ms, longest_ms = (frames_ms[int(len(frames_ms) * share)] for share in (0.5, 0.95, 0.9999))
    print(
        f"{len(frames_ms)} frames: half within {middle_ms:.0f} ms, 95 % within {most_ms:.0f} ms, all {longest_ms:.0f}"
    )
    assert middle_ms < yardstick.allows_s(JERKY_S) * 1000
    assert longest_ms < yardstick.allows_s(FROZEN_S) * 1000


JERKY_S = 0.1
NOTE_FRAMES = """() => {
    window.framesMs = [];
    let last = performance.now();
    requestAnimationFrame(function note() {
        const now = performance.now();
        window.framesMs.push(now - last);
        last = now;
        requestAnimationFrame(note);
    });
}"""


def test_fifty_operations_and_a_thousand_nodes_are_counted(open_page: OpenPage, fleet: Up) -> None:
    page = open_page("#/activity")
    expect(page.get_by_role("heading", name="Install llama-cpp").first).to_be_visible()
    expect(page.get_by_role("button", name=f"Running and failed {OPERATIONS}")).to_be_visible()
    page = open_page("#/")
    expect(page.get_by_label("Fleet status")).to_contain_text(f"{COUNT - OPERATIONS} pending")


def test_a_burst_of_events_leaves_the_page_time_for_typing(open_page: OpenPage, fleet: Up) -> None:
    burst = EventBurst(list(fleet.admin.nodes().values()), per_s=EVENTS_PER_S)
    try:
        page = open_page("#/system")
        page.route("**/api/events", lambda route: route.continue_(url=burst.url))
        page.goto(page.url.split("#")[0] + "#/nodes")
        page.reload()
        expect(page.get_by_role("link", name="node-0", exact=True)).to_be_visible()
        page.wait_for_function("() => document.querySelector('[data-connection=live]') !== null")
        page.evaluate(WATCH_PAUSES)
        with Yardstick() as yardstick:
            for text in ("node-9", "node-99", "rack=7", "rack=7 node-9", ""):
                page.get_by_label("Search nodes").fill("")
                page.get_by_label("Search nodes").press_sequentially(text, delay=40)
            page.wait_for_timeout(1500)
        longest_ms, typed_ms = page.evaluate("[window.longestPauseMs, Math.max(...window.typedMs)]")
        print(f"{burst.sent} events, {EVENTS_PER_S}/s: pause {longest_ms:.0f} ms, slowest key {typed_ms:.0f} ms")
        assert burst.sent > EVENTS_PER_S
        assert longest_ms < yardstick.allows_s(FROZEN_S) * 1000
        assert typed_ms < yardstick.allows_s(FROZEN_S) * 1000
    finally:
        burst.stop()


# A second is felt as a freeze.
FROZEN_S = 1.0
WATCH_PAUSES = """() => {
    window.longestPauseMs = 0;
    window.typedMs = [0];
    let last = performance.now();
    setInterval(() => {
        const now = performance.now();
        window.longestPauseMs = Math.max(window.longestPauseMs, now - last);
        last = now;
    }, 5);
    document.addEventListener("input", (event) => {
        requestAnimationFrame(() => window.typedMs.push(performance.now() - event.timeStamp));
    }, true);
}"""
