"""A build and the family it belongs to are asked for in turn: on each node the newest wish holds, and nobody fights."""

from typing import Any

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.programs import Admin

pytestmark = pytest.mark.registry

ONE = {"nodes": ["one"]}


@pytest.fixture
def admin(fleet: Cluster) -> Admin:
    """One worker; a family with one build, and another backend by which to see that desired state has looked."""
    fleet.offer_image("cpu-echo", localai_files("1"), alias="echo")
    fleet.offer("echo", capabilities={"default": "cpu-echo"})
    fleet.offer_image("sign", {"run.sh": b"#!/bin/sh\n"})
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    return admin


def do(fleet: Cluster, path: str, body: Any = None) -> str:
    job = fleet.begin(f"/api/backends/{path}", body)
    fleet.wait_for_operation(job)
    return job


def orders(admin: Admin) -> list[tuple[str, str, str]]:
    """Oldest first, without those for the sign."""
    rows = reversed(admin.call("GET", "/api/intents").json())
    return [(row["verb"], row["backend"], row["state"]) for row in rows if row["backend"] != "sign"]


def drift(admin: Admin) -> list[Any]:
    listed = admin.call("GET", "/api/fleet/backends").json()
    return [drift for backend in listed for node in backend["nodes"] for drift in node["drift"]]


def exceptions(admin: Admin, backend: str) -> list[tuple[str, str, str, bool]]:
    (policy,) = [one for one in admin.call("GET", "/api/policies").json() if one["backend"] == backend]
    assert policy["exception_count"] == len(policy["exceptions"])
    assert all(one["by"] == "key admin" and one["at"] for one in policy["exceptions"])
    return [(one["node_name"], one["cause"], one["backend"], one["done"]) for one in policy["exceptions"]]


def let_desired_state_look(fleet: Cluster, *, sign_installed_by: str) -> None:
    """It heals the sign only when what ended before that was installed has settled, and all else before the sign."""
    fleet.ask_worker("one", "backend.delete", backend="sign")

    def healed() -> bool:
        rows = fleet.admin().call("GET", "/api/intents?backend=sign").json()
        return bool(rows[0]["operation_id"] != sign_installed_by and rows[0]["state"] == "succeeded")

    fleet.wait_for(healed, "desired state has looked")


@pytest.mark.parametrize("everywhere", [True, False], ids=["deleted-everywhere", "deleted-here"])
@pytest.mark.parametrize("name", ["cpu-echo", "mine"], ids=["a-build-by-name", "an-image-under-the-familys-alias"])
def test_a_build_installed_after_its_family_was_deleted_stays(
    fleet: Cluster, admin: Admin, everywhere: bool, name: str
) -> None:
    do(fleet, "install/echo")
    do(fleet, "delete/echo", None if everywhere else ONE)
    sign = do(fleet, "install/sign")
    if name == "mine":
        uri = f"{fleet.registry.host}/cpu-echo:latest"
        do(fleet, "install-external", {"uri": uri, "name": name, "alias": "echo", **ONE})
    else:
        do(fleet, f"install/{name}", ONE)
    let_desired_state_look(fleet, sign_installed_by=sign)
    done = [("install", "echo", "succeeded"), ("delete", "echo", "succeeded"), ("install", name, "succeeded")]
    assert orders(admin) == done
    assert set(fleet.digests(name)) == {"one"}
    assert drift(admin) == []
    if everywhere:
        assert exceptions(admin, "echo") == [("one", "installed", name, True)]
    else:
        assert exceptions(admin, "echo") == [], "something that goes by this name is there as wanted"


def test_a_family_deleted_after_its_build_was_installed_stays_deleted(fleet: Cluster, admin: Admin) -> None:
    do(fleet, "install/cpu-echo", ONE)
    do(fleet, "delete/echo", ONE)
    sign = do(fleet, "install/sign")
    let_desired_state_look(fleet, sign_installed_by=sign)
    assert orders(admin) == [("install", "cpu-echo", "succeeded"), ("delete", "echo", "succeeded")]
    assert fleet.digests("cpu-echo") == {}
    assert drift(admin) == []


