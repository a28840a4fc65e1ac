"""The hardware of a node. A value that could not be read is None, never zero, and has an entry in `problems`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

GpuVendor = Literal["nvidia", "amd", "intel", "apple", "vulkan", "unknown"]

# For GPUs of two vendors with equal memory: the vendor with more builds in the galleries first.
VENDOR_ORDER: tuple[GpuVendor, ...] = ("nvidia", "amd", "intel", "apple", "vulkan", "unknown")

# An installed tool shows the vendor where driver and bus cannot be read, for example in a container.
VENDOR_OF_TOOL: tuple[tuple[str, GpuVendor], ...] = (
    ("nvidia-smi", "nvidia"),
    ("rocm-smi", "amd"),
    ("xpu-smi", "intel"),
    ("intel_gpu_top", "intel"),
    ("vulkaninfo", "vulkan"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    vendor: GpuVendor
    name: str | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    unified: bool = False  # it shares the memory of the CPU
    compute_capability: str | None = None
    driver: str | None = None
    pci_address: str | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    model: str | None = None
    count: int | None = None
    cores: int | None = None  # physical ones that this process may use
    flags: tuple[str, ...] | None = None  # only those that inference builds need


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    total_bytes: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskInfo:
    path: str
    filesystem: str | None = None
    total_bytes: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    platform: str  # "linux/amd64", as in OCI images
    gpus: tuple[Gpu, ...] = ()
    gpu_vendor: GpuVendor | None = None
    cpu: Cpu
    memory: Memory
    disk: DiskInfo
    problems: tuple[str, ...] = ()

    @property
    def vram_total_bytes(self) -> int | None:
        return sum_known(gpu.memory_total_bytes for gpu in self.main_gpus)

    @property
    def vram_free_bytes(self) -> int | None:
        return sum_known(gpu.memory_free_bytes for gpu in self.main_gpus)

    @property
    def compute_capability(self) -> str | None:
        """The lowest of the main GPUs: a build for it runs on all of them."""
        known = [gpu.compute_capability for gpu in self.main_gpus if gpu.compute_capability is not None]
        return min(known, key=_version_order, default=None)

    @property
    def main_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of one vendor, which a build can use together. The integrated GPU of a CPU is not among them."""
        return tuple(gpu for gpu in self.gpus if gpu.vendor == self.gpu_vendor)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareUsage:
    """The values that change from one heartbeat to the next."""

    ram_available_bytes: int | None = None
    vram_total_bytes: int | None = None
    vram_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    disk_available_bytes: int | None = None
    problems: tuple[str, ...] = ()


def pick_gpu_vendor(gpus: Iterable[Gpu], tools: Iterable[str] = ()) -> GpuVendor | None:
    """The vendor of the GPUs with the most memory; without a known GPU, the vendor whose tool is installed."""
    sizes: dict[GpuVendor, int] = {}
    for gpu in gpus:
        sizes[gpu.vendor] = sizes.get(gpu.vendor, 0) + (gpu.memory_total_bytes or 0)
    if sizes:
        return min(sizes, key=lambda vendor: (-sizes[vendor], VENDOR_ORDER.index(vendor)))
    installed = set(tools)
    return next((vendor for tool, vendor in VENDOR_OF_TOOL if tool in installed), None)


def sum_known(values: Iterable[int | None]) -> int | None:
    """None when no value is known. Unknown values are left out, so the sum may be a lower bound."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def vram_label(vram_bytes: int) -> str:
    """The size class for selectors: `24GB`, and `80GB+` for larger ones."""
    size_gib = vram_bytes / (1 << 30)
    for step_gib, label in ((80, "80GB+"), (48, "48GB"), (24, "24GB"), (16, "16GB"), (8, "8GB")):
        # Cards report slightly less than their nominal size.
        if size_gib >= step_gib * 0.98:
            return label
    return f"{int(size_gib)}GB"


def _version_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
