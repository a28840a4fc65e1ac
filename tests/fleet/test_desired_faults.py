"""What was asked for outlives exhausted retries, vanished versions, cancels and rollbacks."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.core.backends.build import short_digest
from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.programs import clean_environment, run_cli
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

SOON = ("--backend-max-attempts", "2", "--backend-retry-base", "0.2", "--backend-retry-max", "1")


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each of these is decided in the core and tested on both databases there: one is enough for the whole."""
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=340m", "tmpfs", str(place)])
    if not mounted or mounted.returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.postgres
def test_a_disk_full_until_all_retries_are_exhausted_and_freed_then_gets_what_was_requested(
    fleet: Cluster, small_disk: Path
) -> None:
    digest = fleet.offer_image("echo", {**localai_files("1"), "weights": os.urandom(1 << 20)})
    # Retries by time alone would take an hour: only the disk brings the next one.
    retries = ("--backend-max-attempts", "10", "--backend-retry-base", "0.1", "--backend-retry-max", "0.5")
    for name in ("a", "b"):
        fleet.start_frontend(name, "--auto-approve", *retries)
    fleet.start_worker("small", "--disk-headroom", "1MiB")
    fleet.admin().wait_for_status("small", "healthy")
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (100 << 20))
    asked = fleet.begin("/api/backends/install/echo")
    failed = fleet.wait_for_operation(asked, "failed", within_s=60)
    assert failed["nodes"][0]["attempts"] == 10
    filler.unlink()
    fleet.wait_for_digests("echo", {"small": digest}, within_s=60)
    assert fleet.operation(asked)["state"] == "failed", "what became of the request itself stays to be seen"


@pytest.mark.postgres
def test_a_fleet_rollback_holds_for_machines_that_wait_join_or_are_wiped(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    fleet.start_frontend("a", "--auto-approve", *SOON)
    fleet.start_worker("one")
    late = fleet.start_worker("late")
    for name in ("one", "late"):
        fleet.admin().wait_for_status(name, "healthy")
    late.stop()
    fleet.admin().wait_for_status("late", "offline")
    fleet.begin("/api/backends/install/echo")
    fleet.wait_for_digests("echo", {"one": first})
    second = fleet.offer_image("echo", localai_files("2"))
    upgrade = fleet.begin("/api/backends/upgrade/echo")
    fleet.wait_for_digests("echo", {"one": second})
    nodes = {node["node_name"]: node["digest"] for node in fleet.operation(upgrade)["nodes"]}
    assert nodes == {"one": second, "late": second}, "who still waits for the first install gets the new version"
    fleet.begin("/api/backends/echo/rollback")
    fleet.wait_for_digests("echo", {"one": first})

    fleet.start_worker("late")
    fleet.start_worker("newcomer")
    fleet.wait_for_digests("echo", {"one": first, "late": first, "newcomer": first}, within_s=60)
    fleet.workers["one"].stop()
    fleet.wipe("one")
    fleet.start_worker("one")
    fleet.wait_until_on("one", "echo", first, within_s=60)
    all_of_them = dict.fromkeys(["one", "late", "newcomer"], True)

    def shows_all() -> bool:
        """What a worker has just reported is in the frontend's next answer or the one after."""
        lagging = fleet.upgrades()["echo"]["node_drift"]
        return {node["node_name"]: bool(node["pinned"]) for node in lagging} == all_of_them

    wait_until(shows_all, what="all three are listed as pinned")
    applied = fleet.post("/api/backends/upgrades/apply").json()
    assert (applied["jobs"], applied["refused"]) == ({}, {})
    assert applied["pinned"]["echo"].startswith(f"pinned to {short_digest(first)} since ")
    assert applied["pinned"]["echo"].endswith(
        f"(rolled back from {short_digest(second)}); {short_digest(second)} available"
    )
    refused = fleet.post("/api/backends/upgrade/echo")
    assert (refused.status, "corral backends follow echo" in refused.message) == (409, True)
    fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo", {"unpin": True}))
    fleet.start_worker("last")
    wanted = dict.fromkeys(["one", "late", "newcomer", "last"], second)
    fleet.wait_for_digests("echo", wanted, within_s=60)


@pytest.mark.postgres
def test_a_digest_the_registry_has_no_more_is_looked_up_again_and_an_explicit_one_fails(fleet: Cluster) -> None:
    gone = fleet.offer_image("echo", localai_files("1"))
    # Time between attempts to look it up again, as there is with the defaults.
    fleet.start_frontend("a", "--auto-approve", "--backend-max-attempts", "3", "--backend-retry-base", "3")
    worker = fleet.start_worker("one")
    fleet.admin().wait_for_status("one", "healthy")
    worker.stop()
    fleet.admin().wait_for_status("one", "offline")
    asked = fleet.begin("/api/backends/install/echo", {"nodes": ["one"]})
    exact = {"uri": f"{fleet.registry.host}/echo@{gone}", "name": "exact", "nodes": ["one"]}
    explicit = fleet.begin("/api/backends/install-external", exact)
    there = fleet.offer_image("echo", localai_files("2"))
    fleet.registry.forget("echo", gone)
    fleet.start_worker("one")
    ended = fleet.wait_for_operation(asked, within_s=60)
    assert [node["digest"] for node in ended["nodes"]] == [there]
    audit = fleet.admin().call("GET", "/api/audit").json()
    [told] = [event["detail"]["reason"] for event in audit if event["action"] == "backend.resolved_again"]
    assert "is no longer at its source" in told
    failed = fleet.wait_for_operation(explicit, "failed", within_s=60)
    assert gone in failed["error"]
    told_why = "no version number is known to look it up again"
    wait_until(lambda: told_why in fleet.operation(explicit)["nodes"][0]["error"], what="the reason is shown")


@pytest.mark.postgres
def test_after_a_cancelled_upgrade_of_a_named_machine_its_install_still_holds(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    fleet.start_frontend("a", "--auto-approve", *SOON)
    worker = fleet.start_worker("one")
    fleet.admin().wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["one"]}))
    worker.stop()
    fleet.admin().wait_for_status("one", "offline")
    fleet.offer_image("echo", localai_files("2"))
    for path in ("/api/backends/upgrade/echo", "/api/backends/delete/echo"):
        job = fleet.begin(path, {"nodes": ["one"]})
        assert fleet.post(f"/api/operations/{job}/cancel").status == 200
    fleet.wipe("one")
    fleet.start_worker("one")
    fleet.wait_until_on("one", "echo", first, within_s=60)


