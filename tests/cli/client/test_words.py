"""The texts of commands: the progress of operations, policies, the audit log, and commands in messages."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corral.cli.client.operation import read_operation
from corral.cli.commands.audit import named_detail
from corral.cli.commands.policies import describe_exceptions
from corral.cli.display.output import clean
from corral.cli.display.progress import count_words
from corral.system import SystemDisk
from harness.programs import clean_environment, run_cli

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("verb", "in_progress"),
    [
        ("install", "being installed"),
        ("upgrade", "being upgraded"),
        ("rollback", "being rolled back"),
        ("delete", "being deleted"),
    ],
)
def test_an_operation_in_progress_is_described_by_its_verb(verb: str, in_progress: str) -> None:
    statuses = ("success", "success", "downloading", "error")
    nodes = [{"node_id": str(at), "node_name": str(at), "status": status} for at, status in enumerate(statuses)]
    operation = read_operation({"jobID": "1", "verb": verb, "name": "mine", "state": "running", "nodes": nodes})
    assert count_words(operation) == f"2 done, 1 {in_progress}, 1 failed"


def test_hints_name_the_program_as_the_user_called_it(tmp_path: Path) -> None:
    (tmp_path / "up.json").write_text('{"name": "vm", "listen": "127.0.0.1:9191"}')
    environment = clean_environment(CORRAL_PROGRAM="./corral", HOME=str(tmp_path))
    done = run_cli("status", "--data-dir", str(tmp_path), environment=environment)
    assert done.returncode == 3
    command = f"./corral up --data-dir {tmp_path} --listen 127.0.0.1:9191"
    assert f"`./corral up` is not running in {tmp_path}; start it with: {command}" in done.stderr
    assert os.listdir(tmp_path) == ["up.json"]


def test_another_frontend_at_the_default_address_is_not_used_while_the_local_one_starts(tmp_path: Path) -> None:
    with SystemDisk().hold(tmp_path, "up"):
        done = run_cli("status", "--data-dir", str(tmp_path), environment=clean_environment(HOME=str(tmp_path)))
    assert done.returncode == 3
    assert f"Corral in {tmp_path} is still starting" in done.stderr


def test_commands_in_a_frontend_s_message_are_shown_as_the_user_types_them(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "no model 'a'; `corral models list` lists all models"
    assert clean(message) == message
    assert clean("its last output:\n    on \x1b[31mfire") == "its last output: on ?[31mfire"
    monkeypatch.setenv("CORRAL_PROGRAM", "./corral")
    assert clean(message) == "no model 'a'; `./corral models list` lists all models"


def test_a_policy_names_the_first_nodes_it_does_not_apply_to_and_counts_the_rest() -> None:
    def except_(cause: str, **fields: object) -> dict[str, object]:
        plain = {"node_name": "n", "cause": cause, "backend": "echo", "verb": "", "done": True, "reason": ""}
        return plain | {"at": "2026-01-01T00:00:00Z"} | fields

    exceptions = [
        except_("deleted"),
        except_("deleted", backend="cpu-echo", done=False),
        except_("installed", backend="cpu-echo"),
        except_("cancelled", verb="upgrade", done=False),
        except_("no_build", at=None, reason="it has no build for arm64"),
        except_("deleted"),
    ]
    now_s = datetime(2026, 1, 1, 0, 3, tzinfo=UTC).timestamp()
    assert describe_exceptions({"backend": "echo", "exceptions": exceptions, "exception_count": 42}, now_s) == (
        "n (deleted 3m ago), n (cpu-echo delete requested 3m ago), n (cpu-echo installed 3m ago),"
        " n (upgrade cancelled 3m ago), n (it has no build for arm64) and 37 more"
    )
    assert describe_exceptions({"backend": "echo"}, now_s) == ""


def test_the_audit_log_names_nodes_and_counts_the_rest() -> None:
    entry = {"detail": {"nodes": ["id-of-a", "id-of-b"], "node_count": 39}, "names": {"id-of-a": "a"}}
    assert named_detail(entry) == {"nodes": ["a (id-of-a)", "id-of-b", "and 37 more"]}
    assert named_detail({"detail": {"nodes": 5}, "names": {}}) == {"nodes": 5}
