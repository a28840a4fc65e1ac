"""Whether a node with an accelerator has only a CPU build, why, and what corrects it."""

from dataclasses import dataclass, field, replace

import pytest

from core.backends.test_drift import machine
from corral.core.backends.acceleration import has_accelerator, is_accelerated
from corral.core.backends.slow_builds import SlowBuild, find_slow_builds
from corral.core.backends.variants import index_by_name
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend


def make_node(name: str, **fields: object) -> Node:
    return machine(id=NodeId(f"id-{name}"), name=name, **fields)


@dataclass(frozen=True)
class Entry:
    name: str
    uri: str = ""
    capabilities: dict[str, str] = field(default_factory=dict)


def family(name: str, **builds: str) -> list[Entry]:
    capabilities = {key.replace("_", "-"): build for key, build in builds.items()}
    concrete = [Entry(build, f"registry.example/{build}", capabilities) for build in sorted(set(builds.values()))]
    return [Entry(name, capabilities=capabilities), *concrete]


GALLERIES = {
    "ours": index_by_name(
        [
            *family("llm", nvidia_cuda_12="cuda12-llm", metal="metal-llm", default="cpu-llm"),
            *family("paint", vulkan="vulkan-paint", nvidia="cuda12-paint", default="cpu-paint"),
            *family("apple-only", metal="metal-apple-only", default="cpu-apple-only"),
            *family("voice", default="cpu-voice"),
            *family("plain", nvidia_cuda_12="plain-big", default="plain-small"),
        ]
    )
}
GPU = make_node("gpu-1", capability="nvidia-cuda-12", gpu_vendor="nvidia", total_vram=24 << 30)
AMD = make_node("amd-1", capability="amd", gpu_vendor="amd", total_vram=24 << 30)
CPU = make_node("cpu-1", capability="default", gpu_vendor=None, total_vram=None)
SMALL = make_node("small-1", capability="default", gpu_vendor="nvidia", total_vram=2 << 30)


def installed(name: str, alias: str = "") -> ObservedBackend:
    return ObservedBackend(name=name, alias=alias, uri=f"registry.example/{name}")


def meta(name: str, concrete: str) -> ObservedBackend:
    return ObservedBackend(name=name, is_meta=True, concrete=concrete)


@pytest.mark.parametrize(
    ("node", "backends", "expected"),
    [
        pytest.param(
            GPU,
            [installed("cpu-llm", "llm")],
            ("llm", "cuda12-llm uses its accelerator", "`corral backends install llm --node gpu-1`"),
            id="an-accelerated-build-exists",
        ),
        pytest.param(
            GPU,
            [installed("cpu-llm"), meta("llm", "cpu-llm")],
            ("llm", "cuda12-llm uses its accelerator", "`corral backends install llm --node gpu-1`"),
            id="the-family-is-known-by-its-meta-backend",
        ),
        pytest.param(
            GPU,
            [installed("cpu-llm"), installed("cuda12-llm", "llm"), meta("llm", "cpu-llm")],
            ("llm", "cuda12-llm uses its accelerator", "`corral backends install llm --node gpu-1`"),
            id="an-accelerated-build-is-there-but-the-family-points-to-the-other",
        ),
        pytest.param(
            GPU,
            [installed("plain-small", "plain")],
            ("plain", "plain-big uses its accelerator", "`corral backends install plain --node gpu-1`"),
            id="the-capability-map-shows-it-where-names-do-not",
        ),
        pytest.param(
            AMD,
            [installed("cpu-paint", "paint")],
            ("paint", "vulkan-paint may run there", "`corral backends install vulkan-paint --node amd-1`"),
            id="another-build-of-the-family-may-run-there",
        ),
        pytest.param(
            AMD,
            [installed("cpu-apple-only", "apple-only")],
            ("apple-only", "no gallery has a build of apple-only for amd", "there are builds for metal"),
            id="no-build-uses-this-accelerator",
        ),
        pytest.param(
            SMALL,
            [installed("cpu-llm", "llm")],
            (
                "llm",
                "its capability is default (the GPU is small)",
                "start its worker with `corral worker --capability",
            ),
            id="the-accelerator-is-not-used-at-all",
        ),
        pytest.param(
            replace(SMALL, key_hash=None),
            [installed("cpu-llm", "llm")],
            ("llm", "a GPU of nvidia", "`LOCALAI_FORCE_META_BACKEND_CAPABILITY=nvidia`"),
            id="a-localai-worker-has-its-own-setting",
        ),
    ],
)
def test_a_cpu_build_on_an_accelerated_node(
    node: Node, backends: list[ObservedBackend], expected: tuple[str, str, str]
) -> None:
    (found,) = find_slow_builds(node, backends, GALLERIES, capability_reason="the GPU is small")
    backend, reason, remedy = expected
    assert (found.backend, found.build, found.node_name) == (backend, backends[0].name, node.name)
    assert reason in found.reason
    assert remedy in found.remedy


def test_an_accelerated_build_without_the_platform_of_the_node_is_not_proposed() -> None:
    (found,) = find_slow_builds(GPU, [installed("cpu-llm", "llm")], GALLERIES, lacking={"cuda12-llm"})
    assert "cuda12-llm does not exist for that" in found.reason
    assert "corral backends install" not in found.remedy


@pytest.mark.parametrize(
    ("node", "backends"),
    [
        pytest.param(CPU, [installed("cpu-llm", "llm")], id="a-node-without-an-accelerator"),
        pytest.param(GPU, [installed("cuda12-llm", "llm")], id="an-accelerated-build"),
        pytest.param(GPU, [installed("cpu-llm", "llm"), installed("cuda12-llm", "llm")], id="both-builds"),
        pytest.param(GPU, [installed("cpu-voice", "voice")], id="a-backend-for-the-processor-only"),
        pytest.param(GPU, [installed("mine")], id="a-backend-that-no-gallery-knows"),
        pytest.param(GPU, [], id="nothing-installed"),
    ],
)
def test_nothing_to_warn_of(node: Node, backends: list[ObservedBackend]) -> None:
    assert find_slow_builds(node, backends, GALLERIES) == []


def test_the_whole_warning() -> None:
    (found,) = find_slow_builds(GPU, [installed("cpu-llm", "llm")], GALLERIES)
    assert found == SlowBuild(
        node_id=GPU.id,
        node_name="gpu-1",
        backend="llm",
        build="cpu-llm",
        capability="nvidia-cuda-12",
        reason="cpu-llm uses only the processor of gpu-1 (nvidia-cuda-12); cuda12-llm uses its accelerator",
        remedy="`corral backends install llm --node gpu-1`",
    )


@pytest.mark.parametrize(
    ("name", "uri", "accelerated"),
    [
        ("cuda12-x", "", True),
        ("x", "registry.example/x:latest-gpu-rocm-hipblas-x", True),
        ("x", "pypi://x==1?index=https://wheels.example/cu128", True),
        ("cpu-x", "registry.example/x:latest-cpu-x", False),
        ("cpu-mlx", "", False),
        ("vulkan-x", "", True),
        ("x-amd64", "", None),
        ("chip", "", None),
        ("x", "registry.example/x", None),
    ],
)
def test_a_name_or_a_source_shows_what_a_build_uses(name: str, uri: str, accelerated: bool | None) -> None:
    assert is_accelerated(name, uri, {}) is accelerated


def test_capabilities_with_an_accelerator() -> None:
    assert [one for one in ("default", "cpu", "darwin-x86", "disable", "nvidia", "metal", "vulkan", "amd")
            if has_accelerator(one)] == ["nvidia", "metal", "vulkan", "amd"]  # fmt: skip
