"""To be shown 5, F-40: orders that contradict each other, at once, on two frontends."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.fleet import OperationFleet
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

BACKENDS = ("b1", "b2", "b3", "b4", "b5")
ROUNDS = {"postgresql": 20, "sqlite": 6}
"""For each backend. A file has one writer at a time; what two can do to one another, they do on a server."""


def test_install_and_delete_at_once_end_with_the_newer_every_time(fleet: OperationFleet, store: str) -> None:
    digests = {name: fleet.offer_image(name, {"run.sh": b"#!/bin/sh\n", "name": name.encode()}) for name in BACKENDS}
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    for job in [fleet.begin(f"/api/backends/install/{name}") for name in BACKENDS]:
        fleet.wait_for_operation(job)
    won: Counter[str] = Counter()

    def contend(name: str) -> None:
        for number in range(ROUNDS[store.partition(":")[0]]):
            won[contradict(fleet, name, digests[name], number)] += 1

    with ThreadPoolExecutor(len(BACKENDS)) as crowd:
        for _ in crowd.map(contend, BACKENDS):
            pass
    live = [row for row in admin.call("GET", "/api/intents").json() if row["due_at"] is not None]
    assert live == []
    assert set(won) == {"install", "delete"}, f"neither side won every time: {won}"


def contradict(fleet: OperationFleet, name: str, digest: str, number: int) -> str:
    """One says install, the other delete; the verb that was the newer."""
    jobs: dict[str, str] = {}
    both = threading.Barrier(2)
    # Looking up what to install takes a moment; with the delete a little later, each comes last sometimes.
    later_s = {"install": 0.0, "delete": number % 5 * 0.01}

    def ask(verb: str, frontend: str) -> None:
        both.wait(10)
        time.sleep(later_s[verb])
        jobs[verb] = fleet.begin(f"/api/backends/{verb}/{name}", frontend=frontend)

    first, second = ("a", "b") if number % 2 else ("b", "a")
    threads = [threading.Thread(target=ask, args=pair) for pair in (("install", first), ("delete", second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
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
    verb: str = newest["verb"]
    return verb
