"""INV-19: a machine that comes back, or hears nobody any more, ends what runs elsewhere by now."""

import os
import signal
import time

from harness.cluster import Cluster, ask
from harness.programs import Admin
from harness.proxy import Proxy, ProxyThread
from harness.tiny_model import Shelf
from harness.waiting import wait_until


def add_model(admin: Admin, shelf: Shelf) -> None:
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny")}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": 1}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200


def wait_until_moved(cluster: Cluster, node_id: str) -> None:
    wait_until(lambda: [row["node_id"] for row in cluster.ready("tiny")] == [node_id], what="replaced", within_s=60)


def test_a_paused_worker_is_told_at_once_what_it_lost_and_can_get_it_again(cluster: Cluster, shelf: Shelf) -> None:
    """F-08, with short limits."""
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add_model(admin, shelf)
    cluster.wait_for_ready("tiny", 1)
    cluster.start_worker("w2")
    nodes = admin.nodes()
    os.kill(cluster.workers["w1"].pid, signal.SIGSTOP)
    wait_until_moved(cluster, nodes["w2"]["id"])
    assert cluster.processes("w1"), "paused is the worker, not what it runs"
    os.kill(cluster.workers["w1"].pid, signal.SIGCONT)
    began_s = time.monotonic()
    wait_until(lambda: not cluster.processes("w1"), what="the process that was given away is ended", within_s=15)
    print(f"ended {time.monotonic() - began_s:.1f} s after the worker went on")
    admin.wait_for_status("w1", "healthy")
    assert ask(admin, "tiny").status == 200

    # The same process key on the same node: words about the first must not end the second.
    cluster.workers["w2"].kill()
    wait_until_moved(cluster, nodes["w1"]["id"])
    [again] = cluster.wait_for_ready("tiny", 1)
    seen_s = time.monotonic()
    wait_until(lambda: time.monotonic() - seen_s > 2, what="several heartbeats were answered")
    assert [row["id"] for row in cluster.ready("tiny")] == [again["id"]]
    assert cluster.processes("w1")
    assert ask(admin, "tiny").status == 200


def test_a_worker_that_is_cut_off_ends_by_its_own_clock_what_runs_elsewhere(
    cluster: Cluster, shelf: Shelf, lines: dict[str, ProxyThread]
) -> None:
    through = f"http://127.0.0.1:{lines['http'].port}"
    # Workers are told of every frontend's public address: with this one there is no way round the line.
    admin = cluster.start_frontend("a", "--disconnect-grace", "8", "--public-url", through)
    cluster.start_worker("w1", "--join", through, "--bus", f"nats://127.0.0.1:{lines['bus'].port}")
    add_model(admin, shelf)
    cluster.wait_for_ready("tiny", 1)
    cluster.start_worker("w2")
    w2 = admin.nodes()["w2"]["id"]
    leases = cluster.directory / "w1" / "leases.json"
    wait_until(lambda: leases.exists() and b"tiny#0" in leases.read_bytes(), what="it holds a lease")

    for line in lines.values():
        line.do(Proxy.refuse)
    began_s = time.monotonic()
    wait_until_moved(cluster, w2)
    assert cluster.processes("w1"), "it serves until its lease is over"
    wait_until(lambda: not cluster.processes("w1"), what="its lease is over", within_s=30)
    took_s = time.monotonic() - began_s
    print(f"ended {took_s:.1f} s after it was cut off")
    assert took_s > 6
    assert ask(admin, "tiny").status == 200

    for line in lines.values():
        line.do(Proxy.mend)
    admin.wait_for_status("w1", "healthy")
    assert [row["node_id"] for row in cluster.ready("tiny")] == [w2]


def test_a_process_that_was_started_after_the_last_heartbeat_was_answered_ends_too(
    cluster: Cluster, shelf: Shelf, lines: dict[str, ProxyThread]
) -> None:
    """Its first lease comes with the command that starts it, so that no process depends on a later heartbeat."""
    through = f"http://127.0.0.1:{lines['http'].port}"
    limits = ("--suspect-after", "10", "--offline-after", "12", "--disconnect-grace", "14")
    admin = cluster.start_frontend("a", *limits, "--public-url", through)
    cluster.start_worker("w1", "--join", through)
    lines["http"].do(Proxy.refuse)
    add_model(admin, shelf)
    wait_until(lambda: bool(cluster.processes("w1")), what="a command on the bus starts it", within_s=30)
    cluster.start_worker("w2")
    w2 = admin.nodes()["w2"]["id"]
    wait_until_moved(cluster, w2)
    wait_until(lambda: not cluster.processes("w1"), what="its first lease is over", within_s=60)


def test_a_process_that_no_row_wants_is_ended(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend("a", "--orphan-grace", "2")
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny")}).status == 201
    assert ask(admin, "tiny").status == 200
    assert cluster.processes("w1")
    cluster.run_sql("DELETE FROM replicas")
    began_s = time.monotonic()
    wait_until(lambda: not cluster.processes("w1"), what="the process that nobody wants is ended", within_s=60)
    print(f"ended {time.monotonic() - began_s:.1f} s after its row was gone")
