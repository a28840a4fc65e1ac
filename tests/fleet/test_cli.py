"""`corral backends` and `corral ops` against a real fleet: what they print, and the exit code that says the same."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from corral.cli.main import main
from harness.cluster import ADMIN_KEY, Cluster
from harness.localai_backend import localai_files, write_localai_backend
from harness.oci_registry import Trickle
from harness.programs import Admin, call, clean_environment, run_cli
from harness.waiting import wait_until

pytestmark = pytest.mark.registry


@pytest.fixture
def store(tmp_path: Any) -> str:
    """The command line knows nothing of databases: one is enough."""
    return f"sqlite://{tmp_path / 'shared.db'}"


class Shell:
    def __init__(self, url: str) -> None:
        self.environment = clean_environment(CORRAL_URL=url, CORRAL_API_KEY=ADMIN_KEY)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = run_cli(*arguments, environment=self.environment)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = run_cli(*arguments, "--json", environment=self.environment)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "corral", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.environment, start_new_session=True,
        )  # fmt: skip


def start(fleet: Cluster, *names: str, **options: Any) -> tuple[Admin, Shell]:
    admin = fleet.start_frontend("a", "--auto-approve", **options)
    for name in names:
        fleet.start_worker(name)
    for name in names:
        admin.wait_for_status(name, "healthy")
    return admin, Shell(admin.url)


def digests(shell: Shell) -> dict[str, str]:
    return {node["node_name"]: node["digest"] for node in shell.json("backends", "list", "echo")[0]["nodes"]}


def test_install_list_upgrade_and_roll_back(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"), version="1.0", description="Says it again. Twice.")
    admin, shell = start(fleet, "one", "two")
    check_available(shell)
    check_install(admin, shell)
    check_policy_exceptions(shell)
    second = fleet.offer_image("echo", localai_files("2"), version="2.0")
    check_rollback_is_kept(shell, first, second)
    third = fleet.offer_image("echo", localai_files("3"), version="3.0")
    check_newer_version(admin, shell, first, third)
    check_delete(shell)
    check_history(shell)


def check_available(shell: Shell) -> None:
    assert "`corral backends available`" in shell.run("backends", "list")
    offered = shell.run("backends", "available")
    assert "echo" in offered
    assert "2 of 2" in offered
    assert "llama-cpp" in offered
    shown = shell.run("backends", "available", "echo")
    assert "Says it again." in shown
    assert "one" in shown
    assert "fits this node (default)" in shown


def check_install(admin: Admin, shell: Shell) -> None:
    shown = shell.run("backends", "install", "echo")
    assert "one: done" in shown
    assert "two: done" in shown
    assert "install echo: done (2 nodes)" in shown
    listed = shell.run("backends", "list").splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [["echo", "one", "1.0"], ["echo", "two", "1.0"]]
    assert shell.json("backends", "list") == admin.call("GET", "/api/fleet/backends").json()
    assert shell.run("backends", "upgrades") == "All backends are up to date.\n"
    policies = shell.json("backends", "policies")
    assert [(policy["backend"], policy["ensure"]) for policy in policies] == [("echo", "present")]
    assert re.search(r"present  +follow  +all ", shell.run("backends", "policies"))


def check_policy_exceptions(shell: Shell) -> None:
    shell.run("backends", "delete", "echo", "--node", "two", "--yes")
    assert re.search(r" all +two \(deleted \d+s ago\)  correct", shell.run("backends", "policies"))
    shell.run("backends", "install", "echo", "--node", "two")
    assert re.search(r" all +-  +correct", shell.run("backends", "policies"))


def check_rollback_is_kept(shell: Shell, first: str, second: str) -> None:
    assert "2.0" in shell.run("backends", "upgrades", "--check")
    ended = shell.json("backends", "upgrade", "--all")
    assert ended["state"] == "completed"
    assert {node["digest"] for node in shell.json("backends", "list", "echo")[0]["nodes"]} == {second}
    assert "rollback echo: done (1 node)" in shell.run("backends", "rollback", "echo", "--node", "two")
    assert digests(shell) == {"one": second, "two": first}
    listed = shell.run("backends", "upgrades")
    assert re.search(
        r"echo on two: pinned to 1\.0 since .* by key admin \(rolled back from 2\.0\); 2\.0 available", listed
    )
    held = shell.run("backends", "upgrade", "--all")
    assert "No upgrades, except for pinned backends." in held
    assert "echo on two: pinned to 1.0 since" in held
    shown = shell.run("backends", "upgrade", "echo", "--node", "two", code=1)
    assert "`corral backends follow echo` lets it follow the galleries again" in shown


def check_newer_version(admin: Admin, shell: Shell, first: str, third: str) -> None:
    assert re.search(
        r"echo +1\.0 +3\.0 +one, two \(pinned\)|echo +2\.0 +3\.0 +one, two \(pinned\)",
        shell.run("backends", "upgrades", "--check"),
    )
    shell.run("backends", "policies", "--drift", "echo", "freeze")
    shown = shell.run("backends", "upgrade", "--all")
    assert "echo: not upgraded: echo is frozen by a policy; `corral backends policies --drift" in shown
    applied = admin.call("POST", "/api/backends/upgrades/apply").json()
    assert (applied["jobs"], list(applied["refused"])) == ({}, ["echo"])
    shell.run("backends", "policies", "--drift", "echo", "correct")
    shell.run("backends", "upgrade", "--all", "--node", "one")
    assert digests(shell) == {"one": third, "two": first}
    assert shell.json("backends", "upgrade", "--all", "--selector", "node.name=one") == [], "that has it already"
    shell.run("backends", "upgrade", "echo", "--unpin")
    assert digests(shell) == {"one": third, "two": third}


def check_delete(shell: Shell) -> None:
    assert "delete echo: done (2 nodes)" in shell.run("backends", "delete", "echo", "--yes")
    assert "no node has" in shell.run("backends", "list").lower()
    choice = shell.run("ops", "show", "echo", code=1).splitlines()
    assert choice[0].split() == ["OPERATION", "ACTION", "BACKEND", "REQUESTED", "(UTC)", "STATE"]
    past = shell.json("ops", "history")["operations"]
    expected = [(row["jobID"], row["verb"], "echo", row["outcome"]) for row in past]
    assert [(row[0], row[1], row[2], row[5]) for row in map(str.split, choice[1:-1])] == expected
    assert choice[-1] == f"corral: 'echo' matches {len(expected)} operations; give the id of one of them"
    assert shell.run("ops", "show", "Echo", code=1).splitlines()[:-1] == choice[:-1], "in whatever case it was typed"


def check_history(shell: Shell) -> None:
    history = shell.run("ops", "history")
    for verb in ("install", "upgrade", "rollback", "delete"):
        assert f"{verb} echo" in history
    rolled = next(line for line in history.splitlines() if "rollback echo" in line)
    assert "two" in rolled
    assert "key admin" in rolled
    assert "request" in rolled
    shell.run("ops", "clear")
    assert shell.json("ops", "history")["operations"] == []


def test_pins_are_set_listed_explained_and_ended(fleet: Cluster) -> None:
    first = fleet.offer_image("echo", localai_files("1"), tag="1.0", version="1.0")
    second = fleet.offer_image("echo", localai_files("2"), tag="2.0", version="2.0")
    _, shell = start(fleet, "one")

    def digest() -> str:
        [node] = shell.json("backends", "list", "echo@2.0")[0]["nodes"]
        return str(node["digest"])

    assert "No pins: all backends follow the galleries." in shell.run("backends", "pins")
    shell.run("backends", "install", "echo")
    assert digest() == second
    assert "there is no version '9'" in shell.run("backends", "pin", "echo", "9", code=1)
    assert "pin echo: done (1 node)" in shell.run("backends", "pin", "echo", "v1.0", "--reason", "2.0 leaks")
    assert digest() == first
    assert re.search(r"echo +1\.0 +all +.* key admin +2\.0 leaks", shell.run("backends", "pins"))
    assert re.search(r"present +1\.0 +all", shell.run("backends", "policies"))
    for words in (["backend", "echo", "--node", "one"], ["echo"]):
        why = shell.run("why", *words)
        assert "version: pinned to 1.0 since" in why
        assert re.search(r"upgrade: held back: pinned to 1\.0 since .* \(2\.0 leaks\); 2\.0 available", why)
    shell.run("backends", "pin", "echo", second.removeprefix("sha256:")[:12])
    assert digest() == second, "whatever was printed is accepted"
    assert "echo is pinned. All nodes that have it are at this version." in shell.run("backends", "pin", "echo", "2.0")
    assert "echo follows the galleries." in shell.run("backends", "follow", "echo")
    assert "echo is not pinned" in shell.run("backends", "follow", "echo", code=1)


def test_what_came_from_a_directory_is_shown_as_not_checked(fleet: Cluster, tmp_path: Path) -> None:
    source = write_localai_backend(tmp_path / "mine")
    _, shell = start(fleet, "one")
    shell.run("backends", "install", "mine", "--uri", str(source))
    for words in (["upgrades"], ["upgrade", "--all"]):
        told = shell.run("backends", *words)
        assert "All backends are up to date" not in told
        assert f"mine: cannot be checked on one: neither its gallery nor {source} specifies" in told
        assert "`corral backends upgrade mine` installs the version available now" in told


def test_bad_requests_are_refused_in_words(fleet: Cluster) -> None:
    _, shell = start(fleet, "one")
    # The frontend can be reached; it is the registry that cannot.
    shell.run("backends", "install", "--uri", "oci://127.0.0.1:9/x:1", "--name", "x", code=1)
    told = shell.run("backends", "install", "--uri", "oci://127.0.0.1:9/x:1", "--name", "a/x", code=2)
    assert "without / and @" in told
    assert "no policy 'x'" in shell.run("backends", "policies", "--end", "x", code=1)
    assert "No gallery has a backend named nothing" in shell.run("backends", "install", "nothing", code=1)
    assert "did you mean one?" in shell.run("backends", "install", "echo", "--node", "onee", code=1)
    assert "no operation 'abc'" in shell.run("ops", "show", "abc", code=1)
    assert "no operation is in progress" in shell.run("ops", "watch", code=1)
    nowhere = Shell("http://127.0.0.1:9")
    assert "cannot reach" in nowhere.run("backends", "list", code=3)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("nothing to install", "backends install"),
        ("--uri requires a NAME", "backends install --uri quay.io/a/b"),
        ("or a NAME and --uri", "backends install mine --uri quay.io/a/b --name other"),
        ("require --uri", "backends install echo --alias x"),
        ("cannot be combined", "backends install echo --node one --selector a=b"),
        ("--all cannot be combined", "backends install echo --all --node one"),
        ("is not a selector", "backends install echo --selector fast"),
        ("nothing to upgrade", "backends upgrade"),
        ("pass --yes", "backends delete echo"),
        ("--timeout", "backends install echo --timeout soon"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    words: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORRAL_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CORRAL_API_KEY", ADMIN_KEY)
    monkeypatch.setattr(sys, "argv", ["corral", *line.split()])
    hearing = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        signal.signal(signal.SIGINT, hearing)  # a command that ends lets no second Ctrl-C through; this process goes on
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_node_that_is_offline_does_not_keep_anybody_waiting(fleet: Cluster) -> None:
    fleet.offer_image("echo", localai_files("1"))
    admin, shell = start(fleet, "here", "away")
    fleet.workers["away"].kill()
    admin.wait_for_status("away", "offline")
    told = shell.run("backends", "install", "echo", code=4)
    assert "here: done" in told
    assert "away: offline; continues when the node is back" in told
    assert "Remaining nodes will be retried automatically. Follow it: corral ops watch" in told
    assert "waiting for away (offline)" in shell.run("ops", "list")
    listed = [line.split() for line in shell.run("backends", "list").splitlines()]
    assert ["echo", "away", "-", "-", "install", "pending;"] in [line[:6] for line in listed]
    (open_one,) = shell.json("ops", "list")["operations"]
    watching = shell.start("ops", "watch", open_one["jobID"][:8])
    fleet.start_worker("away")
    output, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0, output
    assert "away: done" in output


def test_a_drained_machine_keeps_nobody_waiting_and_says_what_it_waits_for(fleet: Cluster) -> None:
    fleet.offer_image("echo", localai_files("1"))
    _, shell = start(fleet, "here", "resting")
    assert "until `corral nodes resume resting`" in shell.run("nodes", "drain", "resting")
    told = shell.run("backends", "install", "echo", code=4)
    assert "here: done" in told
    assert "resting: drained; continues after `corral nodes resume resting`" in told
    (open_one,) = shell.json("ops", "list")["operations"]
    assert "nodes resume resting" in shell.run("ops", "show", open_one["jobID"])
    shell.run("nodes", "resume", "resting")
    assert "resting: done" in shell.run("ops", "watch", open_one["jobID"])


def test_a_failure_is_shown_with_its_reason_and_by_the_exit_code(fleet: Cluster) -> None:
    # Each has a build of its own: otherwise "bad" could take it from "good" instead of the registry.
    fleet.offer("echo", capabilities={"default": "cpu-echo", "nvidia": "cuda12-echo"})
    for build in ("cpu-echo", "cuda12-echo"):
        fleet.offer_image(build, localai_files(build))
    admin, shell = start(fleet, "good")
    fleet.start_worker("bad", "--trusted-hosts", "192.0.2.1", "--capability", "nvidia")
    admin.wait_for_status("bad", "healthy")
    told = shell.run("backends", "install", "echo", code=1)
    assert "good: done" in told
    assert "bad: FAILED: " in told
    assert "1 failed" in told
    (listed,) = shell.json("ops", "list")["operations"]
    job = listed["jobID"]
    assert listed["retrying"]
    assert "failed, next attempt in" in shell.run("ops", "list")
    told = shell.run("ops", "show", listed["id"])
    assert "trusted_hosts" in told
    assert "STATE         failed, next attempt in" in told
    assert "(attempt 1 failed, next attempt in" in told
    assert "cancel it to stop the retries" in shell.run("ops", "dismiss", job, code=1)
    assert shell.json("ops", "retry", job, "--node", "bad", code=1)["jobID"] == job
    shell.run("ops", "cancel", job)
    wait_until(lambda: not shell.json("ops", "list")["operations"] or None, what="it is over", within_s=30)
    assert "trusted_hosts" in shell.run("ops", "history")
    assert "it had failed once" in shell.run("ops", "show", "echo")
    assert "already ended (cancelled)" in shell.run("ops", "cancel", job)


FAST = 4_000_000
"""For the rest, once what was to happen in the middle has happened."""


@pytest.fixture
def slow(fleet: Cluster) -> Iterator[Trickle]:
    line = Trickle(fleet.registry.port, bytes_per_s=40_000)
    yield line
    line.stop()


def offer_large(fleet: Cluster, line: Trickle) -> None:
    """Minutes on the slow line: nobody is so slow that it is over before he looks."""
    files = localai_files("1") | {"weights.bin": os.urandom(4_000_000)}
    fleet.registry.push("large", files)
    fleet.offer("large", uri=f"127.0.0.1:{line.port}/large:latest")


def test_an_interrupted_wait_leaves_the_operation_running(fleet: Cluster, slow: Trickle) -> None:
    offer_large(fleet, slow)
    _, shell = start(fleet, "one")
    waiting = shell.start("backends", "install", "large")
    wait_until(lambda: shell.json("ops", "list")["operations"] or None, what="it is under way")
    job = shell.json("ops", "list")["operations"][0]["jobID"]
    fleet.wait_for_statuses(job, {"one": "downloading"})
    waiting.send_signal(signal.SIGINT)
    output, _ = waiting.communicate(timeout=90)
    assert waiting.returncode == 130, output
    assert f"The operation continues. Follow it: corral ops watch {job}" in output
    assert fleet.statuses(job) == {"one": "downloading"}
    wait_until(lambda: "downloading" in shell.run("ops", "show", job) or None, what="it is downloading")
    shown = shell.run("ops", "show", job)
    assert "of 3.8 MiB" in shown
    shell.run("ops", "cancel", job)
    fleet.wait_for_operation(job, "cancelled")
    assert "install large: cancelled" in shell.run("ops", "watch", job, code=1)


def test_a_time_limit_ends_the_wait_and_nothing_else(fleet: Cluster, slow: Trickle) -> None:
    offer_large(fleet, slow)
    _, shell = start(fleet, "one")
    told = shell.run("backends", "install", "large", "--timeout", "2s", code=4)
    assert "Still running after 2 s" in told
    job = shell.json("ops", "list")["operations"][0]["jobID"]
    watching = shell.start("ops", "watch", job)
    assert watching.stdout is not None
    on_the_way = next(line for line in watching.stdout if "%" in line)
    slow.bytes_per_s = FAST
    output, _ = watching.communicate(timeout=90)
    assert watching.returncode == 0, on_the_way + output
    assert "one: done" in output


def test_no_wait_only_asks(fleet: Cluster) -> None:
    fleet.offer_image("echo", localai_files("1"))
    _, shell = start(fleet, "one")
    job = shell.json("backends", "install", "echo", "--no-wait")["jobID"]
    assert fleet.wait_for_operation(job)["state"] == "completed"
    told = shell.run("backends", "delete", "echo", "--yes", "--no-wait")
    assert told.startswith("Started operation ")
    fleet.wait_for_operation(told.split()[2].rstrip("."))


def test_a_selector_means_the_machines_it_fits_also_those_that_come_later(fleet: Cluster) -> None:
    digest = fleet.offer_image("echo", localai_files("1"))
    admin, shell = start(fleet, "one", "two")
    shell.run("nodes", "label", "two", "room=b2")
    told = shell.run("backends", "install", "echo", "--selector", "room=nowhere")
    assert "No node matches." in told
    assert "corral backends policies" in told
    shell.run("backends", "install", "echo", "--selector", "room=b2")
    assert fleet.digests("echo") == {"two": digest}
    fleet.start_worker("three", "--labels", "room=b2")
    admin.wait_for_status("three", "healthy")
    fleet.wait_for_digests("echo", {"two": digest, "three": digest})
    told = shell.run("backends", "install", "echo")
    assert "replaces the policy for nodes with room=b2" in told


def test_a_location_is_installed_under_the_name_given(fleet: Cluster) -> None:
    digest = fleet.registry.push("mine", localai_files("1"))
    _, shell = start(fleet, "one")
    shell.run(
        "backends", "install", "--uri", f"{fleet.registry.host}/mine:latest", "--name", "my-engine", "--alias", "m"
    )
    assert fleet.digests("my-engine") == {"one": digest}


def test_a_restarting_frontend_does_not_end_the_wait(fleet: Cluster, slow: Trickle) -> None:
    offer_large(fleet, slow)
    _, shell = start(fleet, "one")
    waiting = shell.start("backends", "install", "large")
    wait_until(lambda: shell.json("ops", "list")["operations"] or None, what="it is under way")
    job = shell.json("ops", "list")["operations"][0]["jobID"]
    fleet.wait_for_statuses(job, {"one": "downloading"})
    fleet.frontends["a"].kill()
    fleet.start_frontend("a", "--auto-approve")
    slow.bytes_per_s = FAST
    output, _ = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, output
    assert "one: done" in output


@contextlib.contextmanager
def without_events(target: str) -> Iterator[str]:
    """A gateway that lets no event stream through, as some companies have."""

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            if self.path.startswith("/api/events"):
                self.send_error(502)
                return
            length = int(self.headers.get("Content-Length") or 0)
            kept = {name: self.headers[name] for name in ("Idempotency-Key", "Content-Type") if self.headers[name]}
            answer = call(
                self.command, target + self.path, key=ADMIN_KEY, raw=self.rfile.read(length) or None, headers=kept
            )
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = _pass_on

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


def test_without_an_event_stream_asking_does_as_well(fleet: Cluster) -> None:
    fleet.offer_image("echo", localai_files("1"))
    admin, _ = start(fleet, "one")
    with without_events(admin.url) as url:
        assert "one: done" in Shell(url).run("backends", "install", "echo")


def test_on_a_terminal_every_machine_has_a_bar(fleet: Cluster, slow: Trickle) -> None:
    offer_large(fleet, slow)
    slow.bytes_per_s = 400_000
    _, shell = start(fleet, "one", "two")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "corral", "backends", "install", "large"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env=shell.environment | {"TERM": "xterm-256color", "COLUMNS": "140", "LINES": "30"},
    )  # fmt: skip
    os.close(theirs)
    screen = b""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        ready, _, _ = select.select([ours], [], [], 0.5)
        try:
            data = os.read(ours, 65536) if ready else b""
        except OSError:
            break
        screen += data
        if ready and not data:
            break
    os.close(ours)
    text = screen.decode()
    assert process.wait(60) == 0, text
    assert "━" in text
    assert "iB/s" in text
    assert text.count("100 %") >= 2
    assert "install large: done (2 nodes)" in text
