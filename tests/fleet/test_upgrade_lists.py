"""What is newer, as every frontend tells it: also of what it did not look up or upgrade itself."""

from pathlib import Path
from typing import Any

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files

pytestmark = pytest.mark.registry


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Frontends share whatever they have: one database is enough."""
    return f"sqlite://{tmp_path / 'shared.db'}"


def is_current(fleet: Cluster, frontend: str) -> list[bool]:
    (entry,) = fleet.admin(frontend).call("GET", "/api/fleet/backends").json()
    return [node["current"] for node in entry["nodes"]]


def available(fleet: Cluster, frontend: str) -> dict[str, Any]:
    return {name: upgrade["available_digest"] for name, upgrade in fleet.upgrades(frontend=frontend).items()}


def test_every_frontend_shows_the_same_upgrades_that_nobody_looked_for_before(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    both = ("a", "b")
    for name in both:
        fleet.start_frontend(name, "--auto-approve", "--gallery-refresh", "1h")
    fleet.start_worker("one")
    fleet.admin().wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    for name in both:
        assert (available(fleet, name), is_current(fleet, name)) == ({}, [True])

    # Upgraded without a look at the list: what it had before is nowhere told to be newer.
    second = fleet.offer_image("echo", localai_files("2"), tag="2")
    fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo"))
    for name in both:
        assert (available(fleet, name), is_current(fleet, name)) == ({}, [True])
    fleet.wait_for_operation(fleet.begin("/api/backends/echo/rollback", frontend="b"))
    assert fleet.digests("echo") == {"one": first}
    for name in both:
        assert (available(fleet, name), is_current(fleet, name)) == ({"echo": second}, [False])

    # Asked for, and refused because there is nothing in it to start: it is still to come.
    empty = fleet.offer_image("echo", {"README": b"nothing"}, tag="3")
    fleet.wait_for_statuses(fleet.begin("/api/backends/upgrade/echo", {"unpin": True}), {"one": "error"})
    for name in both:
        assert (available(fleet, name), is_current(fleet, name)) == ({"echo": empty}, [False])

    good = fleet.offer_image("echo", localai_files("4"), tag="4")
    asked = fleet.post("/api/backends/upgrades/check?wait=true")
    assert asked.json() == {"message": "galleries and registries were refreshed"}
    assert available(fleet, "a") == {"echo": good}
    fleet.wait_for(lambda: available(fleet, "b") == {"echo": good}, "the other frontend has looked too")
