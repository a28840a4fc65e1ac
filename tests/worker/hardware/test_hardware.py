"""Detection on fabricated machines: small /sys and /proc trees and a scripted NVIDIA library."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from corral.core.nodes.capability import pick_capability
from corral.core.nodes.hardware import Cpu, Gpu, Hardware, Memory
from corral.worker.hardware import NvidiaMl, Nvml, NvmlError, Roots, read_capability_facts, read_hardware, read_usage
from corral.worker.hardware.files import FileTree
from corral.worker.hardware.machine import read_memory
from corral.worker.hardware.nvml import GpuMemory
from corral.worker.membership.description import Machine as WorkerMachine
from corral.worker.processes.isolation import Isolation
from harness.scripted_nvml import ScriptedNvml

GIB = 1 << 30
MEMINFO_64_GIB = "MemTotal:       67108864 kB\nMemFree:         1000000 kB\nMemAvailable:   50331648 kB\n"
CPUINFO_X86 = (
    "processor\t: 0\nmodel name\t: AMD Ryzen 9 5950X 16-Core Processor\nflags\t\t: fpu sse4_2 avx avx2 fma\n\n"
    "processor\t: 1\nmodel name\t: AMD Ryzen 9 5950X 16-Core Processor\nflags\t\t: fpu sse4_2 avx avx2 fma\n"
)
CPUINFO_ARM = "processor\t: 0\nFeatures\t: fp asimd aes asimddp\nCPU implementer\t: 0x41\n"


NO_DRIVER = NvmlError("absent", "NVML Shared Library Not Found")
Machine = Callable[..., Roots]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    def make(files: dict[str, str], *, nvml: Nvml | None = None, platform: str = "linux/amd64") -> Roots:
        for path, content in {"/proc/meminfo": MEMINFO_64_GIB, "/proc/cpuinfo": CPUINFO_X86, **files}.items():
            target = tmp_path / "root" / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith("-> "):
                target.symlink_to(content.removeprefix("-> "))
            else:
                target.write_text(content)
        return Roots(
            disk=tmp_path,
            root=tmp_path / "root",
            platform=platform,
            tool_path=str(tmp_path / "bin"),
            nvml=nvml or ScriptedNvml(open_problem=NO_DRIVER),
        )

    return make


def pci(address: str, files: dict[str, str], *, card: int | None = None) -> dict[str, str]:
    """A PCI device as the kernel lays it out: the real directory and the links that lead to it."""
    place = f"/sys/devices/pci0000:00/{address}"
    tree = {f"{place}/{name}": content for name, content in files.items()}
    tree[f"/sys/bus/pci/devices/{address}"] = f"-> ../../../devices/pci0000:00/{address}"
    if card is not None:
        tree[f"/sys/class/drm/card{card}/device"] = f"-> ../../../devices/pci0000:00/{address}"
    return tree


RTX_3090 = {
    "name": "NVIDIA GeForce RTX 3090",
    "memory": GpuMemory(24 * GIB, 23 * GIB),
    "compute_capability": "8.6",
    "pci_address": "00000000:01:00.0",
    "uuid": "GPU-1",
}


def without_disk_kind(problems: tuple[str, ...]) -> list[str]:
    """The fabricated trees have no mount table, which every test would otherwise repeat."""
    return [problem for problem in problems if "kind of file system" not in problem]


def token(roots: Roots, hardware: Hardware, environment: dict[str, str] | None = None) -> str:
    return pick_capability(read_capability_facts(roots, hardware, environment or {})).token


def test_a_machine_with_a_3090_and_an_idle_graphics_unit(machine: Machine) -> None:
    files = {
        **pci("0000:01:00.0", {"vendor": "0x10de\n", "class": "0x030000\n"}, card=1),
        **pci("0000:00:02.0", {"vendor": "0x8086\n", "class": "0x030000\n"}, card=0),
        "/usr/local/cuda-12/version.json": "{}",
    }
    roots = machine(files, nvml=ScriptedNvml(devices=[RTX_3090]))
    hardware = read_hardware(roots)
    assert hardware.gpus == (
        Gpu(
            vendor="nvidia",
            name="NVIDIA GeForce RTX 3090",
            memory_total_bytes=24 * GIB,
            memory_free_bytes=23 * GIB,
            compute_capability="8.6",
            driver="575.57.08",
            pci_address="0000:01:00.0",
            uuid="GPU-1",
        ),
        Gpu(vendor="intel", pci_address="0000:00:02.0", unified=True),
    )
    assert hardware.gpu_vendor == "nvidia"
    assert hardware.vram_total_bytes == 24 * GIB
    assert hardware.compute_capability == "8.6"
    assert hardware.cpu == Cpu(
        model="AMD Ryzen 9 5950X 16-Core Processor", count=2, cores=2, flags=("avx", "avx2", "fma", "sse4_2")
    )
    assert hardware.memory == Memory(total_bytes=64 * GIB, available_bytes=48 * GIB)
    assert token(roots, hardware) == "nvidia-cuda-12"
    assert without_disk_kind(hardware.problems) == [
        "the memory of the Intel GPU at 0000:00:02.0 is unknown: its driver does not report it"
    ]


def test_two_mi300_are_added_up(machine: Machine) -> None:
    def mi300(used: int) -> dict[str, str]:
        return {
            "vendor": "0x1002\n",
            "class": "0x120000\n",
            "product_name": "AMD Instinct MI300X OAM\n",
            "mem_info_vram_total": f"{192 * GIB}\n",
            "mem_info_vram_used": f"{used}\n",
            "mem_info_gtt_total": f"{512 * GIB}\n",
            "pcie_bw": "1 2 3\n",
        }

    roots = machine({**pci("0000:05:00.0", mi300(GIB), card=0), **pci("0000:26:00.0", mi300(2 * GIB), card=1)})
    hardware = read_hardware(roots)
    assert [gpu.memory_free_bytes for gpu in hardware.gpus] == [191 * GIB, 190 * GIB]
    assert hardware.gpus[0].name == "AMD Instinct MI300X OAM"
    assert not hardware.gpus[0].unified
    assert hardware.vram_total_bytes == 384 * GIB
    assert hardware.vram_free_bytes == 381 * GIB
    assert token(roots, hardware) == "amd"
    assert without_disk_kind(hardware.problems) == []


def test_a_small_amd_card_in_a_machine_with_much_memory_is_not_taken_for_a_shared_one(machine: Machine) -> None:
    card = {
        "vendor": "0x1002",
        "class": "0x030000",
        "mem_info_vram_total": str(4 * GIB),
        "mem_info_vram_used": "0",
        "mem_info_gtt_total": str(32 * GIB),
        "mem_busy_percent": "0",
    }
    hardware = read_hardware(machine(pci("0000:03:00.0", card, card=0)))
    assert hardware.vram_total_bytes == 4 * GIB


def test_an_amd_processor_with_graphics_shares_the_machines_memory(machine: Machine) -> None:
    apu = {
        "vendor": "0x1002",
        "class": "0x030000",
        "mem_info_vram_total": str(GIB // 2),
        "mem_info_vram_used": str(GIB // 4),
        "mem_info_gtt_total": str(30 * GIB),
        "mem_info_gtt_used": str(GIB),
    }
    roots = machine(pci("0000:c4:00.0", apu, card=0))
    hardware = read_hardware(roots)
    assert hardware.gpus[0].unified
    assert hardware.gpus[0].memory_total_bytes == 30 * GIB + GIB // 2
    assert hardware.gpus[0].memory_free_bytes == 29 * GIB + GIB // 4
    assert token(roots, hardware) == "amd"


def test_an_intel_arc_whose_driver_tells_its_memory(machine: Machine) -> None:
    files = {
        **pci("0000:03:00.0", {"vendor": "0x8086", "class": "0x030000"}, card=0),
        "/sys/class/drm/card0/lmem_total_bytes": str(16 * GIB),
        "/sys/class/drm/card0/lmem_avail_bytes": str(15 * GIB),
        "/sys/class/drm/card0-DP-1/status": "connected",
        "/sys/class/drm/renderD128/dev": "226:128",
    }
    roots = machine(files)
    hardware = read_hardware(roots)
    assert hardware.gpus == (
        Gpu(vendor="intel", memory_total_bytes=16 * GIB, memory_free_bytes=15 * GIB, pci_address="0000:03:00.0"),
    )
    assert token(roots, hardware) == "intel"


def test_an_intel_arc_whose_driver_does_not_tell_is_unknown_and_not_zero(machine: Machine) -> None:
    roots = machine(pci("0000:03:00.0", {"vendor": "0x8086", "class": "0x030000"}, card=0))
    hardware = read_hardware(roots)
    assert hardware.vram_total_bytes is None
    assert not hardware.gpus[0].unified
    assert any("0000:03:00.0" in problem for problem in hardware.problems)
    assert token(roots, hardware) == "default"


@pytest.mark.parametrize("driver", ["absent", "names-only"])
def test_a_jetson_uses_the_machines_memory_with_and_without_the_library(machine: Machine, driver: str) -> None:
    nvml = None if driver == "absent" else ScriptedNvml(devices=[{"name": "Orin (nvgpu)", "pci_address": "0:0:0"}])
    files = {
        "/etc/nv_tegra_release": "# R36 (release)",
        "/proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
        "/proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0",
        "/proc/cpuinfo": CPUINFO_ARM,
        "/usr/local/cuda-12/version.json": "{}",
    }
    roots = machine(files, nvml=nvml, platform="linux/arm64")
    hardware = read_hardware(roots)
    (gpu,) = hardware.gpus
    assert gpu.unified
    assert gpu.memory_total_bytes == 64 * GIB
    assert gpu.memory_free_bytes == 48 * GIB
    assert gpu.compute_capability == "8.7"
    assert hardware.cpu == Cpu(
        model="NVIDIA Jetson AGX Orin Developer Kit", count=1, cores=1, flags=("asimddp", "neon")
    )
    assert token(roots, hardware) == "nvidia-l4t-cuda-12"


def test_a_gb10_uses_the_machines_memory(machine: Machine) -> None:
    gb10 = {"name": "NVIDIA GB10", "compute_capability": "12.1", "pci_address": "0000000F:01:00.0", "uuid": "GPU-2"}
    files = {
        **pci("000f:01:00.0", {"vendor": "0x10de", "class": "0x030000"}),
        "/proc/cpuinfo": CPUINFO_ARM,
        "/usr/local/cuda-13/version.json": "{}",
    }
    roots = machine(files, nvml=ScriptedNvml(devices=[gb10]), platform="linux/arm64")
    hardware = read_hardware(roots)
    (gpu,) = hardware.gpus
    assert gpu.unified
    assert gpu.memory_total_bytes == 64 * GIB
    assert gpu.pci_address == "000f:01:00.0"
    assert token(roots, hardware) == "nvidia-l4t-cuda-13"


def test_a_machine_without_gpu_has_no_problem_to_report(machine: Machine) -> None:
    display = pci("0000:02:00.0", {"vendor": "0x1a03", "class": "0x030000"}, card=0)  # a server's management board
    roots = machine(display)
    hardware = read_hardware(roots)
    assert hardware.gpus == ()
    assert hardware.gpu_vendor is None
    assert without_disk_kind(hardware.problems) == []
    assert token(roots, hardware) == "default"
    assert token(roots, hardware, {"LOCALAI_FORCE_META_BACKEND_CAPABILITY": "vulkan"}) == "vulkan"


async def test_who_registers_again_tells_what_is_free_now(machine: Machine) -> None:
    roots = machine({})
    hardware = read_hardware(roots)
    capability = pick_capability(read_capability_facts(roots, hardware, {}))
    worker = WorkerMachine(roots, hardware, capability, Isolation())
    machine({"/proc/meminfo": MEMINFO_64_GIB.replace("50331648", "1048576")})
    again = await worker.read_again()
    assert (hardware.memory.available_bytes, again.hardware.memory.available_bytes) == (48 * GIB, GIB)
    assert (again.capability, again.hardware.cpu) == (worker.capability, hardware.cpu)


def test_the_capability_file_is_read_where_a_setting_says(machine: Machine) -> None:
    roots = machine({"/run/localai/capability": "intel\n", "/opt/elsewhere": "amd\n"})
    hardware = read_hardware(roots)
    assert token(roots, hardware) == "intel"
    assert token(roots, hardware, {"LOCALAI_FORCE_META_BACKEND_CAPABILITY_RUN_FILE": "/opt/elsewhere"}) == "amd"


def test_an_nvidia_gpu_without_a_driver_is_listed_with_a_reason(machine: Machine) -> None:
    roots = machine(pci("0000:01:00.0", {"vendor": "0x10de", "class": "0x030200"}))
    hardware = read_hardware(roots)
    assert hardware.gpus == (Gpu(vendor="nvidia", pci_address="0000:01:00.0"),)
    assert hardware.vram_total_bytes is None
    assert any("Check that the driver is installed" in problem for problem in hardware.problems)


def test_a_failing_library_is_told_even_without_a_device_on_the_bus(machine: Machine) -> None:
    broken = ScriptedNvml(open_problem=NvmlError("failed", "Driver/library version mismatch"))
    hardware = read_hardware(machine({}, nvml=broken))
    assert any("version mismatch" in problem for problem in hardware.problems)
    assert broken.closed == 1  # so that the next look starts the library afresh


def test_one_lost_gpu_does_not_hide_the_other(machine: Machine) -> None:
    lost = {**RTX_3090, "memory": NvmlError("failed", "GPU is lost"), "pci_address": "00000000:02:00.0"}
    roots = machine({}, nvml=ScriptedNvml(devices=[lost, RTX_3090]))
    hardware = read_hardware(roots)
    assert [gpu.memory_total_bytes for gpu in hardware.gpus] == [None, 24 * GIB]
    assert not hardware.gpus[0].unified
    assert hardware.vram_total_bytes == 24 * GIB
    assert "the memory of NVIDIA GPU 0 is unknown: GPU is lost" in hardware.problems


def test_broken_files_are_unknown_with_a_reason(machine: Machine) -> None:
    amd = {"vendor": "0x1002", "class": "0x030000", "mem_info_vram_total": "lots\n"}
    files = {**pci("0000:03:00.0", amd, card=0), "/proc/meminfo": "garbage", "/proc/cpuinfo": "more: garbage\n"}
    hardware = read_hardware(machine(files))
    assert hardware.vram_total_bytes is None
    assert hardware.memory == Memory()
    assert hardware.cpu == Cpu()
    text = "\n".join(hardware.problems)
    assert "'lots' is not a number" in text
    assert "/proc/meminfo" in text
    assert "/proc/cpuinfo" in text


def test_a_machine_without_sys_and_proc_is_all_unknown(tmp_path: Path) -> None:
    nothing = ScriptedNvml(open_problem=NO_DRIVER)
    roots = Roots(disk=tmp_path, root=tmp_path / "nowhere", platform="linux/amd64", tool_path="", nvml=nothing)
    hardware = read_hardware(roots)
    assert (hardware.gpus, hardware.cpu, hardware.memory) == ((), Cpu(), Memory())
    assert len(hardware.problems) == 3
    assert hardware.disk.total_bytes


@contextmanager
def without_rights() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_permission_denied_is_unknown_with_a_reason(machine: Machine, tmp_path: Path) -> None:
    amd = {"vendor": "0x1002", "class": "0x030000", "mem_info_vram_total": str(GIB)}
    roots = machine(pci("0000:03:00.0", amd, card=0))
    (roots.root / "proc/meminfo").chmod(0)
    (roots.root / "sys/devices/pci0000:00/0000:03:00.0/mem_info_vram_total").chmod(0)
    for directory in (tmp_path, *tmp_path.parents):
        if directory == Path(tempfile.gettempdir()):
            break
        directory.chmod(0o755)
    with without_rights():
        hardware = read_hardware(roots)
    assert hardware.memory == Memory()
    assert hardware.gpus[0].memory_total_bytes is None
    assert any("meminfo: Permission denied" in problem for problem in hardware.problems)
    assert any("mem_info_vram_total: Permission denied" in problem for problem in hardware.problems)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {
                "/proc/self/cgroup": "0::/app/worker\n",
                "/sys/fs/cgroup/app/worker/memory.max": "max\n",
                "/sys/fs/cgroup/app/worker/memory.current": "5",
                "/sys/fs/cgroup/app/memory.max": str(8 * GIB),
                "/sys/fs/cgroup/app/memory.current": str(3 * GIB),
                "/sys/fs/cgroup/app/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            },
            Memory(total_bytes=8 * GIB, available_bytes=6 * GIB),
            id="version-2-limit-of-a-parent-with-cache-given-back",
        ),
        pytest.param(
            {
                "/proc/self/cgroup": "4:memory:/docker/abc\n0::/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
                "/sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
            },
            Memory(total_bytes=2 * GIB, available_bytes=GIB),
            id="version-1-in-a-container-whose-group-is-the-top",
        ),
        pytest.param(
            {
                "/proc/self/cgroup": "4:memory:/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
            },
            Memory(total_bytes=64 * GIB, available_bytes=48 * GIB),
            id="version-1-without-a-limit",
        ),
        pytest.param(
            {
                "/proc/self/cgroup": "0::/\n",
                "/sys/fs/cgroup/memory.max": str(256 * GIB),
                "/sys/fs/cgroup/memory.current": str(GIB),
            },
            Memory(total_bytes=64 * GIB, available_bytes=48 * GIB),
            id="a-limit-above-the-machine-is-none",
        ),
    ],
)
def test_control_groups_limit_memory(machine: Machine, files: dict[str, str], expected: Memory) -> None:
    tree = FileTree(machine(files).root)
    assert read_memory(tree) == expected
    assert tree.problems == []


def test_usage_follows_the_gpus_found_at_the_start(machine: Machine) -> None:
    nvml = ScriptedNvml(devices=[RTX_3090])
    roots = machine({}, nvml=nvml)
    hardware = read_hardware(roots)
    nvml.devices = [{**RTX_3090, "memory": GpuMemory(24 * GIB, 5 * GIB)}]
    usage = read_usage(roots, hardware)
    assert usage.vram_free_bytes == 5 * GIB
    assert usage.ram_available_bytes == 48 * GIB
    assert usage.disk_available_bytes is not None


def test_usage_of_a_gpu_that_stopped_answering_is_unknown(machine: Machine) -> None:
    nvml = ScriptedNvml(devices=[RTX_3090])
    roots = machine({}, nvml=nvml)
    hardware = read_hardware(roots)
    nvml.devices = [{**RTX_3090, "memory": NvmlError("failed", "GPU is lost")}]
    usage = read_usage(roots, hardware)
    assert usage.vram_free_bytes is None
    assert any("GPU is lost" in problem for problem in usage.problems)


def test_an_apple_chip_shares_its_memory(machine: Machine) -> None:
    roots = machine({}, platform="darwin/arm64")
    hardware = read_hardware(roots)
    (gpu,) = hardware.gpus
    assert (gpu.vendor, gpu.unified, gpu.memory_total_bytes) == ("apple", True, hardware.memory.total_bytes)
    assert token(roots, hardware) == "metal"


def test_a_models_directory_that_does_not_exist_yet_has_the_disk_of_its_parent(
    machine: Machine, tmp_path: Path
) -> None:
    roots = machine({})
    disk = read_hardware(replace(roots, disk=tmp_path / "not" / "made" / "yet")).disk
    assert disk.path == str(tmp_path / "not" / "made" / "yet")
    assert disk.total_bytes == os.statvfs(tmp_path).f_frsize * os.statvfs(tmp_path).f_blocks


def test_the_kind_of_file_system_comes_from_the_mount_table(machine: Machine, tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mounts = f"30 1 {os.major(device)}:{os.minor(device)} / / rw shared:1 - xfs /dev/sda1 rw\n"
    hardware = read_hardware(machine({"/proc/self/mountinfo": "29 1 0:5 / /dev rw - devtmpfs d rw\n" + mounts}))
    assert hardware.disk.filesystem == "xfs"
    assert hardware.problems == ()


def test_the_real_library_without_a_driver_is_absent_and_can_be_asked_again() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    library = NvidiaMl()
    for _ in range(2):
        with pytest.raises(NvmlError) as problem:
            library.open()
        assert problem.value.kind == "absent"
    with pytest.raises(NvmlError, match="not open"):
        library.device_count()
    library.close()


@pytest.mark.processes
def test_the_command_prints_json(tmp_path: Path) -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "corral.worker.hardware", str(tmp_path)], capture_output=True, check=True, timeout=30
    )
    report = json.loads(seen.stdout)
    assert report["hardware"]["disk"]["path"] == str(tmp_path)
    assert report["hardware"]["cpu"]["count"] >= 1
    assert report["capability"]["token"]


_HYPERTHREADS = "".join(
    f"processor\t: {number}\nphysical id\t: {number // 8}\ncore id\t: {number % 4}\nmodel name\t: A\nflags\t: avx\n\n"
    for number in range(16)
)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8, id="two-threads-of-a-core-count-once"),
        pytest.param(
            {
                "/proc/self/cgroup": "0::/app/worker\n",
                "/sys/fs/cgroup/app/worker/cpu.max": "max 100000\n",
                "/sys/fs/cgroup/app/cpu.max": "300000 100000\n",
            },
            3,
            id="a-share-of-a-parent-group",
        ),
        pytest.param(
            {"/proc/self/cgroup": "0::/app\n", "/sys/fs/cgroup/app/cpu.max": "max 100000\n"}, 8, id="no-limit"
        ),
        pytest.param(
            {"/proc/self/cgroup": "0::/app\n", "/sys/fs/cgroup/app/cpu.max": "10000 100000\n"},
            1,
            id="a-part-of-one-is-one",
        ),
        pytest.param(
            {
                "/proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2,
            id="version-one-of-control-groups",
        ),
    ],
)
def test_engines_use_the_cores_that_the_worker_may_use(machine: Machine, files: dict[str, str], expected: int) -> None:
    assert read_hardware(machine({"/proc/cpuinfo": _HYPERTHREADS, **files})).cpu.cores == expected
