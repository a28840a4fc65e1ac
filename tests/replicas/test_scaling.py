"""Numbers follow load: more when all are busy, fewer after a quiet while, none when nobody asks; and room is made."""

import time
from typing import Any

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.held_stream import HeldStream
from harness.programs import Admin
from harness.tiny_model import Shelf
from harness.waiting import wait_until


def add_model(admin: Admin, shelf: Shelf, name: str = "tiny", **more: Any) -> None:
    assert admin.call("POST", "/api/models", body={"config": shelf.config(name, threads=1, **more)}).status == 201


def schedule(admin: Admin, **wanted: Any) -> None:
    answer = admin.call("POST", "/api/nodes/scheduling", body={"model_name": "tiny", **wanted})
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("cluster", ["postgresql"], indirect=True)
def test_a_busy_model_gets_another_replica_and_loses_it_after_a_quiet_while(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend("a", "--scale-cool-down", "3", "--scale-down-after", "2")
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    add_model(admin, shelf)
    schedule(admin, min_replicas=1, max_replicas=2)
    [first] = cluster.wait_for_ready("tiny", 1)
    where = next(name for name, node in admin.nodes().items() if node["id"] == first["node_id"])
    with HeldStream(admin.url, ADMIN_KEY, "tiny", engine=cluster.engines(where)[0]) as stream:
        began_s = time.monotonic()
        rows = cluster.wait_for_ready("tiny", 2)
        print(f"a second replica {time.monotonic() - began_s:.1f} s after the first was busy")
        assert {row["node_id"] for row in rows} == {node["id"] for node in admin.nodes().values()}
        assert ask(admin, "tiny").status == 200, "the other one answers"
        stream.go_on()
        stream.wait()
        assert stream.is_whole
    wait_until(lambda: len(cluster.replicas("tiny")) == 1, what="one is enough again", within_s=30)
    assert sum(len(cluster.engines(name)) for name in ("w1", "w2")) == 1, "the process is really gone"
    quiet_s = time.monotonic()
    wait_until(lambda: time.monotonic() - quiet_s > 4, what="a cool-down and more")
    assert len(cluster.ready("tiny")) == 1, "never below the minimum"
    log = (cluster.directory / "a.log").read_text()
    assert log.count("all replicas are busy") == 1, "one action in a cool-down"


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_model_that_nobody_asks_is_ended_and_comes_back_when_somebody_does(cluster: Cluster, shelf: Shelf) -> None:
    """The idle limit; scheduled with a minimum of zero it is the same. What is pinned has none."""
    idle_s = 2
    admin = cluster.start_frontend("a", "--model-idle-ttl", str(idle_s), "--scale-cool-down", "1")
    cluster.start_worker("w1")
    add_model(admin, shelf)
    add_model(admin, shelf, "kept", pinned="true")
    assert ask(admin, "kept").status == 200
    [kept] = cluster.ready("kept")
    for wanted in (None, {"min_replicas": 0, "max_replicas": 2}):
        if wanted is not None:
            schedule(admin, **wanted)
        for _ in range(8):
            assert ask(admin, "tiny").status == 200
            answered_s = time.monotonic()
            time.sleep(0.5)  # much slower than that and it would be idle; faster proves nothing more
            running = len(cluster.replicas("tiny"))
            if time.monotonic() - answered_s < idle_s / 2:
                assert running == 1, "who is asked is not idle"
        wait_until(lambda: not cluster.replicas("tiny"), what="nobody asks, so nothing runs", within_s=30)
        assert len(cluster.engines("w1")) == 1, "the pinned one alone"
    schedule(admin, min_replicas=1)
    cluster.wait_for_ready("tiny", 1)
    seen_s = time.monotonic()
    wait_until(lambda: time.monotonic() - seen_s > 4, what="longer than the idle limit")
    assert len(cluster.ready("tiny")) == 1, "what is wanted always stays"
    assert [replica["id"] for replica in cluster.ready("kept")] == [kept["id"]]


def test_the_least_recently_used_replica_is_evicted_and_never_a_busy_one(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    for name in ("first", "second", "third"):
        add_model(admin, shelf, name, concurrency_groups="[heavy]")
    assert ask(admin, "first").status == 200
    assert ask(admin, "second").status == 200
    names = {node["id"]: name for name, node in admin.nodes().items()}
    [old], [new] = cluster.ready("first"), cluster.ready("second")
    assert old["node_id"] != new["node_id"], "a group's models do not share a machine"
    wait_until(lambda: ask(admin, "second").status == 200 and _later(cluster), what="it was used later", within_s=30)
    [old_engine] = cluster.engines(names[old["node_id"]])
    assert ask(admin, "third").status == 200
    [third] = cluster.ready("third")
    assert third["node_id"] == old["node_id"]
    assert (cluster.replicas("first"), [row["id"] for row in cluster.ready("second")]) == ([], [new["id"]])
    assert old_engine not in cluster.engines(names[old["node_id"]]), "its process is really gone"
    placed, made_room = admin.call("GET", "/api/why/models/third").json()["decisions"]
    assert (made_room["outcome"]["placed"]["evict"], made_room["outcome"]["ended"]) == ([old["id"]], ["first#0"])
    assert "ended" not in placed["outcome"]

    # Now the third was used last, but the second answers somebody: it stays, though idle for longer.
    with HeldStream(admin.url, ADMIN_KEY, "second", engine=cluster.engines(names[new["node_id"]])[0]) as stream:
        wait_until(
            lambda: [row["in_flight"] for row in cluster.ready("second")] == [1],
            what="its request is known",
            within_s=10,
        )
        assert ask(admin, "first").status == 200
        assert [row["node_id"] for row in cluster.ready("first")] == [third["node_id"]]
        assert [row["id"] for row in cluster.ready("second")] == [new["id"]]
        stream.go_on()
        stream.wait()
        assert stream.is_whole


def _later(cluster: Cluster) -> bool:
    [first], [second] = cluster.ready("first"), cluster.ready("second")
    return bool(second["last_used"] > first["last_used"])


@pytest.mark.parametrize("cluster", ["postgresql"], indirect=True)
def test_what_a_load_took_is_written_down_and_decides_the_next_placement(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add_model(admin, shelf)
    assert ask(admin, "tiny").status == 200

    def measured() -> tuple[Any, ...] | None:
        rows = cluster.read_sql("SELECT model, revision, backend_digest, device, peak_bytes, load_ms FROM footprints")
        return rows[0] if rows and all(rows[0]) else None

    model, revision, digest, device, peak_bytes, load_ms = wait_until(measured, what="its footprint", within_s=30)
    [row] = cluster.ready("tiny")
    assert (model, revision, digest) == ("tiny", row["config_revision"], row["backend_digest"])
    assert device == "cpu"
    assert 10 << 20 < peak_bytes < 4 << 30
    assert 0 < load_ms < 60_000
    assert admin.call("POST", "/api/models/tiny/unload").status == 200
    wait_until(lambda: not cluster.replicas("tiny"), what="it is unloaded")
    cluster.run_sql(f"UPDATE footprints SET peak_bytes = {1 << 50}, slots = 1")
    told = admin.call("GET", "/api/models/tiny/fit").json()
    assert told["fits"] is False
    assert "1024.0 TiB of memory needed" in told["reason"], "measured goes before estimated"


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_file_says_what_runs_before_anybody_asks(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    add_model(admin, shelf)
    cluster.frontends["a"].stop()
    path = cluster.directory / "scheduling.yaml"
    path.write_text("- model_name: tiny\n  replicas: all\n")
    cluster.start_frontend("a", "--model-scheduling-config", str(path))
    rows = cluster.wait_for_ready("tiny", 2)
    assert len({row["node_id"] for row in rows}) == 2
    assert admin.call("GET", "/api/nodes/scheduling/tiny").json()["spread_all"] is True
