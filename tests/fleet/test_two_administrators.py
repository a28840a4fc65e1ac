"""To be shown 5, F-40: orders that contradict each other, at once, on two frontends."""

import threading
import time
from typing import Any

import pytest

from harness.fleet import OperationFleet
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

ROUNDS = {"postgresql": 100, "sqlite": 30}
"""A file has one writer at a time; what two can do to one another, they do on a server."""


def test_install_and_delete_at_once_end_with_the_newer_every_time(fleet: OperationFleet, store: str) -> None:
    digest = fleet.offer_image("echo", {"run.sh": b"#!/bin/sh\nexec sleep 60\n"})
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    node_id = admin.nodes()["one"]["id"]
    seen: dict[str, int] = {"install": 0, "delete": 0}
    for number in range(ROUNDS[store.partition(":")[0]]):
        jobs: dict[str, str] = {}
        both = threading.Barrier(2)

        # Looking up what to install takes a moment; with the delete a little later, each comes last sometimes.
        later_s = {"install": 0.0, "delete": number % 5 * 0.01}

        def ask(
            verb: str,
            frontend: str,
            jobs: dict[str, str] = jobs,
            both: threading.Barrier = both,
            later_s: dict[str, float] = later_s,
        ) -> None:
            both.wait(10)
            time.sleep(later_s[verb])
            jobs[verb] = fleet.begin(f"/api/backends/{verb}/echo", frontend=frontend)

        first, second = ("a", "b") if number % 2 else ("b", "a")
        threads = [threading.Thread(target=ask, args=pair) for pair in (("install", first), ("delete", second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert set(jobs) == {"install", "delete"}, "both were admitted"

        def both_ended(jobs: dict[str, str] = jobs) -> list[dict[str, Any]] | None:
            rows = admin.call("GET", f"/api/intents?node_id={node_id}&backend=echo&limit=2").json()
            # A delete that came first, with nothing there to delete, has given no order.
            ours = [row for row in rows if row["operation_id"] in jobs.values()]
            return ours if all(row["due_at"] is None for row in ours) else None

        rows = wait_until(both_ended, what=f"round {number}: both have ended", every_s=0.02)
        (newest,) = [row for row in rows if row["newest"]]
        seen[newest["verb"]] += 1
        states = {verb: fleet.operation(job)["state"] for verb, job in jobs.items()}
        other = "delete" if newest["verb"] == "install" else "install"
        assert states[newest["verb"]] == "completed"
        assert states[other] in ("cancelled", "completed")
        expected = {"one": digest} if newest["verb"] == "install" else {}
        assert fleet.digests("echo") == expected, (number, newest)
        assert fleet.digests("echo", frontend="b") == expected
        installed = (fleet.worker_dir("one") / "backends" / "echo" / "current").exists()
        assert installed == (newest["verb"] == "install")
    live = [row for row in admin.call("GET", "/api/intents").json() if row["due_at"] is not None]
    assert live == []
    assert min(seen.values()) > 0, f"neither side won every time: {seen}"
