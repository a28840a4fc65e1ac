"""`corral models`, `keys` and `usage` against a real frontend."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.frontend import Frontend
from harness.nats import Nats
from harness.programs import call, clean_environment, run_cli

TINY = "name: {name}\nbackend: llama-cpp\nparameters: {{model: tiny.gguf}}\n"


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats, models_dir: Path) -> Iterator[Frontend]:
    running = Frontend(
        tmp_path_factory.mktemp("frontend"), nats_for_module, "--models-dir", str(models_dir), "--model-galleries", "[]"
    )
    yield running
    assert running.program.stop() == 0


@pytest.fixture
def environment(frontend: Frontend) -> dict[str, str]:
    return clean_environment(CORRAL_URL=frontend.url, CORRAL_API_KEY=frontend.admin.key)


def test_a_model_lives_from_install_to_delete(environment: dict[str, str], tmp_path: Path) -> None:
    empty = run_cli("models", "list", environment=environment)
    assert "corral models install smollm2" in empty.stdout
    assert "smollm2" in run_cli("models", "available", environment=environment).stdout
    installed = run_cli("models", "install", "smollm2", environment=environment)
    assert installed.stdout == "smollm2: installed (backend llama-cpp)\n", installed.stderr
    assert "llama-cpp" in run_cli("models", "list", environment=environment).stdout
    shown = run_cli("models", "show", "smollm2", environment=environment).stdout
    assert "use_tokenizer_template: true" in shown
    file = tmp_path / "new.yaml"
    file.write_text(shown + "threads: 2\n")
    edited = run_cli(
        "models", "edit", "smollm2", "--comment", "two are enough", "--file", str(file), environment=environment
    )
    assert "now revision 2 (" in edited.stdout, edited.stderr
    history_is_kept(environment)
    unsure = run_cli("models", "delete", "smollm2", environment=environment)
    assert (unsure.returncode, "--yes" in unsure.stderr) == (2, True)
    assert run_cli("models", "delete", "smollm2", "--yes", environment=environment).stdout == "smollm2: deleted\n"
    assert json.loads(run_cli("models", "list", "--json", environment=environment).stdout) == []


def history_is_kept(environment: dict[str, str]) -> None:
    history = run_cli("models", "history", "smollm2", environment=environment).stdout.splitlines()
    assert [line.split()[0] for line in history] == ["REVISION", "2", "1"]
    assert ("current" in history[1], "two are enough" in history[1]) == (True, True)
    assert ("superseded" in history[2], "from the gallery: smollm2" in history[2]) == (True, True)
    changed = run_cli("models", "history", "smollm2", "2", environment=environment).stdout.splitlines()
    assert changed[-2:] == ["Changes since revision 1:", "  + threads: 2"]
    back = run_cli("models", "rollback", "smollm2", environment=environment)
    assert "now revision 3 (" in back.stdout, back.stderr
    told = json.loads(run_cli("models", "history", "smollm2", "3", "--json", environment=environment).stdout)
    assert (told["comment"], told["against"]) == ("rollback to revision 1", 2)
    assert told["changes"] == [{"field": "threads", "before": "2", "after": None}]
    same = run_cli("models", "history", "smollm2", "3", "--against", "1", environment=environment).stdout
    assert "No field differs from revision 1." in same
    unknown = run_cli("models", "rollback", "smollm2", "--to", "9", environment=environment)
    assert (unknown.returncode, "smollm2 has no revision '9'; `corral models history" in unknown.stderr) == (1, True)


def test_a_file_and_a_directory_can_be_installed_and_mistakes_are_reported(
    environment: dict[str, str], tmp_path: Path, models_dir: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TINY.format(name="mine") + "made_up: 1\n")
    unknown = run_cli("models", "install", "--file", str(file), environment=environment)
    assert (unknown.returncode, "has an unknown field: made_up" in unknown.stderr) == (2, True)
    added = run_cli("models", "install", "--force", "--file", str(file), environment=environment)
    assert (added.returncode, "kept fields that Corral does not know: made_up" in added.stderr) == (0, True)
    file.write_text("name: bad\ncontext_size: x\n")
    refused = run_cli("models", "install", "--file", str(file), environment=environment)
    assert (refused.returncode, "context_size must be a whole number" in refused.stderr) == (2, True)
    file.write_text("name: bad\n  context_size: 1\n")
    refused = run_cli("models", "install", "--file", str(file), environment=environment)
    assert f"{file}: The document cannot be read: line 2, column 15" in refused.stderr
    assert "<unicode string>" not in refused.stderr
    assert run_cli("models", "install", "--file", "/none", environment=environment).returncode == 2
    assert run_cli("models", "install", environment=environment).returncode == 2
    (models_dir / "a.yaml").write_text(TINY.format(name="a"))
    (models_dir / "bad.yaml").write_text("name: bad\ncontext_size: x\n")
    imported = run_cli("models", "install", "--directory", "", environment=environment)
    assert (imported.returncode, "1 installed or changed" in imported.stdout) == (1, True)
    assert "bad.yaml" in imported.stderr
    unknown = run_cli("models", "show", "mime", environment=environment)
    assert (unknown.returncode, "did you mean mine" in unknown.stderr) == (1, True)


def test_an_editor_is_opened_again_when_its_text_is_invalid(
    environment: dict[str, str], frontend: Frontend, tmp_path: Path
) -> None:
    frontend.admin.call("POST", "/api/models", body={"config": TINY.format(name="edited")})
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\nfile = pathlib.Path(sys.argv[1])\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "turn = len(count.read_text()) if count.exists() else 0\ncount.write_text('x' * (turn + 1))\n"
        "text = file.read_text()\n"
        "file.write_text(text + 'threads: x\\n' if turn == 0 else text.replace('threads: x', 'threads: 3'))\n"
    )
    editor.chmod(0o755)
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "corral", "models", "edit", "edited"],
            stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**environment, "EDITOR": str(editor)},
        )  # fmt: skip
        os.write(master, b"y\n")
        out, err = process.communicate(timeout=60)
    finally:
        os.close(slave)
        os.close(master)
    assert (process.returncode, "threads must be a whole number" in err) == (0, True)
    assert "now revision" in out
    assert "threads: 3" in frontend.admin.call("GET", "/api/models/edited").json()["config"]


def test_a_key_can_be_limited_to_some_models(environment: dict[str, str], frontend: Frontend) -> None:
    for name in ("one", "two"):
        frontend.admin.call("POST", "/api/models", body={"config": TINY.format(name=name)})
    frontend.admin.call("POST", "/api/models", body={"config": "name: nick\nalias: two\n"})
    made = run_cli("keys", "create", "--name", "held", "--models", "one,nick", "--json", environment=environment)
    assert json.loads(made.stdout)["models"] == ["one", "two"]
    theirs = {**environment, "CORRAL_API_KEY": json.loads(made.stdout)["key"]}
    seen = run_cli("models", "list", environment=theirs)
    assert (seen.returncode, seen.stdout.split()) == (0, ["NAME", "nick", "one", "two"])
    wrong = run_cli("keys", "create", "--name", "x", "--models", "oen", environment=environment)
    assert (wrong.returncode, "did you mean one" in wrong.stderr) == (2, True)
    assert "one,two" in run_cli("keys", "list", environment=environment).stdout
    changed = run_cli("keys", "models", "held", "two", environment=environment)
    assert changed.stdout == "held may use: two\n"
    assert run_cli("keys", "models", "held", "--all", environment=environment).stdout == "held may use: all\n"
    assert run_cli("keys", "models", "held", environment=environment).returncode == 2
    none = run_cli("keys", "create", "--name", "nothing", "--models", "", "--json", environment=environment)
    assert json.loads(none.stdout)["models"] == []


def test_usage_is_shown_by_key_model_and_node(environment: dict[str, str], frontend: Frontend) -> None:
    assert "No request" in run_cli("usage", environment=environment).stdout
    key_id = frontend.admin.call("GET", "/api/keys").json()[0]["id"]
    with sqlite3.connect(frontend.data / "corral.db") as store:
        store.executemany(
            "INSERT INTO usage VALUES (CAST(unixepoch() / 86400 - ? AS INTEGER), ?, ?, ?, ?, ?, ?)",
            [(0, key_id, "one", "gone-node", 2, 30, 40), (1, key_id, "two", "gone-node", 1, 1, 1),
             (5, "", "one", "gone-node", 1, 1, 1)],
        )  # fmt: skip
    store.close()
    rows = frontend.admin.call("GET", "/api/usage?days=3&by=model").json()
    assert rows == [
        {"model": "one", "requests": 2, "tokens_in": 30, "tokens_out": 40},
        {"model": "two", "requests": 1, "tokens_in": 1, "tokens_out": 1},
    ]
    shown = run_cli("usage", "--days", "10", "--by", "key", environment=environment).stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["KEY", "REQUESTS", "TOKENS", "IN", "TOKENS", "OUT"],
        ["none", "1", "1", "1"],
        ["admin", "3", "31", "41"],
    ]
    assert frontend.admin.call("GET", "/api/usage?by=colour").status == 400
    assert call("GET", f"{frontend.url}/api/usage").status == 401


def test_downloads_that_workers_reject_are_reported_at_install(environment: dict[str, str], frontend: Frontend) -> None:
    plain = run_cli("models", "install", "http://far.example/weights.gguf", environment=environment)
    assert plain.returncode == 0
    assert "workers will not download http://far.example/weights.gguf" in plain.stderr
    assert "start every worker with --plain-http-hosts far.example" in plain.stderr
    [warning] = frontend.admin.call("GET", "/api/models/weights").json()["warnings"]
    assert warning in plain.stderr
    never = run_cli("models", "install", "ftp://far.example/other.gguf", environment=environment)
    assert never.returncode != 0
    assert "no node can download ftp://far.example/other.gguf" in never.stderr
    assert frontend.admin.call("GET", "/api/models/other").status == 404
    secret = "name: s\nbackend: b\ndownload_files: [{filename: f, uri: 'https://a:b@host/f'}]\n"
    refused = frontend.admin.call("POST", "/api/models", body={"config": secret})
    assert (refused.status, "no node can download https://...@host/f" in refused.message) == (400, True)


def test_templates_that_cannot_be_rendered_are_reported_at_install(
    environment: dict[str, str], frontend: Frontend, tmp_path: Path
) -> None:
    config = tmp_path / "odd.yaml"
    config.write_text("name: odd\nbackend: llama-cpp\ntemplate: {chat: '{{env .Input}}', completion: '{{.Input}}'}\n")
    added = run_cli("models", "install", "--file", str(config), environment=environment)
    assert added.returncode == 0
    useless, warning = frontend.admin.call("GET", "/api/models/odd").json()["warnings"]
    assert useless in added.stderr
    assert useless.startswith("template.chat, template.completion has no effect: builds of llama-cpp with OpenAI's API")
    assert "chat_template" in useless
    assert warning in added.stderr
    assert warning.startswith("template.chat cannot be rendered")
    assert "the function 'env' is not supported" in warning
