from dataclasses import replace

import pytest

from corral.core.nodes.capability import CapabilityFacts, pick_capability, vram_label
from corral.core.nodes.hardware import Gpu, GpuVendor, pick_gpu_vendor

GIB = 1 << 30
LINUX = CapabilityFacts(platform="linux/amd64")
ARM = CapabilityFacts(platform="linux/arm64")
RTX_3090 = replace(LINUX, gpu_vendor="nvidia", vram_total_bytes=24 * GIB)


@pytest.mark.parametrize(
    ("facts", "token"),
    [
        pytest.param(LINUX, "default", id="no-gpu-is-default"),
        pytest.param(replace(RTX_3090, forced=" vulkan "), "vulkan", id="a-setting-wins-over-everything"),
        pytest.param(replace(RTX_3090, forced="", run_file="amd\n"), "amd", id="an-empty-setting-is-no-setting"),
        pytest.param(replace(RTX_3090, run_file="  \n"), "nvidia", id="an-empty-capability-file-is-no-file"),
        pytest.param(replace(RTX_3090, forced="intel", run_file="amd"), "intel", id="the-setting-wins-over-the-file"),
        pytest.param(CapabilityFacts(platform="darwin/arm64"), "metal", id="an-apple-chip-is-metal"),
        pytest.param(CapabilityFacts(platform="darwin/amd64"), "darwin-x86", id="an-intel-mac"),
        pytest.param(
            CapabilityFacts(platform="darwin/arm64", forced="default"), "default", id="a-mac-can-be-forced-too"
        ),
        pytest.param(RTX_3090, "nvidia", id="nvidia-without-cuda"),
        pytest.param(replace(RTX_3090, cuda_majors=frozenset({12})), "nvidia-cuda-12", id="cuda-12"),
        pytest.param(replace(RTX_3090, cuda_majors=frozenset({12, 13})), "nvidia-cuda-13", id="the-newer-cuda-wins"),
        pytest.param(
            replace(RTX_3090, vram_total_bytes=4 * GIB, cuda_majors=frozenset({12})), "default", id="four-gib-is-small"
        ),
        pytest.param(replace(RTX_3090, vram_total_bytes=4 * GIB + 1), "nvidia", id="one-byte-more-is-not"),
        pytest.param(replace(RTX_3090, vram_total_bytes=None), "default", id="unknown-memory-gets-cpu-builds"),
        pytest.param(replace(ARM, gpu_vendor="nvidia"), "nvidia-l4t", id="a-jetson-without-cuda"),
        pytest.param(
            replace(ARM, gpu_vendor="nvidia", vram_total_bytes=2 * GIB, cuda_majors=frozenset({12})),
            "nvidia-l4t-cuda-12",
            id="a-small-jetson-stays-a-jetson",
        ),
        pytest.param(
            replace(ARM, gpu_vendor="nvidia", vram_total_bytes=128 * GIB, cuda_majors=frozenset({12, 13})),
            "nvidia-l4t-cuda-13",
            id="a-spark",
        ),
        pytest.param(replace(ARM, gpu_vendor="amd", vram_total_bytes=16 * GIB), "amd", id="amd-on-arm"),
        pytest.param(
            replace(LINUX, gpu_vendor="amd", vram_total_bytes=16 * GIB, cuda_majors=frozenset({12})),
            "amd",
            id="cuda-directories-mean-nothing-to-amd",
        ),
        pytest.param(replace(LINUX, gpu_vendor="intel", vram_total_bytes=16 * GIB), "intel", id="intel"),
        pytest.param(replace(LINUX, gpu_vendor="vulkan", vram_total_bytes=8 * GIB), "vulkan", id="vulkan"),
        pytest.param(replace(LINUX, gpu_vendor="unknown", vram_total_bytes=8 * GIB), "unknown", id="unknown-vendor"),
    ],
)
def test_pick_capability(facts: CapabilityFacts, token: str) -> None:
    assert pick_capability(facts).token == token


def test_an_unknown_memory_size_says_how_to_choose_otherwise() -> None:
    reason = pick_capability(replace(RTX_3090, vram_total_bytes=None)).reason
    assert "unknown" in reason
    assert "LOCALAI_FORCE_META_BACKEND_CAPABILITY" in reason


@pytest.mark.parametrize(
    ("size", "label"),
    [(0, "0GB"), (6, "6GB"), (8, "8GB"), (12, "8GB"), (16, "16GB"), (32, "24GB"), (70, "48GB"), (80, "80GB+")],
)
def test_vram_label(size: int, label: str) -> None:
    assert vram_label(size * GIB) == label
    assert vram_label(size * GIB + 1) == label


@pytest.mark.parametrize(
    ("gpus", "tools", "vendor"),
    [
        pytest.param([], [], None, id="nothing-found"),
        pytest.param(
            [Gpu(vendor="intel"), Gpu(vendor="nvidia")], [], "nvidia", id="nvidia-first-when-sizes-are-unknown"
        ),
        pytest.param(
            [Gpu(vendor="nvidia", memory_total_bytes=2 * GIB), Gpu(vendor="amd", memory_total_bytes=16 * GIB)],
            [],
            "amd",
            id="the-larger-memory-decides",
        ),
        pytest.param([], ["vulkaninfo", "rocm-smi"], "amd", id="a-tool-tells-where-the-bus-does-not"),
        pytest.param([Gpu(vendor="intel")], ["nvidia-smi"], "intel", id="the-bus-wins-over-a-tool"),
    ],
)
def test_pick_gpu_vendor(gpus: list[Gpu], tools: list[str], vendor: GpuVendor | None) -> None:
    assert pick_gpu_vendor(gpus, tools) == vendor
