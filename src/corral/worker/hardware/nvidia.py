"""NVIDIA GPUs: what the management library tells, mended where a board shares its memory with the processor."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from corral.core.nodes.hardware import Gpu, Memory
from corral.worker.hardware.files import FileTree
from corral.worker.hardware.nvml import GpuMemory, Nvml, NvmlError

T = TypeVar("T")

# Chips of the Jetson line, by the name the device tree gives them. Their library often tells no more than a name.
_TEGRA_COMPUTE = {
    "tegra264": "11.0",
    "tegra234": "8.7",
    "tegra194": "7.2",
    "tegra186": "6.2",
    "tegra210": "5.3",
}


def read_nvidia_gpus(tree: FileTree, nvml: Nvml, memory: Memory, *, platform: str, on_bus: bool) -> tuple[Gpu, ...]:
    """`on_bus`: the kernel lists an NVIDIA device, so a missing driver is worth a word."""
    tegra = _read_tegra(tree, memory)
    try:
        nvml.open()
        count = nvml.device_count()
    except NvmlError as problem:
        _close(tree, nvml)  # a driver that was replaced under us answers again after a fresh start
        if problem.kind == "failed" or on_bus:
            tree.report(f"NVIDIA GPUs are present but cannot be queried: {problem}. Check that the driver is loaded.")
        return () if tegra is None else (tegra,)
    driver = _asked(tree, "the driver's version", nvml.driver_version)
    gpus = []
    for index in range(count):
        gpu = _read_gpu(tree, nvml, index, memory, shares_memory=tegra is not None or platform == "linux/arm64")
        if tegra is not None:
            gpu = replace(gpu, unified=True, compute_capability=gpu.compute_capability or tegra.compute_capability)
        gpus.append(replace(gpu, driver=driver))
    return tuple(gpus) or (() if tegra is None else (tegra,))


def _read_gpu(tree: FileTree, nvml: Nvml, index: int, memory: Memory, *, shares_memory: bool) -> Gpu:
    def told(what: str, question: Callable[[int], T]) -> T | None:
        return _asked(tree, f"{what} of NVIDIA GPU {index}", lambda: question(index))

    address = told("the address", nvml.pci_address)
    gpu = Gpu(
        vendor="nvidia",
        name=told("the name", nvml.name),
        compute_capability=told("the compute capability", nvml.compute_capability),
        pci_address=None if address is None else short_pci_address(address),
        uuid=told("the identity", nvml.uuid),
    )
    size = read_gpu_memory(tree, nvml, index, memory, shares_memory=shares_memory)
    return replace(
        gpu, memory_total_bytes=size.total_bytes, memory_free_bytes=size.available_bytes, unified=size is memory
    )


def read_gpu_memory(tree: FileTree, nvml: Nvml, index: int, memory: Memory, *, shares_memory: bool) -> Memory:
    """`memory` itself where the GPU has none of its own: Jetson and GB10 answer "not supported"."""
    try:
        own: GpuMemory = nvml.memory(index)
    except NvmlError as problem:
        if problem.kind == "not_supported" and shares_memory:
            return memory
        tree.report(f"the memory of NVIDIA GPU {index} is unknown: {problem}")
        return Memory()
    return Memory(total_bytes=own.total_bytes, available_bytes=own.free_bytes)


def short_pci_address(address: str) -> str:
    """The library writes eight digits of domain, the kernel four."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else address.lower()


def _read_tegra(tree: FileTree, memory: Memory) -> Gpu | None:
    model = tree.text("/proc/device-tree/model")
    chips = tree.text("/proc/device-tree/compatible") or ""
    if "tegra" not in chips and not tree.exists("/etc/nv_tegra_release"):
        return None
    compute = next((version for chip, version in _TEGRA_COMPUTE.items() if chip in chips), None)
    if compute is None:
        tree.report("the compute capability of this NVIDIA board is unknown: Corral does not know its chip")
    return Gpu(
        vendor="nvidia",
        name=model,
        memory_total_bytes=memory.total_bytes,
        memory_free_bytes=memory.available_bytes,
        unified=True,
        compute_capability=compute,
    )


def _close(tree: FileTree, nvml: Nvml) -> None:
    try:
        nvml.close()
    except NvmlError as problem:
        tree.report(f"the NVIDIA management library did not close: {problem}")


def _asked(tree: FileTree, what: str, question: Callable[[], T]) -> T | None:
    try:
        return question()
    except NvmlError as problem:
        tree.report(f"{what} is unknown: {problem}")
        return None
