"""Coding agents as real programs, in their non-interactive mode: each completes a turn with a tool call.

Not in the suite, because they are large downloads: `./dev clients` installs them, and runs this file in a network
namespace that has only a loopback interface. So nothing can reach the agents' own vendors."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.agent_engine import FILE, agent_engine_files
from harness.cluster import Cluster
from harness.http_files import HttpFiles
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.programs import clean_environment
from harness.waiting import wait_until

PACKAGES = Path(os.environ["CORRAL_TEST_AGENTS"])
NODE = os.environ["CORRAL_TEST_NODE"]
WEIGHTS = b"weights of a horse"
MODEL = "scripted"
SECRET = "the horse is piebald"
PROMPT = f"What does {FILE} say?"
WITHIN_S = 240


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    nats, registry = Nats(tmp_path_factory.mktemp("nats")), OciRegistry(tmp_path_factory.mktemp("registry"))
    web, sha256 = HttpFiles({"/tiny.gguf": WEIGHTS}), hashlib.sha256(WEIGHTS).hexdigest()
    running = Cluster(tmp_path_factory.mktemp("fleet"), nats, None, registry=registry)
    running.offer_image("agent-engine", agent_engine_files())
    admin = running.start_frontend("a", "--auto-approve", CORRAL_MODEL_LOAD_WAIT="120s")
    running.start_worker("w1")
    admin.wait_for_status("w1", "healthy")
    config = (
        f"name: {MODEL}\nbackend: agent-engine\nparameters: {{model: tiny.gguf}}\n"
        f"download_files: [{{filename: tiny.gguf, uri: '{web.url('/tiny.gguf')}', sha256: {sha256}}}]\n"
    )
    added = admin.call("POST", "/api/models", body={"config": config})
    assert added.status == 201, added.body
    loaded = admin.call("POST", f"/api/models/{MODEL}/load", body={"wait_s": 120}, within_s=150)
    assert loaded.status == 200, loaded.body
    yield running
    running.stop()
    web.stop()
    registry.stop()
    nats.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory in which an agent works."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / FILE).write_text(f"{SECRET}\n")
    return directory


def make_key(fleet: Cluster, name: str) -> str:
    made = fleet.admin().call("POST", "/api/keys", body={"name": name})
    assert made.status == 201, made.body
    key: str = made.json()["key"]
    return key


def test_only_loopback_is_reachable() -> None:
    routes = Path("/proc/net/route").read_text().splitlines()[1:]
    assert not routes, "run this file with `./dev clients`"


def test_claude_code_completes_a_turn_with_a_tool_call(fleet: Cluster, project: Path) -> None:
    said = run_agent(
        "@anthropic-ai/claude-code/cli-wrapper.cjs", "--print", PROMPT, "--model", MODEL, "--allowedTools", "Bash",
        project=project,
        ANTHROPIC_BASE_URL=fleet.admin().url,
        ANTHROPIC_API_KEY=make_key(fleet, "claude"),
        ANTHROPIC_SMALL_FAST_MODEL=MODEL,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip
    assert SECRET in said
    assert_used(fleet, "claude")


def test_codex_completes_a_turn_with_a_tool_call(fleet: Cluster, project: Path) -> None:
    home = project.parent / "codex"
    home.mkdir()
    (home / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "corral"\n'
        f'[model_providers.corral]\nname = "Corral"\nbase_url = "{fleet.admin().url}/v1"\n'
        'wire_api = "responses"\nenv_key = "CORRAL_API_KEY"\n'
    )
    said = run_agent(
        "@openai/codex/bin/codex.js", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", PROMPT,
        project=project,
        CODEX_HOME=str(home),
        CORRAL_API_KEY=make_key(fleet, "codex"),
    )  # fmt: skip
    assert SECRET in said
    assert_used(fleet, "codex")


def run_agent(program: str, *arguments: str, project: Path, **environment: str) -> str:
    """What it prints at the end of its turn."""
    done = subprocess.run(
        [NODE, str(PACKAGES / "node_modules" / program), *arguments],
        cwd=project,
        env={**clean_environment(**environment), "HOME": str(project.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_used(fleet: Cluster, key_name: str) -> None:
    """The tool call and the answer to its result were requests of this key."""

    def look() -> bool:
        rows = fleet.admin().call("GET", "/api/usage").json()
        return sum(int(row["requests"]) for row in rows if row["key_name"] == key_name) >= 2

    wait_until(look, what=f"{key_name} is counted")
