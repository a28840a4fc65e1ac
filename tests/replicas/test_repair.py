"""What was lost comes back by itself: rows, machines, processes."""

import os
import signal
import time
from typing import Any

from harness.cluster import Cluster, ask
from harness.machine_speed import promised
from harness.programs import Admin
from harness.single_worker import end_marked
from harness.tiny_model import Shelf
from harness.waiting import wait_until


def add_model(admin: Admin, shelf: Shelf, *, replicas: int, **more: Any) -> None:
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny")}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": replicas, **more}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200


def test_after_a_restart_with_all_rows_gone_the_minimum_is_restored_with_no_traffic(
    cluster: Cluster, shelf: Shelf
) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    cluster.start_worker("w2")
    add_model(admin, shelf, replicas=2)
    before = cluster.wait_for_ready("tiny", 2)
    cluster.frontends["a"].kill()
    for memory in ("replicas", "load_jobs", "footprints"):
        cluster.run_sql(f"DELETE FROM {memory}")
    began = time.monotonic()
    cluster.start_frontend()
    after = cluster.wait_for_ready("tiny", 2)
    print(f"two replicas {time.monotonic() - began:.1f} s after the frontend was started again")
    assert {row["node_id"] for row in after} == {row["node_id"] for row in before}
    assert ask(admin, "tiny").status == 200


def test_a_dead_machines_replica_is_rebuilt_elsewhere(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    for name in ("w1", "w2"):
        cluster.start_worker(name)
    add_model(admin, shelf, replicas=2)
    cluster.wait_for_ready("tiny", 2)
    cluster.start_worker("w3")
    dead = admin.nodes()["w1"]["id"]
    cluster.workers["w1"].kill()
    end_marked(cluster.directory / "w1")
    began = time.monotonic()

    def rebuilt() -> bool:
        rows = cluster.ready("tiny")
        assert ask(admin, "tiny").status == 200, "nobody notices"
        return len(rows) == 2 and dead not in {row["node_id"] for row in rows}

    wait_until(rebuilt, what="the replica is rebuilt", within_s=60)
    print(f"rebuilt {time.monotonic() - began:.1f} s after the death")


def test_a_process_that_is_gone_is_noticed_and_replaced(cluster: Cluster, shelf: Shelf) -> None:
    """INV-18. Killed with its shim, so that nobody starts it again: the worker's own table is the evidence."""
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add_model(admin, shelf, replicas=1)
    [before] = cluster.wait_for_ready("tiny", 1)
    end_marked(cluster.directory / "w1")

    def served_again() -> bool:
        rows = cluster.ready("tiny")
        return len(rows) == 1 and ask(admin, "tiny").status == 200

    wait_until(served_again, what="it serves again", within_s=60)
    assert before["model_name"] == "tiny"


def test_a_killed_process_is_off_the_routes_within_a_second_and_nobody_is_refused(
    cluster: Cluster, shelf: Shelf
) -> None:
    """F-10: started again by its worker, which tells at once; requests wait for it meanwhile."""
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add_model(admin, shelf, replicas=1, max_replicas=1)
    [before] = cluster.wait_for_ready("tiny", 1)

    def shown() -> tuple[str, str]:
        [replica] = admin.call("GET", "/api/why/models/tiny").json()["replicas"]
        return replica["corral_state"], replica.get("reason", "")

    def routed() -> bool:
        return bool(admin.call("GET", "/api/nodes/models").json())

    assert shown() == ("ready", "")
    assert routed()
    [engine] = cluster.engines("w1")
    os.kill(engine, signal.SIGKILL)
    killed_s = time.monotonic()

    def seen_gone() -> tuple[str, str] | None:
        state = shown()
        return state if state[0] != "ready" and not routed() else None

    with promised("to see that it is gone", within_s=1):
        # In one look: a moment later it may be back.
        seen = wait_until(seen_gone, what="it is seen", every_s=0.01)
    assert seen == ("loading", "its process on w1 is restarting")
    answer = ask(admin, "tiny")
    print(f"answered again after {time.monotonic() - killed_s:.2f} s")
    assert answer.status == 200, answer.body
    [after] = cluster.replicas("tiny")
    assert after["id"] == before["id"], "the same replica, not another one"


def test_silence_is_not_death(cluster: Cluster, shelf: Shelf) -> None:
    """INV-20. F-19: the bus comes and goes; nothing is reaped, nothing is loaded again."""
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add_model(admin, shelf, replicas=1)
    [before] = cluster.wait_for_ready("tiny", 1)
    for _ in range(3):
        cluster.nats.stop()
        cluster.nats.start()
        time.sleep(1)  # how long the link is up is the fault itself
        assert ask(admin, "tiny").status == 200
    admin.wait_for_status("w1", "healthy")
    [after] = cluster.wait_for_ready("tiny", 1)
    assert (after["id"], after["address"]) == (before["id"], before["address"])
