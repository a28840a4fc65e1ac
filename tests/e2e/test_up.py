"""`corral up` as a newcomer meets it: one command, a fleet of one machine."""

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.cli.client.api import connect
from corral.cli.commands.doctor import examine, read_status
from harness.ports import free_port
from harness.programs import Admin, Program, call, clean_environment, run_cli
from harness.up import Up
from harness.waiting import wait_until


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"), "--max-replicas-per-model", "2")
    try:
        running.wait_ready()
        yield running
    finally:
        running.program.stop()


def test_one_command_reaches_a_healthy_node_that_was_approved_automatically(up: Up) -> None:
    node = up.admin.wait_for_status("first", "healthy")
    assert node["approved"]
    assert node["platform"].startswith("linux/")
    assert node["total_ram"] > 0
    assert node["max_replicas_per_model"] == 2


def test_it_says_where_the_key_is_and_how_to_add_a_machine(up: Up) -> None:
    output = up.program.output()
    assert str(up.data / "keys" / "admin.key") in output
    token = (up.data / "keys" / "join.token").read_text().strip()
    assert f"corral worker --join {up.url} --token {token}" in output
    assert f"corral nodes approve NAME --data-dir {up.data}" in output
    assert f"corral chat --data-dir {up.data}\n" in output


def test_secrets_are_readable_by_their_owner_only_and_in_no_argument_list(up: Up) -> None:
    secrets = [path for path in (up.data / "keys").rglob("*") if path.is_file() and path.suffix != ".jwt"]
    assert len(secrets) >= 6
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in secrets} == {path.name: "0o0" for path in secrets}
    words = [path.read_text().strip() for path in secrets if path.suffix in (".key", ".token", ".seed")]
    for child in up.children().values():
        line = " ".join(child.cmdline())
        assert not [word for word in words if word in line]


def test_the_command_line_needs_no_configuration_on_this_machine(up: Up) -> None:
    environment = clean_environment(CORRAL_DATA_DIR=str(up.data))
    status = run_cli("status", environment=environment)
    assert status.returncode == 0, status.stderr
    assert "1 healthy" in status.stdout
    listed = run_cli("nodes", "list", "--json", environment=environment)
    assert [node["name"] for node in json.loads(listed.stdout)] == ["first"]
    joined = json.loads(run_cli("join-command", "--json", environment=environment).stdout)
    assert joined["url"] == up.url
    assert joined["command"] == f"corral worker --join {up.url} --token {joined['token']}"


def test_elsewhere_the_command_line_uses_address_and_key_from_the_environment(up: Up, tmp_path: Path) -> None:
    elsewhere = {"CORRAL_DATA_DIR": str(tmp_path), "CORRAL_URL": up.url}
    right = clean_environment(**elsewhere, CORRAL_API_KEY=up.admin.key)
    assert run_cli("status", environment=right).returncode == 0
    wrong = run_cli("status", environment=clean_environment(**elsewhere, CORRAL_API_KEY="corral-wrong"))
    assert wrong.returncode == 1
    assert f"{up.url} rejected the API key in CORRAL_API_KEY" in wrong.stderr
    without = run_cli("status", environment=clean_environment(**elsewhere))
    assert without.returncode == 1
    assert "requires an API key; set CORRAL_API_KEY" in without.stderr
    bus = clean_environment(CORRAL_DATA_DIR=str(tmp_path), CORRAL_URL=f"http://127.0.0.1:{up.bus_port}")
    astray = run_cli("status", environment=bus)
    assert (astray.returncode, "the server does not speak HTTP" in astray.stderr) == (3, True)


def test_a_second_up_on_the_same_data_directory_refuses_and_names_the_first(up: Up) -> None:
    second = run_cli("up", *up.flags)
    assert second.returncode == 1
    assert f"process {up.program.pid}" in second.stderr
    assert str(up.data) in second.stderr
    assert up.admin.nodes()["first"]["status"] == "healthy"


@pytest.mark.parametrize("taken", ["--listen", "--bus-port"])
def test_a_busy_port_is_named_with_the_flag_that_changes_it(up: Up, tmp_path: Path, taken: str) -> None:
    ports = {"--listen": f"127.0.0.1:{free_port()}", "--bus-port": str(free_port())}
    busy = up.port if taken == "--listen" else up.bus_port
    ports[taken] = f"127.0.0.1:{busy}" if taken == "--listen" else str(busy)
    refused = run_cli("up", "--data-dir", str(tmp_path), *(part for pair in ports.items() for part in pair))
    assert refused.returncode == 3
    owner = up.children()["frontend" if taken == "--listen" else "nats-server"].pid
    assert f"127.0.0.1:{busy}: " in refused.stderr
    assert f"(process {owner}) uses this port" in refused.stderr
    assert taken in refused.stderr


