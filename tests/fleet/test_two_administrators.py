"""To be shown 5, F-40: orders that contradict each other, at once, on two frontends."""

import threading

import pytest

from harness.fleet import OperationFleet
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

ROUNDS = 100


def test_install_and_delete_at_once_end_with_the_newer_a_hundred_times(fleet: OperationFleet) -> None:
    digest = fleet.offer_image("echo", {"run.sh": b"#!/bin/sh\nexec sleep 60\n"})
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_frontend("b", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    node_id = admin.nodes()["one"]["id"]
    seen: dict[str, int] = {"install": 0, "delete": 0}
    for number in range(ROUNDS):
        jobs: dict[str, str] = {}
        both = threading.Barrier(2)

        def ask(verb: str, frontend: str, jobs: dict[str, str] = jobs, both: threading.Barrier = both) -> None:
            both.wait(10)
            jobs[verb] = fleet.begin(f"/api/backends/{verb}/echo", frontend=frontend)

        first, second = ("a", "b") if number % 2 else ("b", "a")
        threads = [threading.Thread(target=ask, args=pair) for pair in (("install", first), ("delete", second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert set(jobs) == {"install", "delete"}, "both were admitted"
        (newest,) = [
            row
            for row in admin.call("GET", f"/api/intents?node_id={node_id}&backend=echo&limit=2").json()
            if row["newest"]
        ]
        seen[newest["verb"]] += 1
        states = {}

        def both_ended(states: dict[str, str] = states, jobs: dict[str, str] = jobs) -> bool:
            states.update({verb: fleet.operation(job)["state"] for verb, job in jobs.items()})
            return "running" not in states.values()

        wait_until(both_ended, what=f"round {number}: both have ended, {states}")
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
