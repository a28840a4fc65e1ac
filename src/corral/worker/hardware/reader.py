"""The whole machine in one look, and the quick look a heartbeat needs. Both block: call them in a thread."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corral.core.nodes.capability import CapabilityFacts
from corral.core.nodes.hardware import VENDOR_OF_TOOL, Gpu, Hardware, HardwareUsage, Memory, pick_gpu_vendor, sum_known
from corral.worker.hardware.files import FileTree
from corral.worker.hardware.machine import (
    read_cpu,
    read_disk,
    read_memory,
    read_memory_without_proc,
    read_platform,
)
from corral.worker.hardware.nvidia import read_nvidia_gpus
from corral.worker.hardware.nvml import NvidiaMl, Nvml
from corral.worker.hardware.sysfs import read_pci_gpus

_RUN_FILE = "/run/localai/capability"


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Where to look. What is left out is this machine; a test hands in a fabricated tree."""

    disk: Path  # the directory whose file system matters: the models directory
    root: Path = Path("/")
    platform: str = field(default_factory=read_platform)
    tool_path: str | None = None  # where tools are looked for; None means the worker's own PATH
    nvml: Nvml = field(default_factory=NvidiaMl)


def read_hardware(roots: Roots) -> Hardware:
    tree = FileTree(roots.root)
    memory = _read_memory(tree, roots)
    gpus = _read_gpus(tree, roots, memory)
    tools = [tool for tool, _ in VENDOR_OF_TOOL if shutil.which(tool, path=roots.tool_path)]
    return Hardware(
        platform=roots.platform,
        gpus=gpus,
        gpu_vendor=pick_gpu_vendor(gpus, tools),
        cpu=read_cpu(tree),
        memory=memory,
        disk=read_disk(tree, roots.disk),
        problems=tuple(tree.problems),
    )


def read_usage(roots: Roots, hardware: Hardware) -> HardwareUsage:
    """What is free now. The GPUs are those found at the start: a heartbeat does not search for new ones."""
    tree = FileTree(roots.root)
    memory = _read_memory(tree, roots)
    disk = read_disk(tree, roots.disk)
    gpus = _read_gpus(tree, roots, memory) if hardware.gpus else ()
    main = [gpu for gpu in gpus if gpu.vendor == hardware.gpu_vendor]
    return HardwareUsage(
        ram_available_bytes=memory.available_bytes,
        vram_total_bytes=sum_known(gpu.memory_total_bytes for gpu in main),
        vram_free_bytes=sum_known(gpu.memory_free_bytes for gpu in main),
        disk_total_bytes=disk.total_bytes,
        disk_available_bytes=disk.available_bytes,
        problems=tuple(tree.problems),
    )


def read_capability_facts(roots: Roots, hardware: Hardware, environment: Mapping[str, str]) -> CapabilityFacts:
    tree = FileTree(roots.root)
    return CapabilityFacts(
        platform=hardware.platform,
        gpu_vendor=hardware.gpu_vendor,
        vram_total_bytes=hardware.vram_total_bytes,
        cuda_majors=frozenset(major for major in (12, 13) if tree.exists(f"/usr/local/cuda-{major}")),
        forced=environment.get("LOCALAI_FORCE_META_BACKEND_CAPABILITY"),
        run_file=tree.text(environment.get("LOCALAI_FORCE_META_BACKEND_CAPABILITY_RUN_FILE") or _RUN_FILE),
    )


def _read_memory(tree: FileTree, roots: Roots) -> Memory:
    return read_memory_without_proc(tree) if roots.platform.startswith("darwin/") else read_memory(tree)


def _read_gpus(tree: FileTree, roots: Roots, memory: Memory) -> tuple[Gpu, ...]:
    if roots.platform == "darwin/arm64":
        size, free = memory.total_bytes, memory.available_bytes
        return (Gpu(vendor="apple", name="Apple GPU", memory_total_bytes=size, memory_free_bytes=free, unified=True),)
    on_bus = read_pci_gpus(tree)
    nvidia_on_bus = [gpu for gpu in on_bus if gpu.vendor == "nvidia"]
    told = read_nvidia_gpus(tree, roots.nvml, memory, platform=roots.platform, on_bus=bool(nvidia_on_bus))
    addresses = {gpu.pci_address for gpu in told}
    # A GPU the library left out is still there: it is listed, with what the bus knows.
    untold = [gpu for gpu in nvidia_on_bus if gpu.pci_address not in addresses]
    if untold and told:
        tree.report(f"{len(untold)} NVIDIA GPU(s) on the PCI bus are not managed by the driver")
    return (*told, *untold, *(gpu for gpu in on_bus if gpu.vendor != "nvidia"))
