"""Two frontends on PostgreSQL, a bus of their own, and workers that come, go, die and return."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.nats import Nats
from harness.ports import free_port
from harness.postgres import Postgres
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import wait_until

ADMIN_KEY = "corral-test-admin-key"
TOKEN = "test-registration-token"

pytestmark = pytest.mark.postgres


class Fleet:
    """Short intervals, so that minutes of a real fleet pass in seconds."""

    def __init__(self, directory: Path, nats: Nats, store: str) -> None:
        self.directory = directory
        self.nats = nats
        self._store = store
        self.frontends: dict[str, Program] = {}
        self.workers: dict[str, Program] = {}
        self._ports: dict[str, int] = {}

    def start_frontend(self, name: str, *flags: str) -> Admin:
        port = self._ports.setdefault(name, free_port())
        environment = clean_environment(
            **self.nats.secrets(), CORRAL_STORE=self._store, CORRAL_ADMIN_KEY=ADMIN_KEY, CORRAL_REGISTRATION_TOKEN=TOKEN
        )
        self.frontends[name] = Program(
            "frontend", "--data-dir", str(self.directory / name), "--listen", f"127.0.0.1:{port}",
            "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4", "--health-interval", "0.5",
            *flags, log=self.directory / f"{name}.log", environment=environment,
        )  # fmt: skip
        admin = self.admin(name)
        wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what=f"{name} is ready", within_s=30)
        return admin

    def admin(self, name: str) -> Admin:
        return Admin(f"http://127.0.0.1:{self._ports[name]}", ADMIN_KEY)

    def start_worker(
        self, name: str, *flags: str, frontend: str = "a", token: str | None = TOKEN, data: str | None = None
    ) -> Program:
        join = () if token is None else ("--token", token)
        program = Program(
            "worker", "--join", self.admin(frontend).url, *join, "--name", name,
            "--data-dir", str(self.directory / (data or name)), *flags, log=self.directory / f"{name}-{data}.log",
        )  # fmt: skip
        self.workers[f"{name}-{data}"] = program
        return program

    def start_again(self, data: str) -> Program:
        program = Program("worker", "--data-dir", str(self.directory / data), log=self.directory / f"{data}-again.log")
        self.workers[f"{data}-again"] = program
        return program

    def stop(self) -> None:
        for program in (*self.workers.values(), *self.frontends.values()):
            if program.process.poll() is None:
                program.kill()


@pytest.fixture
def fleet(tmp_path: Path, nats: Nats, postgres_url: str) -> Iterator[Fleet]:
    running = Fleet(tmp_path, nats, postgres_url)
    yield running
    running.stop()


def _told(admin: Admin) -> dict[str, tuple[Any, ...]]:
    return {
        name: (node["id"], node["status"], node["status_reason"], node["epoch"], node["labels"])
        for name, node in admin.nodes().items()
    }


def _told_if_beaten(admin: Admin, names: tuple[str, ...], *, seconds: float) -> dict[str, tuple[Any, ...]] | None:
    """What it tells of all nodes, once these have beaten lately."""
    is_beaten = all(admin.nodes()[name]["last_seen_age_s"] < seconds for name in names)
    return _told(admin) if is_beaten else None


_started: dict[str, float] = {}


def _passed(seconds: float, what: str) -> bool:
    """True once `seconds` have gone by since first asked; for showing that something does NOT happen."""
    return time.monotonic() - _started.setdefault(what, time.monotonic()) > seconds


def test_both_frontends_show_the_same_and_either_may_die(fleet: Fleet) -> None:
    first, second = fleet.start_frontend("a"), fleet.start_frontend("b")
    fleet.start_worker("one")
    fleet.start_worker("two", frontend="b")
    for name in ("one", "two"):
        first.wait_for_status(name, "pending")
        node = second.nodes()[name]
        assert second.call("POST", f"/api/nodes/{node['id']}/approve").status == 200
    for name in ("one", "two"):
        first.wait_for_status(name, "healthy")
    assert _told(first) == _told(second)
    assert len(first.call("GET", "/api/status").json()["frontends"]) == 2

    for dead, alive in (("a", second), ("b", first)):
        fleet.frontends[dead].kill()
        seen = wait_until(
            partial(_told_if_beaten, alive, ("one", "two"), seconds=1.0),
            what="both workers beat at the frontend that is left",
        )
        if dead == "a":
            # Long enough for the other one to take over the health pass (a lease of 15 s) and to judge silence.
            wait_until(partial(_passed, 18.0, dead), what="a verdict was due", within_s=30)
        assert _told(alive) == seen
        assert {node["status"] for node in alive.nodes().values()} == {"healthy"}
        fleet.start_frontend(dead)


def test_a_worker_killed_with_9_becomes_offline_and_returns_as_itself(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    worker = fleet.start_worker("one")
    before = admin.wait_for_status("one", "healthy")
    labels = {"room": "b2"}
    assert admin.call("PATCH", f"/api/nodes/{before['id']}/labels", body=labels).status == 200
    assert admin.call("PUT", f"/api/nodes/{before['id']}/vram-budget", body={"value": "80%"}).status == 200
    worker.kill()
    gone = admin.wait_for_status("one", "offline")
    assert "no heartbeat" in gone["status_reason"]
    # A machine that is known needs no flags: address, name and token are in its data directory.
    fleet.start_again("one")
    back = admin.wait_for_status("one", "healthy")
    assert back["id"] == before["id"]
    assert back["epoch"] == before["epoch"] + 1
    assert back["operator_labels"] == labels
    assert back["vram_budget"] == "80%"


def test_a_worker_that_is_asked_to_stop_leaves_cleanly_and_stays_offline(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    worker = fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    assert worker.stop() == 0
    # The last heartbeat is still fresh; that must not bring it back.
    assert admin.nodes()["one"]["status"] == "offline"
    assert admin.nodes()["one"]["status_reason"] == "deregistered by its worker"
    events = admin.call("GET", "/api/audit").json()
    wait_until(
        lambda: [event for event in admin.call("GET", "/api/audit").json() if event["action"] == "node.left"],
        what="the good-bye is in the audit log",
    )
    assert admin.nodes()["one"]["status"] == "offline", events


def test_the_store_restarting_loses_nobody(fleet: Fleet, postgres: Postgres) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    node = admin.wait_for_status("one", "healthy")
    for how in (signal.SIGINT, signal.SIGQUIT):
        postgres.stop(how)
        answer = admin.call("GET", "/api/nodes")
        assert answer.status == 503, answer.body
        assert "retry-after" in answer.headers
        assert call("GET", f"{admin.url}/readyz").status == 503
        assert call("GET", f"{admin.url}/healthz").status == 200
        postgres.start()
        wait_until(lambda: admin.call("GET", "/api/nodes").status == 200, what="the frontend answers again")
        assert admin.nodes()["one"]["epoch"] == node["epoch"]
        admin.wait_for_status("one", "healthy")


def test_the_bus_restarting_loses_nobody(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    node = admin.wait_for_status("one", "healthy")
    fleet.nats.stop()
    wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 503, what="the frontend is not ready without a bus")
    wait_until(lambda: call("GET", f"http://{node['http_address']}/readyz").status == 503, what="nor is the worker")
    fleet.nats.start()
    wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what="the frontend is ready again")
    wait_until(lambda: call("GET", f"http://{node['http_address']}/readyz").status == 200, what="so is the worker")
    assert admin.wait_for_status("one", "healthy")["epoch"] == node["epoch"]


def test_a_removed_machine_is_cut_off_and_has_to_be_approved_again(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a")
    first = fleet.start_worker("one")
    admin.wait_for_status("one", "pending")
    first.kill()
    fleet.start_again("one")
    node = admin.wait_for_status("one", "pending")
    admin.call("POST", f"/api/nodes/{node['id']}/approve")
    admin.wait_for_status("one", "healthy")
    assert admin.call("DELETE", f"/api/nodes/{node['id']}").status == 200
    back = admin.wait_for_status("one", "pending")
    assert back["id"] != node["id"]
    assert not back["approved"]


def test_a_copied_data_directory_is_fenced_and_shown(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    original = fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    original.send(signal.SIGSTOP)  # no temporary file of it vanishes under the copy
    shutil.copytree(fleet.directory / "one", fleet.directory / "copy")
    original.send(signal.SIGCONT)
    fleet.start_worker("one", data="copy", token=None)
    # The newer process is the node now; the older one must stop by itself and say why.
    assert original.wait(30) == 1
    assert "a newer process has registered" in original.output()
    node = admin.wait_for_status("one", "healthy")
    assert node["epoch"] == 2
    assert "older process" in node["conflict"]["message"]


def test_a_second_machine_under_a_name_in_use_is_refused_and_shown(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one")
    before = admin.wait_for_status("one", "healthy")
    second = fleet.start_worker("one", data="other-machine")
    second.wait_for_output("another machine is registered as 'one'")
    node = wait_until(lambda: (n := admin.nodes()["one"])["conflict"] and n, what="the conflict is shown")
    assert "second machine" in node["conflict"]["message"]
    assert (node["id"], node["status"], node["epoch"]) == (before["id"], "healthy", before["epoch"])


def test_a_wrong_token_is_refused_with_a_clear_message(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    worker = fleet.start_worker("one", token="wrong")
    assert worker.wait(30) == 1
    assert "invalid registration token" in worker.output()
    assert admin.nodes() == {}


def test_a_paused_worker_is_suspected_then_gone_and_rejoins_when_it_wakes(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    worker = fleet.start_worker("one")
    node = admin.wait_for_status("one", "healthy")
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        admin.wait_for_status("one", "unhealthy")
        admin.wait_for_status("one", "offline")
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert admin.wait_for_status("one", "healthy")["epoch"] == node["epoch"]


def test_a_drained_node_stays_drained_over_a_restart_of_its_worker(fleet: Fleet) -> None:
    admin = fleet.start_frontend("a", "--auto-approve")
    worker = fleet.start_worker("one")
    node = admin.wait_for_status("one", "healthy")
    assert admin.call("POST", f"/api/nodes/{node['id']}/drain").status == 200
    admin.wait_for_status("one", "draining")
    worker.kill()
    admin.wait_for_status("one", "offline")
    fleet.start_worker("one")
    admin.wait_for_status("one", "draining")
    assert admin.call("POST", f"/api/nodes/{node['id']}/resume").status == 200
    assert admin.nodes()["one"]["status"] == "healthy"


@pytest.mark.parametrize(
    ("what", "environment", "flags", "code", "words"),
    [
        ("store", {"CORRAL_STORE": "postgresql://corral@127.0.0.1:1/x"}, (), 3, "cannot connect to the store"),
        ("bus", {"CORRAL_BUS": "nats://127.0.0.1:1"}, (), 3, "cannot connect to the message bus"),
        ("seed", {"CORRAL_BUS_ACCOUNT_SEED_FILE": "/nonexistent"}, (), 2, "CORRAL_BUS_ACCOUNT_SEED_FILE"),
        ("duration", {"CORRAL_HEARTBEAT_INTERVAL": "-5s"}, (), 2, "CORRAL_HEARTBEAT_INTERVAL"),
        ("empty token", {"CORRAL_REGISTRATION_TOKEN": ""}, (), 2, "CORRAL_REGISTRATION_TOKEN"),
        ("empty key", {"CORRAL_ADMIN_KEY": " "}, (), 2, "CORRAL_ADMIN_KEY"),
        ("open bind", {}, ("--no-auth", "--listen", "0.0.0.0:1"), 2, "without credentials"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) and value.replace(" ", "").isalpha() else None,
)
def test_a_frontend_that_cannot_start_says_why_and_with_which_setting(
    tmp_path: Path,
    nats: Nats,
    what: str,
    environment: dict[str, str],
    flags: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    listen = () if "--listen" in flags else ("--listen", f"127.0.0.1:{free_port()}")
    program = Program(
        "frontend", "--data-dir", str(tmp_path / "f"), *listen, *flags,
        log=tmp_path / "log", environment=clean_environment(**{**nats.secrets(), **environment}),
    )  # fmt: skip
    assert program.wait(30) == code, program.output()
    assert words in program.output()
    assert "Traceback" not in program.output()


def test_a_frontend_without_bus_credentials_does_not_start_unless_told_to(tmp_path: Path, nats: Nats) -> None:
    program = Program(
        "frontend", "--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}", "--bus", nats.url,
        log=tmp_path / "log",
    )  # fmt: skip
    assert program.wait(30) == 2
    assert "needs credentials" in program.output()
