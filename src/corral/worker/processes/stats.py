"""Memory and CPU time of a process tree."""

import contextlib
from collections.abc import Iterable, Mapping

import psutil

from corral.core.processes.process import TreeUsage
from corral.worker.hardware.nvml import Nvml, NvmlError


def read_tree_usage(members: Iterable[psutil.Process], gpu_memory: Mapping[int, int] | None) -> TreeUsage:
    """Counts shared pages once, by the largest share; an exact count would need to read every page."""
    private = shared = count = gpu = 0
    cpu_s = 0.0
    for process in members:
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            memory, times = process.memory_info(), process.cpu_times()
            process_shared = getattr(memory, "shared", 0)
            private += memory.rss - process_shared
            shared = max(shared, process_shared)
            cpu_s += times.user + times.system
            count += 1
            gpu += (gpu_memory or {}).get(process.pid, 0)
    known_gpu = None if gpu_memory is None else gpu
    return TreeUsage(processes=count, memory_bytes=private + shared, cpu_s=cpu_s, gpu_memory_bytes=known_gpu)


def read_gpu_memory_by_pid(nvml: Nvml) -> Mapping[int, int] | None:
    """None without a driver, or if it does not report usage by process (in some virtual machines and containers)."""
    used: dict[int, int] = {}
    try:
        nvml.open()
        for index in range(nvml.device_count()):
            for process in nvml.processes(index):
                if process.memory_bytes is None:
                    return None
                used[process.pid] = used.get(process.pid, 0) + process.memory_bytes
    except NvmlError:
        return None  # read_hardware reports the reason
    return used
