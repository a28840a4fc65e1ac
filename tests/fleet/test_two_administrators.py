"""To be shown 5, F-40: orders that contradict each other, at once, on two frontends."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.cluster import Cluster
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

BACKENDS = tuple(f"b{number}" for number in range(10))
ROUNDS, FULL_ROUNDS = 4, 10
"""For each backend."""


def test_install_and_delete_at_once_end_with_the_newer_every_time(fleet: Cluster, full_length: bool) -> None:
    digests = {name: fleet.offer_image(name, {"run.sh": b"#!/bin/sh\n", "name": name.encode()}) for name in BACKENDS}
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    for job in [fleet.begin(f"/api/backends/install/{name}") for name in BACKENDS]:
        fleet.wait_for_operation(job)
    won: Counter[str] = Counter()

    def contend(name: str) -> None:
        install_took_s = 0.0
        for number in range(FULL_ROUNDS if full_length else ROUNDS):
            verb, install_took_s = contradict(fleet, name, digests[name], number, install_took_s)
            won[verb] += 1

    with ThreadPoolExecutor(len(BACKENDS)) as crowd:
        for _ in crowd.map(contend, BACKENDS):
            pass
    live = [row for row in admin.call("GET", "/api/intents").json() if row["due_at"] is not None]
    assert live == []
    assert set(won) == {"install", "delete"}, f"neither side won every time: {won}"


def contradict(fleet: Cluster, name: str, digest: str, number: int, install_took_s: float) -> tuple[str, float]:
    """One says install, the other delete; the verb that was the newer, and what it took to say install."""
    jobs: dict[str, str] = {}
    took_s: dict[str, float] = {}
    both = threading.Barrier(2)
    # Looking up what to install takes a moment, as it did before; with the delete somewhere in it, each comes last
    # sometimes.
    later_s = {"install": 0.0, "delete": number % 5 / 4 * install_took_s}

    def ask(verb: str, frontend: str) -> None:
        both.wait(60)
        time.sleep(later_s[verb])
        began_s = time.monotonic()
        jobs[verb] = fleet.begin(f"/api/backends/{verb}/{name}", frontend=frontend)
        took_s[verb] = time.monotonic() - began_s

    first, second = ("a", "b") if number % 2 else ("b", "a")
    threads = [threading.Thread(target=ask, args=pair) for pair in (("install", first), ("delete", second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(jobs) == {"install", "delete"}, "both were admitted"

    def both_ended() -> list[dict[str, Any]] | None:
        rows = fleet.admin().call("GET", f"/api/intents?backend={name}&limit=2").json()
        # A delete that came first, with nothing there to delete, has given no order.
        ours = [row for row in rows if row["operation_id"] in jobs.values()]
        return ours if all(row["due_at"] is None for row in ours) else None

    rows = wait_until(both_ended, what=f"round {number} of {name}: both have ended", within_s=40)
    (newest,) = [row for row in rows if row["newest"]]
    states = {verb: fleet.operation(job)["state"] for verb, job in jobs.items()}
    other = "delete" if newest["verb"] == "install" else "install"
    assert states[newest["verb"]] == "completed"
    assert states[other] in ("cancelled", "completed")
    expected = {"one": digest} if newest["verb"] == "install" else {}
    assert fleet.digests(name) == expected, (number, newest)
    assert fleet.digests(name, frontend="b") == expected
    installed = (fleet.worker_dir("one") / "backends" / name / "current").exists()
    assert installed == (newest["verb"] == "install")
    return newest["verb"], took_s["install"]