def test_a_rolled_back_archive_is_left_alone_and_what_cannot_be_compared_is_said_to_be(
    fleet: Cluster, tmp_path: Path
) -> None:
    """Plain archives have no digest before they have arrived: versions and addresses are all that galleries tell."""

    def archive(version: str) -> str:
        content = tmp_path / f"content-{version}"
        for name, data in localai_files(version).items():
            (content / name).parent.mkdir(parents=True, exist_ok=True)
            (content / name).write_bytes(data)
            (content / name).chmod(0o755)
        made = shutil.make_archive(str(tmp_path / "served" / f"echo-{version}"), "gztar", content)
        return f"file://{made}"

    admin = fleet.start_frontend("a", "--auto-approve", *SOON)
    fleet.offer("echo", uri=archive("1"))
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    first = fleet.digests("echo")["one"]
    unchecked = admin.call("GET", "/api/backends/upgrades/unchecked").json()
    assert [node["node_name"] for node in unchecked["echo"]] == ["one"]
    assert "specifies a version or a digest" in unchecked["echo"][0]["reason"]
    assert fleet.upgrades() == {}

    fleet.offer("echo", uri=archive("2"), version="2.0")
    assert fleet.post("/api/backends/upgrades/check?wait=true").status == 200
    assert fleet.upgrades()["echo"]["available_version"] == "2.0"
    assert admin.call("GET", "/api/backends/upgrades/unchecked").json() == {}
    fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo"))
    assert fleet.upgrades() == {}
    fleet.wait_for_operation(fleet.begin("/api/backends/echo/rollback", {"to": first.removeprefix("sha256:")[:12]}))
    assert fleet.digests("echo") == {"one": first}
    [held] = fleet.upgrades()["echo"]["node_drift"]
    assert held["pinned"]
    assert fleet.post("/api/backends/upgrades/apply").json()["jobs"] == {}
    assert fleet.digests("echo") == {"one": first}


@pytest.mark.parametrize("by", ["cli", "api"])
def test_upgrading_everything_leaves_a_rolled_back_machine_alone_beside_one_that_was_not(
    fleet: Cluster, by: str
) -> None:
    first = fleet.offer_image("echo", localai_files("1"))
    admin = fleet.start_frontend("a", "--auto-approve", *SOON)
    for name in ("behind", "held"):
        fleet.start_worker(name)
        admin.wait_for_status(name, "healthy")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    second = fleet.offer_image("echo", localai_files("2"))
    only = {"nodes": ["held"]}
    fleet.wait_for_operation(fleet.begin("/api/backends/upgrade/echo", only))
    fleet.wait_for_operation(fleet.begin("/api/backends/echo/rollback", only))
    assert fleet.digests("echo") == {"behind": first, "held": first}
    lagging = {node["node_name"]: bool(node["pinned"]) for node in fleet.upgrades()["echo"]["node_drift"]}
    assert lagging == {"behind": False, "held": True}
    if by == "cli":
        environment = clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=admin.key)
        done = run_cli("backends", "upgrade", "--all", environment=environment)
        assert done.returncode == 0, done.stderr
    else:
        fleet.wait_for_operation(fleet.post("/api/backends/upgrades/apply").json()["jobs"]["echo"])
    assert fleet.digests("echo") == {"behind": second, "held": first}