def test_who_adds_a_model_is_told_what_to_do_with_it(up: Up, tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text("name: tiny\nbackend: llama-cpp\nparameters:\n  model: tiny.gguf\n")
    added = run_cli("models", "install", "--file", str(config), environment=local(up))
    assert added.returncode == 0, added.stderr
    assert "Chat with it: corral chat tiny" in added.stdout
    for number, said in (("1", "1 replica, always"), ("0", "on demand (scales to zero)")):
        assert said in run_cli("models", "scale", "tiny", number, environment=local(up)).stdout
    assert run_cli("models", "delete", "tiny", "--yes", environment=local(up)).returncode == 0


def test_doctor_finds_nothing_wrong_while_it_runs(up: Up) -> None:
    environment = clean_environment(CORRAL_DATA_DIR=str(up.data))
    findings = json.loads(run_cli("doctor", "--json", environment=environment).stdout)
    checks = {finding["check"] for finding in findings}
    assert checks == {
        "python",
        "disk",
        "frontend",
        "port",
        "gpu",
        "store",
        "bus",
        "bus program",
        "clock",
        "isolation",
        "builds",
    }
    assert [finding for finding in findings if finding["state"] == "problem"] == []
    assert "No problems found" in run_cli("doctor", environment=environment).stdout


def test_doctor_takes_no_other_frontend_for_the_one_of_its_data_directory(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"name": "vm", "listen": f"127.0.0.1:{free_port()}", "bus_port": free_port()}
    (tmp_path / "up.json").write_text(json.dumps(kept))
    monkeypatch.setenv("CORRAL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CORRAL_API_KEY", up.admin.key)
    api = connect(None, None, as_json=False, default_url=up.url)
    said = "\n".join(f"{finding.text} {finding.advice}" for finding in examine(api, read_status(api)))
    assert f"not running in {tmp_path}" in said
    assert up.url not in said


def test_when_everything_is_ready_a_small_supervisor_is_left_with_the_same_children(up: Up) -> None:
    wait_until(up.is_small, what="the supervisor alone is left of `corral up`", within_s=30)
    parent = psutil.Process(up.program.pid)
    loaded = {Path(mapped.path).name for mapped in parent.memory_maps()}
    assert not [name for name in loaded if name.startswith(("_pydantic_core", "loop."))]
    assert {child.ppid() for child in up.children().values()} == {parent.pid}
    assert len(up.children()) == 3


@pytest.mark.parametrize("part", ["frontend", "worker", "nats-server"])
def test_a_part_killed_with_9_is_started_again_with_a_word_about_it(up: Up, part: str) -> None:
    up.admin.wait_for_status("first", "healthy")
    before = up.children()[part]
    epoch = up.admin.nodes()["first"]["epoch"]
    os.kill(before.pid, signal.SIGKILL)
    name = {"nats-server": "bus"}.get(part, part)
    up.program.wait_for_output(f"The {name} was killed by signal 9; restarting")

    def is_back() -> bool:
        after = up.children().get(part)
        node = up.admin.nodes()["first"]
        right_epoch = node["epoch"] == epoch + (1 if part == "worker" else 0)
        return after is not None and after.pid != before.pid and node["status"] == "healthy" and right_epoch

    wait_until(is_back, what=f"{part} runs again and the node is healthy, in a new epoch if new", within_s=30)


def test_the_worker_of_another_data_directory_waits_for_approval_and_then_works(up: Up, tmp_path: Path) -> None:
    join = up.admin.call("GET", "/api/join-command").json()
    worker = Program(
        "worker", "--join", join["url"], "--token", join["token"], "--name", "second",
        "--data-dir", str(tmp_path / "w"), log=tmp_path / "worker.log",
    )  # fmt: skip
    try:
        up.admin.wait_for_status("second", "pending")
        environment = clean_environment(CORRAL_DATA_DIR=str(up.data))
        approved = run_cli("nodes", "approve", "second", environment=environment)
        assert approved.returncode == 0, approved.stderr
        node = up.admin.wait_for_status("second", "healthy")
        assert node["http_address"] != up.admin.nodes()["first"]["http_address"]
        assert call("GET", f"http://{node['http_address']}/readyz").status == 200
        removed = run_cli("nodes", "remove", "second", "--yes", environment=local(up))
        assert "will ask to join again. Stop it there" in removed.stderr
        again = up.admin.wait_for_status("second", "pending")
        assert again["id"] != node["id"]
        worker.wait_for_output("the cluster no longer knows this node (it was removed")
        assert "address of the message bus has changed" not in worker.output()
        assert run_cli("nodes", "approve", "second", environment=local(up)).returncode == 0
        up.admin.wait_for_status("second", "healthy")
        first = up.admin.call("GET", "/api/audit?limit=50").json()
        healthy = next(
            event for event in first if event["action"] == "node.healthy" and event["subject"] == again["id"]
        )
        assert healthy["detail"]["was"] in ("new", "offline"), "offline: the machine is too busy to prove it in time"
    finally:
        assert worker.stop() == 0
    up.admin.wait_for_status("second", "offline")
    removed = run_cli("nodes", "remove", "second", "--yes", environment=local(up))
    assert removed.returncode == 0, removed.stderr
    assert "second" not in up.admin.nodes()


def test_ctrl_c_stops_everything_and_leaves_nothing_behind(tmp_path: Path) -> None:
    running = Up(tmp_path)
    running.wait_ready()
    assert len(running.children()) == 3
    running.program.send(signal.SIGINT)
    assert running.program.wait() == 0
    assert running.processes() == []
    # The same data directory, but neither the name nor the address of before.
    at = running.flags.index("--name")
    others = running.flags[:at] + running.flags[at + 2 :]
    port = free_port()
    again = Program("up", *others, "--listen", f"127.0.0.1:{port}", log=running.log)
    try:
        wait_until(lambda: running.output_count() == 2, what="the same data directory starts again", within_s=60)
        output = again.output()
        assert "keeps the name first" in output
        assert f"The listen address changed from 127.0.0.1:{running.port}" in output
        wider = f"corral up --data-dir {running.data} --listen 0.0.0.0:{port} --bus-port {running.bus_port}"
        assert f"`{wider}` lets other machines join" in output
    finally:
        again.stop()
    doctor = run_cli("doctor", environment=local(running))
    assert f"{port} (--listen, as in the last run) is free" in doctor.stdout
    assert f"{running.bus_port} (--bus-port, as in the last run) is free" in doctor.stdout
    assert f"no server listens on 127.0.0.1:{running.bus_port}" in doctor.stdout
    pasted = run_cli("worker", "--data-dir", str(running.data), "--join", running.url, "--token", "x")
    assert (pasted.returncode, "belongs to `corral up`" in pasted.stderr) == (2, True)


def test_a_lost_or_revoked_local_key_is_replaced_at_the_next_start(tmp_path: Path) -> None:
    running = Up(tmp_path)
    admin = running.wait_ready()
    environment = clean_environment(CORRAL_DATA_DIR=str(running.data))
    last = run_cli("keys", "revoke", "admin", environment=environment)
    assert last.returncode == 1
    assert "last admin key" in last.stderr
    mine = json.loads(
        run_cli("keys", "create", "--name", "mine", "--scope", "admin", "--json", environment=environment).stdout
    )
    assert run_cli("keys", "revoke", "admin", environment=environment).returncode == 0
    assert admin.call("GET", "/api/nodes").status == 401
    running.program.stop()
    key_file = running.data / "keys" / "admin.key"
    for starts, is_lost in ((2, False), (3, True)):
        if is_lost:
            key_file.unlink()
        again = Program("up", *running.flags, log=running.log)
        try:
            wait_until(partial(_has_started, running, starts), what="it starts again", within_s=60)
            assert running.admin.call("GET", "/api/nodes").status == 200
            assert Admin(running.url, mine["key"]).call("GET", "/api/nodes").status == 200
        finally:
            again.stop()


def _has_started(running: Up, times: int) -> bool:
    return running.output_count() == times


def test_keys_of_ones_own_are_taken_and_variables_meant_for_other_roles_lead_no_part_astray(tmp_path: Path) -> None:
    own: dict[str, Any] = {"CORRAL_ADMIN_KEY": "corral-my-own", "CORRAL_REGISTRATION_TOKEN": "my-own-token"}
    stray: dict[str, Any] = {"CORRAL_STORE": "postgresql://127.0.0.1:1/x", "CORRAL_BUS": "nats://127.0.0.1:1"}
    running = Up(tmp_path, **own, **stray, CORRAL_TOKEN="stray", CORRAL_JOIN="http://127.0.0.1:1")
    try:
        admin = running.wait_ready()
        for key in ("corral-my-own", admin.key):
            assert Admin(running.url, key).nodes()["first"]["status"] == "healthy"
        assert "--token my-own-token\n" in running.program.output()
        assert sorted(key["name"] for key in admin.call("GET", "/api/keys").json()) == ["admin", "settings"]
    finally:
        running.program.stop()


def test_a_part_that_cannot_start_says_why_and_only_why(tmp_path: Path) -> None:
    running = Up(tmp_path)
    running.wait_ready()
    running.program.stop()
    for name in ("corral.db", "corral.db-wal", "corral.db-shm"):
        (running.data / name).unlink(missing_ok=True)
    (running.data / "corral.db").write_bytes(b"this is not a database" * 100)
    refused = run_cli("up", *running.flags)
    assert refused.returncode == 1
    assert "not a database" in refused.stderr
    assert "frontend.started" not in refused.stderr
    assert running.processes() == []


def test_kill_9_of_up_itself_leaves_no_part_running(tmp_path: Path) -> None:
    running = Up(tmp_path)
    running.wait_ready()
    running.program.kill()
    wait_until(lambda: not running.processes(), what="all parts have ended", within_s=30)


def test_a_start_after_kill_9_is_ready_when_its_own_worker_is_and_not_before(tmp_path: Path) -> None:
    """The last worker counts as healthy for a while; it hangs while it leaves, and says good-bye to the next run."""
    running = Up(tmp_path)
    admin = running.wait_ready()
    epoch = admin.nodes()["first"]["epoch"]
    worker = running.children()["worker"]
    worker.suspend()
    running.program.kill()
    wait_until(lambda: len(running.processes()) == 1, what="all but the worker have ended", within_s=30)
    again = Program("up", *running.flags, log=running.log)
    try:
        wait_until(lambda: answers(running), what="the new frontend answers", within_s=60)
        assert running.output_count() == 1, "the node is that of the run before"
        worker.resume()
        wait_until(lambda: running.output_count() == 2, what="ready", within_s=60)
        assert running.admin.nodes()["first"]["epoch"] > epoch
        assert "is healthy" in again.output().rpartition("Ready in")[2]
        assert run_cli("nodes", "drain", "first", environment=local(running)).returncode == 0
    finally:
        again.stop()
    stopped = run_cli("status", environment=local(running))
    assert stopped.returncode == 3
    command = f"corral up --listen 127.0.0.1:{running.port} --bus-port {running.bus_port}"
    assert f"`corral up` is not running in {running.data}; start it with: {command}" in stopped.stderr
    third = Program("up", *running.flags, log=running.log)
    try:
        wait_until(lambda: running.output_count() == 3, what="ready, though drained", within_s=60)
        assert "corral nodes resume first" in third.output().rpartition("Ready in")[2]
        for said in ("resumed", "was not drained"):
            assert said in run_cli("nodes", "resume", "first", environment=local(running)).stdout
    finally:
        third.stop()


def local(running: Up) -> dict[str, str]:
    return clean_environment(CORRAL_DATA_DIR=str(running.data))


def answers(running: Up) -> bool:
    try:
        return call("GET", f"{running.url}/readyz").status == 200
    except OSError:
        return False


@pytest.mark.parametrize("host", ["127.0.0.2", "[::]"])
def test_it_listens_where_it_is_told_and_others_are_told_where_they_reach_it(tmp_path: Path, host: str) -> None:
    if host == "[::]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    port = free_port()
    running = Up(tmp_path, "--listen", f"{host}:{port}")
    try:
        running.program.wait_for_output("Ctrl-C stops everything.", within_s=60)
        joined = json.loads(run_cli("join-command", "--json", environment=local(running)).stdout)
        assert f"Web UI and API  {joined['url']}\n" in running.program.output()
        assert (joined["url"] == f"http://127.0.0.2:{port}") == (host == "127.0.0.2")
        assert not joined["url"].startswith(("http://127.0.0.1", "http://[::1]"))
        assert "1 healthy" in run_cli("status", environment=local(running)).stdout
    finally:
        assert running.program.stop() == 0


def test_listening_for_others_without_credentials_is_refused(tmp_path: Path) -> None:
    refused = run_cli("up", "--data-dir", str(tmp_path), "--listen", "0.0.0.0:1", "--no-auth")
    assert refused.returncode == 2
    assert "without credentials" in refused.stderr
