"""What is said of a machine's part of an operation, and how commands are named to whoever types them."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corral.cli.client.api import clean
from corral.cli.client.operation import read_operation
from corral.cli.commands.audit import tell
from corral.cli.commands.policies import say_exceptions
from corral.cli.display.progress import count_words
from corral.system import SystemDisk
from harness.programs import clean_environment, run_cli

pytestmark = pytest.mark.processes


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


def test_whoever_listens_at_the_usual_address_is_not_asked_while_the_one_that_is_meant_starts(tmp_path: Path) -> None:
    with SystemDisk().hold(tmp_path, "up"):
        done = run_cli("status", "--data-dir", str(tmp_path), environment=clean_environment(HOME=str(tmp_path)))
    assert done.returncode == 3
    assert f"Corral in {tmp_path} is starting, and does not answer yet" in done.stderr


def test_commands_in_what_a_frontend_says_can_be_typed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "there is no model 'a'; `corral models list` shows the ones there are"
    assert clean(said) == said
    assert clean("its last words:\n    on \x1b[31mfire") == "its last words: on ?[31mfire"
    monkeypatch.setenv("CORRAL_PROGRAM", "./corral")
    assert clean(said) == "there is no model 'a'; `./corral models list` shows the ones there are"


def test_a_policy_names_the_first_machines_it_does_not_hold_on_and_counts_the_rest() -> None:
    def except_(cause: str, **fields: object) -> dict[str, object]:
        plain = {"node_name": "n", "cause": cause, "backend": "echo", "verb": "", "done": True, "reason": ""}
        return plain | {"at": "2026-01-01T00:00:00Z"} | fields

    told = [
        except_("deleted"),
        except_("deleted", backend="cpu-echo", done=False),
        except_("installed", backend="cpu-echo"),
        except_("called_off", verb="upgrade", done=False),
        except_("no_build", at=None, reason="it has no build for arm64"),
        except_("deleted"),
    ]
    now_s = datetime(2026, 1, 1, 0, 3, tzinfo=UTC).timestamp()
    assert say_exceptions({"backend": "echo", "exceptions": told, "exception_count": 42}, now_s) == (
        "n (deleted 3m ago), n (cpu-echo delete asked for 3m ago), n (cpu-echo installed 3m ago),"
        " n (upgrade called off 3m ago), n (it has no build for arm64) and 37 more"
    )
    assert say_exceptions({"backend": "echo"}, now_s) == ""


def test_the_audit_log_names_machines_and_says_how_many_more_there_were() -> None:
    entry = {"detail": {"nodes": ["id-of-a", "id-of-b"], "node_count": 39}, "names": {"id-of-a": "a"}}
    assert tell(entry) == {"nodes": ["a (id-of-a)", "id-of-b", "and 37 more"]}
    assert tell({"detail": {"nodes": 5}, "names": {}}) == {"nodes": 5}
