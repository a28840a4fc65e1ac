"""The ports that `corral doctor` checks when Corral is not running."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.programs import clean_environment, run_cli


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def ports(directory: Path, **environment: str) -> list[tuple[str, str, str]]:
    surroundings = clean_environment(HOME=str(directory), CORRAL_DATA_DIR=str(directory), **environment)
    done = run_cli("doctor", "--json", environment=surroundings)
    findings = [finding for finding in json.loads(done.stdout) if finding["check"] == "port"]
    return [(finding["state"], finding["text"].partition(" ")[0], finding["text"]) for finding in findings]


def remember(directory: Path, listen: int, bus: int) -> None:
    kept = {"name": "vm", "listen": f"127.0.0.1:{listen}", "bus_port": bus}
    (directory / "up.json").write_text(json.dumps(kept))


def test_the_ports_of_the_last_run_in_this_data_directory_are_checked(tmp_path: Path, taken: int) -> None:
    bus = free_port()
    remember(tmp_path, taken, bus)
    found = ports(tmp_path)
    assert [(state, port) for state, port, _ in found] == [("problem", str(taken)), ("ok", str(bus))]
    assert "as in the last run" in found[0][2]


def test_the_last_line_is_the_command_of_the_last_run(tmp_path: Path) -> None:
    listen, bus = free_port(), free_port()
    remember(tmp_path, listen, bus)
    done = run_cli("doctor", "--data-dir", str(tmp_path), environment=clean_environment(HOME=str(tmp_path)))
    start = f"corral up --data-dir {tmp_path} --listen 127.0.0.1:{listen} --bus-port {bus}\n"
    assert "No problems found" in done.stdout
    assert done.stdout.endswith(f" To start Corral: {start}"), done.stdout


def test_ports_set_by_variable_or_file_override_those_of_the_last_run(tmp_path: Path, taken: int) -> None:
    listen, other, bus = free_port(), free_port(), free_port()
    remember(tmp_path, listen, bus)
    assert [port for _, port, _ in ports(tmp_path, CORRAL_LISTEN=f"127.0.0.1:{other}")] == [str(other), str(bus)]
    file = tmp_path / "mine.toml"
    file.write_text(f"[up]\nbus_port = {taken}\n")
    found = ports(tmp_path, CORRAL_CONFIG=str(file))
    assert [(state, port) for state, port, _ in found] == [("ok", str(listen)), ("problem", str(taken))]
    assert "last run" not in found[1][2]


def test_the_bus_of_a_setting_may_be_named_without_a_port(tmp_path: Path) -> None:
    surroundings = clean_environment(HOME=str(tmp_path), CORRAL_DATA_DIR=str(tmp_path), CORRAL_BUS="nats://127.0.0.1")
    done = run_cli("doctor", "--json", environment=surroundings)
    [bus] = [finding for finding in json.loads(done.stdout) if finding["check"] == "bus"]
    assert "127.0.0.1:4222" in bus["text"]
