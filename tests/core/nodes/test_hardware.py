"""The hardware of a node: which GPUs count, what they have together, and their size class."""

from typing import Any

import pytest

from corral.core.nodes.hardware import (
    Cpu,
    DiskInfo,
    Gpu,
    GpuVendor,
    Hardware,
    Memory,
    pick_gpu_vendor,
    sum_known,
    vram_label,
)

GIB = 1 << 30


def gpu(vendor: GpuVendor, gib: int | None = 8, **fields: Any) -> Gpu:
    size = None if gib is None else gib * GIB
    return Gpu(vendor=vendor, memory_total_bytes=size, memory_free_bytes=size, **fields)


@pytest.mark.parametrize(
    ("gpus", "tools", "expected"),
    [
        pytest.param([], [], None, id="no-gpu"),
        pytest.param([gpu("amd")], [], "amd", id="the-only-one"),
        pytest.param([gpu("intel", 2), gpu("nvidia", 24)], [], "nvidia", id="the-vendor-with-the-most-memory"),
        pytest.param([gpu("amd", 16), gpu("nvidia", 12), gpu("nvidia", 12)], [], "nvidia", id="in-total"),
        pytest.param([gpu("amd", 8), gpu("nvidia", 8)], [], "nvidia", id="among-equals-the-one-with-more-builds"),
        pytest.param([gpu("intel", None), gpu("amd", None)], [], "amd", id="unknown-memory-counts-as-none"),
        pytest.param([], ["rocm-smi"], "amd", id="without-a-gpu-the-vendor-of-an-installed-tool"),
        pytest.param([], ["vulkaninfo", "nvidia-smi"], "nvidia", id="the-first-of-several-tools"),
        pytest.param([gpu("intel")], ["nvidia-smi"], "intel", id="a-gpu-comes-before-a-tool"),
        pytest.param([], ["htop"], None, id="another-tool-says-nothing"),
    ],
)
def test_pick_gpu_vendor(gpus: list[Gpu], tools: list[str], expected: GpuVendor | None) -> None:
    assert pick_gpu_vendor(gpus, tools) == expected


def hardware(*gpus: Gpu, vendor: GpuVendor | None) -> Hardware:
    disk = DiskInfo(path="/")
    return Hardware(platform="linux/amd64", gpus=gpus, gpu_vendor=vendor, cpu=Cpu(), memory=Memory(), disk=disk)


@pytest.mark.parametrize(
    ("machine", "vram", "compute"),
    [
        pytest.param(hardware(vendor=None), None, None, id="no-gpu"),
        pytest.param(
            hardware(gpu("nvidia", 24), gpu("nvidia", 12), vendor="nvidia"), 36 * GIB, None, id="the-sum-of-all"
        ),
        pytest.param(
            hardware(gpu("nvidia", 24), gpu("intel", 2), vendor="nvidia"), 24 * GIB, None, id="of-the-main-vendor"
        ),
        pytest.param(hardware(gpu("intel", None), vendor="intel"), None, None, id="unknown-is-not-zero"),
        pytest.param(
            hardware(gpu("nvidia", 8), gpu("nvidia", None), vendor="nvidia"),
            8 * GIB,
            None,
            id="a-lower-bound-if-one-is-unknown",
        ),
        pytest.param(
            hardware(
                gpu("nvidia", 8, compute_capability="10.0"), gpu("nvidia", 8, compute_capability="8.9"), vendor="nvidia"
            ),
            16 * GIB,
            "8.9",
            id="the-lowest-compute-capability-by-number",
        ),
    ],
)
def test_what_gpus_have_together(machine: Hardware, vram: int | None, compute: str | None) -> None:
    assert (machine.vram_total_bytes, machine.vram_free_bytes, machine.compute_capability) == (vram, vram, compute)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([None, None], None, id="only-unknown-values"),
        pytest.param([None, 3, 4], 7, id="unknown-values-are-left-out"),
        pytest.param([0], 0, id="zero-is-known"),
    ],
)
def test_sum_known(values: list[int | None], expected: int | None) -> None:
    assert sum_known(values) == expected


@pytest.mark.parametrize(
    ("gib", "expected"),
    [
        pytest.param(4, "4GB", id="a-small-one-by-its-size"),
        pytest.param(8, "8GB", id="eight"),
        pytest.param(11.99, "8GB", id="the-class-below"),
        pytest.param(15.7, "16GB", id="a-card-that-reports-a-little-less"),
        pytest.param(23.6, "24GB", id="twenty-four"),
        pytest.param(47.5, "48GB", id="forty-eight"),
        pytest.param(79.6, "80GB+", id="eighty"),
        pytest.param(192, "80GB+", id="everything-larger"),
    ],
)
def test_the_size_class_for_selectors(gib: float, expected: str) -> None:
    assert vram_label(int(gib * GIB)) == expected
