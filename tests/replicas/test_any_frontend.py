"""Any frontend answers any read, cancel or stop alike, and killing one loses nothing (INV-28); what is served holds no
connection to the store (INV-31, F-17)."""

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.databases import BOTH
from harness.localai_backend import write_localai_backend
from harness.nats import Nats
from harness.programs import Admin
from harness.waiting import wait_until

READS = (
    "/api/models",
    "/api/models/horse",
    "/api/models/horse/load-status",
    "/api/nodes/scheduling",
    "/api/operations",
    "/api/replicas",
    "/api/why/models/horse",
    "/v1/models",
)
FACTS = ("id", "name", "status", "labels", "max_replicas_per_model", "vram_budget")
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Cluster(tmp_path, nats, store)
    write_localai_backend(tmp_path / "system" / "echo")
    yield running
    running.stop()


def start_worker(cluster: Cluster, name: str) -> None:
    cluster.start_worker(name, "--system-backends-dir", str(cluster.directory / "system"))


def config(*options: str) -> str:
    listed = ", ".join(f"'{option}'" for option in options)
    return f"name: horse\nbackend: echo\noptions: [{listed}]\ntemplate: {{use_tokenizer_template: true}}\n"


def told(admin: Admin) -> dict[str, Any]:
    """What people read, without what changes from one look to the next."""
    found: dict[str, Any] = {}
    for path in READS:
        answer = admin.call("GET", path)
        found[path] = (answer.status, answer.json())
    nodes = [{fact: node.get(fact) for fact in FACTS} for node in admin.nodes().values()]
    return {**found, "/api/nodes": sorted(nodes, key=lambda node: str(node["name"]))}


def tell_the_same(first: Admin, second: Admin) -> None:
    last: list[Any] = []

    def alike() -> bool:
        last[:] = [told(first), told(second)]
        return bool(last[0] == last[1])

    try:
        wait_until(alike, what="both tell the same", within_s=30, every_s=0.5)
    except AssertionError:
        assert last[0] == last[1]
        raise


def state_of(admin: Admin) -> str:
    answer = admin.call("GET", "/api/models/horse/load-status")
    return str(answer.json()["state"]) if answer.status == 200 else ""


def test_any_frontend_shows_and_stops_alike_and_a_load_outlives_the_one_that_began_it(cluster: Cluster) -> None:
    first = cluster.start_frontend("a")
    start_worker(cluster, "w1")
    second = cluster.start_frontend("b")
    go_on = cluster.gates / "go-on"
    node = first.nodes()["w1"]["id"]
    assert first.call("PUT", f"/api/nodes/{node}/labels", body={"tier": "gold"}).status == 200
    assert first.call("POST", "/api/models", body={"config": config(f"until:{go_on}")}).status == 201
    tell_the_same(first, second)

    # A load that the first began is told of, and ended, by the second.
    assert first.call("POST", "/api/models/horse/load").status == 202
    wait_until(lambda: state_of(first) == "loading", what="it is being loaded", within_s=60)
    tell_the_same(first, second)
    assert second.call("POST", "/api/models/horse/unload").status == 200
    wait_until(lambda: not cluster.replicas("horse"), what="it is called off", within_s=60)
    wait_until(lambda: not cluster.processes("w1"), what="and its process ended", within_s=60)
    tell_the_same(first, second)

    # One that the first began goes on without it.
    assert first.call("POST", "/api/models/horse/load").status == 202
    wait_until(lambda: state_of(second) == "loading", what="it is being loaded again", within_s=60)
    cluster.frontends["a"].kill()
    go_on.touch()
    wait_until(lambda: cluster.ready("horse", "b"), what="the second has finished it", within_s=90)
    assert ask(second, "horse", **QUESTION).status == 200
    [before] = cluster.replicas("horse", "b")

    # The first comes back knowing everything, and stops what it never started.
    first = cluster.start_frontend("a")
    tell_the_same(first, second)
    assert [row["id"] for row in cluster.replicas("horse", "a")] == [before["id"]]
    assert first.call("POST", "/api/models/horse/unload").status == 200
    wait_until(lambda: not cluster.replicas("horse", "b"), what="the second knows that it is gone", within_s=60)


def open_stream(admin: Admin) -> http.client.HTTPConnection:
    address = urlsplit(admin.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    body = {"model": "horse", "stream": True, "messages": [{"role": "user", "content": "hang"}]}
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    return connection


def test_two_hundred_open_requests_hold_no_connection_to_the_store(cluster: Cluster) -> None:
    """F-17: the frontend has two connections, and everybody who asks it something still gets an answer."""
    admin = cluster.start_frontend("a", CORRAL_STORE_CONNECTIONS="2")
    start_worker(cluster, "w1")
    assert admin.call("POST", "/api/models", body={"config": config()}).status == 201
    assert ask(admin, "horse", **QUESTION).status == 200
    with ExitStack() as opened:
        for _ in range(200):
            opened.enter_context(closing(open_stream(admin)))
        wait_until(
            lambda: sum(row["in_flight"] for row in cluster.replicas("horse")) == 200,
            what="all of them are open",
            within_s=60,
        )
        answers = [admin.call("GET", path).status for path in READS if "load-status" not in path for _ in range(5)]
        assert set(answers) == {200}
        saved = admin.call("POST", "/api/models", body={"config": config().replace("horse", "foal")})
        assert saved.status == 201, "and writes go through"
    wait_until(
        lambda: sum(row["in_flight"] for row in cluster.replicas("horse")) == 0, what="all have left", within_s=60
    )
