"""What is said of a machine's part of an operation, and how commands are named to whoever types them."""

import os
from pathlib import Path

import pytest

from corral.cli.client import clean
from corral.cli.operation_parts import read_operation
from corral.cli.progress import count_words
from harness.programs import clean_environment, run_cli


@pytest.mark.parametrize(
    ("verb", "under_way"),
    [
        ("install", "being installed"),
        ("upgrade", "being upgraded"),
        ("rollback", "being rolled back"),
        ("delete", "being deleted"),
    ],
)
def test_what_is_under_way_is_called_by_what_is_done(verb: str, under_way: str) -> None:
    statuses = ("success", "success", "downloading", "error")
    nodes = [{"node_id": str(at), "node_name": str(at), "status": status} for at, status in enumerate(statuses)]
    operation = read_operation({"jobID": "1", "verb": verb, "name": "mine", "state": "running", "nodes": nodes})
    assert count_words(operation) == f"2 done, 1 {under_way}, 1 failed"


def test_hints_name_the_program_as_it_is_called_here(tmp_path: Path) -> None:
    (tmp_path / "up.json").write_text('{"name": "vm", "listen": "127.0.0.1:9191"}')
    environment = clean_environment(CORRAL_PROGRAM="./corral", HOME=str(tmp_path))
    done = run_cli("status", "--data-dir", str(tmp_path), environment=environment)
    assert done.returncode == 3
    command = f"./corral up --data-dir {tmp_path} --listen 127.0.0.1:9191"
    assert f"no `./corral up` runs in {tmp_path}; start it with: {command}" in done.stderr
    assert os.listdir(tmp_path) == ["up.json"]


def test_commands_in_what_a_frontend_says_can_be_typed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "there is no model 'a'; `corral models list` shows the ones there are"
    assert clean(said) == said
    monkeypatch.setenv("CORRAL_PROGRAM", "./corral")
    assert clean(said) == "there is no model 'a'; `./corral models list` shows the ones there are"