@pytest.mark.parametrize(
    ("first", "then", "has"),
    [
        pytest.param("delete/echo", "install/cpu-echo", True, id="delete-then-install"),
        pytest.param("install/cpu-echo", "delete/echo", False, id="install-then-delete"),
    ],
)
def test_an_intent_of_an_offline_node_is_superseded_by_a_later_one(
    fleet: Cluster, admin: Admin, first: str, then: str, has: bool
) -> None:
    do(fleet, "install/cpu-echo", ONE)
    fleet.workers["one"].kill()
    admin.wait_for_status("one", "offline")
    older = fleet.begin(f"/api/backends/{first}", ONE)
    newer = fleet.begin(f"/api/backends/{then}", ONE)
    lost = fleet.wait_for_operation(older, "cancelled")
    assert lost["nodes"][0]["error"] == f"replaced by operation {newer} ({then.partition('/')[0]})"
    fleet.start_worker("one")
    fleet.wait_for_operation(newer)
    sign = do(fleet, "install/sign")
    let_desired_state_look(fleet, sign_installed_by=sign)
    assert bool(fleet.digests("cpu-echo")) is has
    verb, _, backend = then.partition("/")
    assert orders(admin)[-1] == (verb, backend, "succeeded")


def test_a_machine_that_comes_later_gets_no_build_of_a_family_deleted_since(fleet: Cluster, admin: Admin) -> None:
    """Only after a look into the gallery it is known that they are the same."""
    do(fleet, "install/cpu-echo")
    do(fleet, "delete/echo")
    do(fleet, "install/sign")
    fleet.start_worker("two")
    two = admin.wait_for_status("two", "healthy")
    fleet.wait_for(lambda: "two" in fleet.digests("sign"), "the machine that came has got what is to be everywhere")
    rows = admin.call("GET", f"/api/intents?node_id={two['id']}").json()
    assert [(row["verb"], row["backend"]) for row in rows] == [("install", "sign")]
    assert drift(admin) == [], "what is rightly not there is not missing"
    assert exceptions(admin, "cpu-echo") == [("one", "deleted", "echo", True), ("two", "deleted", "echo", True)]
    assert exceptions(admin, "echo") == exceptions(admin, "sign") == []


def test_a_policy_shows_on_which_nodes_something_else_was_requested_since(fleet: Cluster, admin: Admin) -> None:
    fleet.start_worker("two")
    admin.wait_for_status("two", "healthy")
    do(fleet, "install/echo")
    do(fleet, "install/sign")
    assert exceptions(admin, "echo") == exceptions(admin, "sign") == []
    do(fleet, "delete/echo", ONE)
    do(fleet, "delete/sign", {"nodes": ["two"]})
    assert exceptions(admin, "echo") == [("one", "deleted", "echo", True)]
    assert exceptions(admin, "sign") == [("two", "deleted", "sign", True)]
    fleet.workers["two"].kill()
    admin.wait_for_status("two", "offline")
    fleet.begin("/api/backends/delete/cpu-echo", {"nodes": ["two"]})
    assert exceptions(admin, "echo") == [("one", "deleted", "echo", True), ("two", "deleted", "echo", False)]
    do(fleet, "install/echo", ONE)
    assert exceptions(admin, "echo") == [("two", "deleted", "echo", False)]
    assert drift(admin) == []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["install/echo", "install/cpu-echo"], id="beside-its-family"),
        pytest.param(["install/echo", "delete/echo", "install/cpu-echo"], id="after-its-family"),
        pytest.param(["install/echo", "delete/cpu-echo", "install/cpu-echo"], id="after-itself"),
    ],
)
def test_a_family_is_deleted_with_a_build_that_has_no_alias_and_was_installed_by_its_own_name(
    fleet: Cluster, admin: Admin, steps: list[str]
) -> None:
    """Once it was deleted, the worker knows of no family that the build belongs to."""
    fleet.offer_image("cpu-echo", localai_files("1"))
    for step in (*steps, "delete/echo"):
        do(fleet, step, ONE)
    assert fleet.digests("cpu-echo") == fleet.digests("echo") == {}
    assert not (fleet.worker_dir("one") / "backends" / "cpu-echo").exists()
    assert drift(admin) == []


def test_a_build_that_has_no_alias_and_was_installed_by_its_own_name_is_rolled_back_with_its_family(
    fleet: Cluster, admin: Admin
) -> None:
    first = fleet.offer_image("cpu-echo", localai_files("1"))
    for step in ("install/echo", "delete/echo", "install/cpu-echo"):
        do(fleet, step, ONE)
    fleet.offer_image("cpu-echo", localai_files("2"))
    do(fleet, "upgrade/cpu-echo", ONE)
    assert fleet.digests("cpu-echo") != {"one": first}
    do(fleet, "echo/rollback", ONE)
    fleet.wait_for_digests("cpu-echo", {"one": first})
    assert drift(admin) == []
