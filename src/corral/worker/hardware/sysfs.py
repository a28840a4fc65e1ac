"""GPUs as the kernel lists them: who made them and where they sit, and for AMD and Intel their memory."""

import re
from collections.abc import Iterator
from dataclasses import replace

from corral.core.nodes.hardware import Gpu, GpuVendor
from corral.worker.hardware.files import FileTree

_VENDORS: dict[int, GpuVendor] = {0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel"}
_CARD = re.compile(r"card\d+")
# PCI classes 0x03 (display) and 0x12 (accelerators: an MI300 has no display at all).
_GPU_CLASSES = (0x03, 0x12)
_INTEL_BUILT_IN = "0000:00:02.0"  # where Intel has put the graphics unit of its processors since ever


def read_pci_gpus(tree: FileTree) -> tuple[Gpu, ...]:
    """Every GPU of a vendor we know, one each, by address. Board management and virtual displays are none."""
    found: dict[str, Gpu] = {}
    for directory, card, address in _devices(tree):
        if address in found:
            continue
        vendor = _VENDORS.get(tree.number(f"{directory}/vendor") or 0)
        if vendor is None:
            continue
        gpu = Gpu(vendor=vendor, pci_address=address, driver=tree.link_name(f"{directory}/driver"))
        match vendor:
            case "amd":
                gpu = _with_amd_memory(tree, directory, gpu)
            case "intel":
                gpu = _with_intel_memory(tree, directory, card, gpu)
        found[address] = gpu
    return tuple(found[address] for address in sorted(found))


def _devices(tree: FileTree) -> Iterator[tuple[str, str | None, str]]:
    """(device directory, card directory, address): cards first, as only they lead to Intel's memory files."""
    for name in tree.names("/sys/class/drm"):
        if _CARD.fullmatch(name):
            card = f"/sys/class/drm/{name}"
            yield f"{card}/device", card, tree.link_name(f"{card}/device") or name
    for address in tree.names("/sys/bus/pci/devices"):
        directory = f"/sys/bus/pci/devices/{address}"
        if ((tree.number(f"{directory}/class") or 0) >> 16) in _GPU_CLASSES:
            yield directory, None, address


def _with_amd_memory(tree: FileTree, directory: str, gpu: Gpu) -> Gpu:
    gpu = replace(gpu, name=tree.text(f"{directory}/product_name") or None)
    vram, vram_used = tree.number(f"{directory}/mem_info_vram_total"), tree.number(f"{directory}/mem_info_vram_used")
    if vram is None:
        tree.report(f"the memory of the AMD GPU at {gpu.pci_address} is unknown: is the amdgpu driver loaded?")
        return gpu
    # A processor with graphics carves a small piece out of RAM and borrows the rest through its translation table.
    # No file says so outright, but its driver shows neither of the two counters a card of its own has.
    gtt = tree.number(f"{directory}/mem_info_gtt_total")
    on_a_card = tree.exists(f"{directory}/mem_busy_percent") or tree.exists(f"{directory}/pcie_bw")
    if gtt is not None and gtt > vram and not on_a_card:
        gtt_used = tree.number(f"{directory}/mem_info_gtt_used")
        free = None if vram_used is None or gtt_used is None else vram + gtt - vram_used - gtt_used
        return replace(gpu, memory_total_bytes=vram + gtt, memory_free_bytes=free, unified=True)
    if vram_used is None:
        tree.report(f"the free memory of the AMD GPU at {gpu.pci_address} is unknown")
    return replace(gpu, memory_total_bytes=vram, memory_free_bytes=None if vram_used is None else vram - vram_used)


def _with_intel_memory(tree: FileTree, directory: str, card: str | None, gpu: Gpu) -> Gpu:
    """Kernels differ in whether and where they tell: i915 beside the card, xe below the device's first tile."""
    totals = [f"{card}/lmem_total_bytes"] if card else []
    totals += [f"{directory}/lmem_total_bytes", f"{directory}/tile0/physical_vram_size_bytes"]
    frees = [path.replace("_total_", "_avail_") for path in totals if "_total_" in path]
    total = next((size for size in map(tree.number, totals) if size), None)
    free = next((size for size in map(tree.number, frees) if size is not None), None)
    if total is None:
        tree.report(f"the memory of the Intel GPU at {gpu.pci_address} is unknown: its driver does not report it")
    elif free is None:
        tree.report(f"the free memory of the Intel GPU at {gpu.pci_address} is unknown: its driver does not report it")
    unified = total is None and gpu.pci_address == _INTEL_BUILT_IN
    return replace(gpu, memory_total_bytes=total, memory_free_bytes=free, unified=unified)
