"""What is run for a request: the command, its environment, and what is refused before anything starts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.artifacts import InstalledVersion, Manifest, Metadata
from corral.artifacts.errors import BadManifest
from corral.bus.messages import StartOptions
from corral.core.errors import InvalidInput
from corral.core.processes.process import Fill, ProcessSpec
from corral.core.replicas.llama_cpp import EngineMachine, WeightFacts
from corral.worker.backends.progress import human_size
from corral.worker.processes.fitted import fitted_of
from corral.worker.replicas.launch import StartSettings, plan_process

HTTP = Manifest(
    protocol="openai",
    start=("{bin}/serve", "--host={host}", "--port={port}", "{model}"),
    context=("--context={context}",),
    options={"threads": ("--threads={value}",)},
    environment={"MODE": "fast"},
    token_env="SERVE_TOKEN",
)
LOOPBACK, OPEN = StartSettings(host="127.0.0.1"), StartSettings(host="0.0.0.0")


def version(manifest: Manifest | None) -> InstalledVersion:
    metadata = Metadata(name="b", digest="sha256:" + "1" * 64, manifest=manifest)
    return InstalledVersion(name="b", path=Path("/srv/b"), metadata=metadata, current=True)


def plan(manifest: Manifest | None, start: StartOptions | None, settings: StartSettings = LOOPBACK) -> ProcessSpec:
    return plan_process(version(manifest), settings, model="m", replica=2, start=start)


def test_a_manifests_command_gets_model_port_context_options_and_a_token_of_its_own() -> None:
    spec = plan(HTTP, StartOptions(model="/w/{odd}.gguf", context=4096, options={"threads": "2"}))
    assert spec.command == (
        "/srv/b/bin/serve", "--host=127.0.0.1", Fill("--port={port}"), "/w/{odd}.gguf", "--context=4096", "--threads=2",
    )  # fmt: skip
    assert spec.environment == {"MODE": "fast", "SERVE_TOKEN": Fill("{token}")}
    assert (spec.key, spec.readiness.kind, spec.directory) == ("m#2", "http", "/srv/b")


LLAMA_CPP = Manifest(
    protocol="openai",
    launcher="llama_cpp",
    start=("{python}", "{dir}/corral_launch.py", "--host={host}", "--port={port}", "--model={model}"),
    context=("--context={context}",),
    slots=("--slots={slots}",),
    options={"threads": ("--threads={value}",), "gpu_layers": ("--gpu-layers={value}",)},
    token_env="TOKEN",
)
VLLM = Manifest(
    protocol="openai",
    start=("{bin}/vllm", "serve", "{model}", "--host={host}", "--port={port}"),
    context=("--max-model-len={context}",),
    slots=("--max-num-seqs={slots}",),
    token_env="VLLM_API_KEY",
)
WEIGHTS = WeightFacts(size_bytes=4 << 30, layers=32, trained_context=131_072, cache_bytes_per_token=128 << 10)


def arguments(manifest: Manifest, start: StartOptions, *, has_gpu: bool = False) -> list[str]:
    settings = StartSettings(host="127.0.0.1", machine=EngineMachine(cores=6, has_gpu=has_gpu))
    spec = plan_process(version(manifest), settings, model="m", replica=0, start=start, weights=WEIGHTS)
    return [part for part in spec.command if isinstance(part, str) and part.startswith("--")][1:]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(StartOptions(model="org/m"), [], id="what-nobody-configured-is-not-passed"),
        pytest.param(
            StartOptions(model="org/m", context=8192, slots=64),
            ["--max-model-len=8192", "--max-num-seqs=64"],
            id="what-is-configured-is",
        ),
        pytest.param(StartOptions(model="org/m", context=-1), [], id="the-largest-context-is-what-it-uses-anyway"),
        pytest.param(StartOptions(model="org/m", memory_bytes=1 << 30), [], id="it-is-not-fitted"),
    ],
)
def test_an_engine_decides_its_own_slots_and_context(start: StartOptions, expected: list[str]) -> None:
    assert arguments(VLLM, start) == expected


@pytest.mark.parametrize(
    ("start", "has_gpu", "expected"),
    [
        pytest.param(
            StartOptions(model="/w/m.gguf", memory_bytes=9 << 30),
            True,
            ["--model=/w/m.gguf", "--context=4096", "--slots=9", "--gpu-layers=33", "--threads=6"],
            id="to-the-reserved-memory-and-the-cores",
        ),
        pytest.param(
            StartOptions(model="/w/m.gguf", memory_bytes=9 << 30, context=8192, soft_options={"threads": "2"}),
            False,
            ["--model=/w/m.gguf", "--context=8192", "--slots=3", "--threads=2"],
            id="around-what-is-configured",
        ),
    ],
)
def test_llama_cpp_is_fitted(start: StartOptions, has_gpu: bool, expected: list[str]) -> None:
    """Options that an older installed version does not know, such as the prompt cache here, are left out."""
    assert arguments(LLAMA_CPP, start, has_gpu=has_gpu) == expected


@pytest.mark.parametrize(
    ("name", "alias", "expected"),
    [
        pytest.param(
            "cuda12-llama-cpp",
            "llama-cpp",
            {"slots": 9, "context": 4096, "threads": 6, "gpu_layers": 33},
            id="llama-cpp",
        ),
        pytest.param(
            "vulkan-llama-cpp-development",
            "",
            {"slots": 9, "context": 4096, "threads": 6, "gpu_layers": 33},
            id="llama-cpp-by-its-name",
        ),
        pytest.param("cuda12-whisper", "whisper", {"threads": 6}, id="others-get-the-cores"),
    ],
)
def test_a_grpc_backend_is_fitted_by_the_call_that_loads_its_model(
    name: str, alias: str, expected: dict[str, int]
) -> None:
    installed = InstalledVersion(
        name=name, path=Path("/srv/b"), metadata=Metadata(name=name, alias=alias), current=True
    )
    settings = StartSettings(host="127.0.0.1", machine=EngineMachine(cores=6, has_gpu=True))
    start = StartOptions(model="/w/m.gguf", memory_bytes=9 << 30)
    spec = plan_process(installed, settings, model="m", replica=0, start=start, weights=WEIGHTS)
    assert fitted_of(spec) == expected
    of_localai = plan_process(installed, settings, model="m", replica=0, start=None)
    assert fitted_of(of_localai) == {}


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        pytest.param(None, {"LOCALAI_GRPC_AUTH_TOKEN": Fill("{token}")}, id="its-own-with-a-corral-frontend"),
        pytest.param("fleet", {"LOCALAI_GRPC_AUTH_TOKEN": "fleet"}, id="the-fleets-with-a-localai-frontend"),
        pytest.param("", {}, id="none-where-the-fleet-has-none"),
    ],
)
def test_the_token_of_a_grpc_backend(shared: str | None, expected: dict[str, Any]) -> None:
    spec = plan(None, None, replace(OPEN, shared_token=shared))
    assert spec.command == ("/srv/b/run.sh", "--addr", Fill("0.0.0.0:{port}"))
    assert spec.environment == expected
    assert spec.readiness.kind == "grpc"


@pytest.mark.parametrize(
    ("start", "error"),
    [
        pytest.param(StartOptions(), InvalidInput, id="no-model"),
        pytest.param(StartOptions(model="/w/{token}"), InvalidInput, id="a-path-that-asks-for-the-token"),
        pytest.param(StartOptions(model="/w", options={"threads": "{port}"}), InvalidInput, id="an-option-that-does"),
        pytest.param(StartOptions(model="/w", options={"other": "1"}), BadManifest, id="an-option-nobody-listed"),
        pytest.param(StartOptions(model="/w", options={"threads": "1\0"}), BadManifest, id="a-zero-byte"),
    ],
)
def test_what_must_not_start(start: StartOptions, error: type[Exception]) -> None:
    with pytest.raises(error):
        plan(HTTP, start)


def test_a_server_without_a_token_is_started_on_loopback_only() -> None:
    open_to_all = Manifest(protocol="openai", start=("serve", "{port}"))
    assert plan(open_to_all, StartOptions(model="/w")).environment == {}
    with pytest.raises(InvalidInput, match="does not support tokens"):
        plan(open_to_all, StartOptions(model="/w"), OPEN)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0.0 B"), (1536, "1.5 KiB"), (432013312, "412.0 MiB"), (1 << 41, "2.0 TiB")]
)
def test_sizes_are_written_as_localai_does(count: int, text: str) -> None:
    assert human_size(count) == text
