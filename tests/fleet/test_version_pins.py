"""A pinned version is desired state: nodes get it whenever they join, whatever the galleries and registries do."""

from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files

pytestmark = pytest.mark.registry

# Time between attempts to look a digest up again, as there is with the defaults.
PATIENT = ("--backend-max-attempts", "5", "--backend-retry-base", "3", "--backend-retry-max", "6")


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Pins are tested on both databases in tests/store: one is enough for the whole."""
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.mark.postgres
def test_a_version_nobody_has_is_found_at_its_source_and_a_rebuilt_one_is_looked_up_again(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"), tag="1.0", version="1.0")
    fleet.offer_image("echo", localai_files("2"), tag="2.0", version="2.0")
    admin = fleet.start_frontend("a", "--auto-approve", *PATIENT)
    one = fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo@1.0"))
    assert fleet.digests("echo") == {"one": first}
    [pin] = admin.call("GET", "/api/pins").json()
    assert (pin["version"], pin["builds"][0]["digest"], pin["created_by"]) == ("1.0", first, "key admin")

    one.stop()
    admin.wait_for_status("one", "offline")
    rebuilt = fleet.registry.push("echo", localai_files("1, rebuilt"), tag="1.0")
    fleet.registry.forget("echo", first)
    fleet.start_worker("two")
    fleet.wait_until_on("two", "echo", rebuilt, within_s=90)
    [pin] = admin.call("GET", "/api/pins").json()
    assert (pin["version"], pin["builds"][0]["digest"]) == ("1.0", rebuilt)
    fleet.start_worker("one")
    fleet.wait_for_digests("echo", {"one": rebuilt, "two": rebuilt}, within_s=60)
    [why] = admin.call("GET", "/api/why/backends/echo?node=two").json()["nodes"]
    assert why["version_reason"].startswith("pinned to 1.0 since ")
    assert why["upgrade"].endswith("; 2.0 available")


@pytest.mark.postgres
def test_a_cancelled_upgrade_is_taken_back_also_where_it_was_done(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    admin = fleet.start_frontend("a", "--auto-approve")
    for name in ("one", "two"):
        fleet.start_worker(name)
        admin.wait_for_status(name, "healthy")
    both = {"nodes": ["one", "two"]}
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", both))
    fleet.workers["two"].stop()
    admin.wait_for_status("two", "offline")
    second = fleet.offer_image("echo", localai_files("2"))
    upgrade = fleet.begin("/api/backends/upgrade/echo", both)
    fleet.wait_until_on("one", "echo", second)
    assert fleet.post(f"/api/operations/{upgrade}/cancel").status == 200
    fleet.wait_until_on("one", "echo", first, within_s=60)
    fleet.start_worker("two")
    fleet.wait_for_digests("echo", {"one": first, "two": first}, within_s=60)
