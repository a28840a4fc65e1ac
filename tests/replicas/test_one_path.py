"""A node that is silent on one path only, its heartbeats or the message bus, does not keep its replicas from serving
elsewhere, and ends them itself.

Limits are scaled down so that this takes a minute. `./dev test --full-length tests/replicas/test_one_path.py` uses the
defaults and blocks the path for three minutes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cluster import SHORT_LIMITS, Cluster, ask
from harness.nats import Nats
from harness.proxy import Proxy, ProxyThread
from harness.tiny_model import Shelf
from harness.waiting import wait_until


@dataclass(frozen=True)
class Pace:
    limits: tuple[str, ...]
    blocked_s: float
    """So long at least."""
    offline_within_s: float
    leases_end: bool
    """Within that time. By default they last for half an hour."""


SHORT = Pace(limits=(*SHORT_LIMITS, "--disconnect-grace", "6"), blocked_s=0.0, offline_within_s=30.0, leases_end=True)
FULL = Pace(limits=(), blocked_s=180.0, offline_within_s=120.0, leases_end=False)


@pytest.fixture
def pace(full_length: bool) -> Pace:
    return FULL if full_length else SHORT


@pytest.fixture
def cluster(tmp_path: Path, nats: Nats, postgres_url: str, engine: Path, pace: Pace) -> Iterator[Cluster]:
    running = Cluster(tmp_path, nats, postgres_url, engine=engine, limits=pace.limits)
    yield running
    running.stop()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("path", "words"),
    [("bus", "does not answer on the message bus"), ("http", "no heartbeats received, but it still answers")],
)
def test_replicas_of_a_node_silent_on_one_path_are_replaced_and_end(
    cluster: Cluster, shelf: Shelf, lines: dict[str, ProxyThread], pace: Pace, path: str, words: str
) -> None:
    through = f"http://127.0.0.1:{lines['http'].port}"
    admin = cluster.start_frontend("a", "--public-url", through)
    cluster.start_frontend("b", "--public-url", through)
    cluster.start_worker("w1", "--join", through, "--bus", f"nats://127.0.0.1:{lines['bus'].port}")
    cluster.start_worker("w2")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": 2, "max_replicas": 2}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    cluster.wait_for_ready("tiny", 2)
    cluster.start_worker("w3")
    ids = {name: node["id"] for name, node in admin.nodes().items()}
    assert {row["node_id"] for row in cluster.ready("tiny")} == {ids["w1"], ids["w2"]}
    lines[path].do(Proxy.refuse)
    began_s = time.monotonic()
    told: dict[str, float] = {}
    unanswered: list[str] = []

    def note(what: str) -> None:
        told[what] = round(time.monotonic() - began_s, 1)

    def answered() -> bool:
        asked_s = time.monotonic()
        answer = ask(admin, "tiny")
        told["slowest answer"] = max(told.get("slowest answer", 0.0), round(time.monotonic() - asked_s, 1))
        if answer.status != 200:
            unanswered.append(f"after {time.monotonic() - began_s:.1f} s: {answer.status} {answer.body!r}")
        return not unanswered

    def offline() -> bool:
        return answered() and admin.nodes()["w1"]["status"] == "offline"

    wait_until(offline, what="the node is offline", within_s=pace.offline_within_s, every_s=0.5)
    note("offline")
    assert words in admin.nodes()["w1"]["status_reason"]

    def restored() -> bool:
        return answered() and {row["node_id"] for row in cluster.ready("tiny")} == {ids["w2"], ids["w3"]}

    wait_until(restored, what="two serve again", within_s=60, every_s=0.5)
    note("replaced")
    if path == "bus" or pace.leases_end:  # the answer to a heartbeat revokes it; where none arrives its lease ends it
        wait_until(lambda: not cluster.engines("w1"), what="the process of the silent node ends", within_s=60)
        note("ended")
    statuses: set[str] = set()

    def is_long_enough() -> bool:
        statuses.add(admin.nodes()["w1"]["status"])
        return answered() and time.monotonic() - began_s >= pace.blocked_s

    wait_until(
        is_long_enough,
        what="the path has been blocked for long enough",
        within_s=pace.blocked_s + 10,
        every_s=0.5,
    )
    assert unanswered == [], "one replica served all the time"
    assert statuses == {"offline"}, "the path that works does not bring it back"
    assert {row["node_id"] for row in cluster.replicas("tiny")} == {ids["w2"], ids["w3"]}

    lines[path].do(Proxy.mend)
    note("mended")
    admin.wait_for_status("w1", "healthy", within_s=60)
    note("healthy")
    if "ended" not in told:
        wait_until(lambda: not cluster.engines("w1"), what="the process of the node that is back ends", within_s=30)
        note("ended")
    print(f"{path} blocked: {told} (seconds)")
    assert {row["node_id"] for row in cluster.replicas("tiny")} == {ids["w2"], ids["w3"]}
    assert not cluster.engines("w1"), "no more than max_replicas serve"
