"""Reads CPU, memory and disk from /proc and the control groups of this process."""

import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil

from corral.core.nodes.hardware import Cpu, DiskInfo, Memory
from corral.worker.hardware.files import FileTree

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# fmt: off
_REPORTED_FLAGS = frozenset((
    "sse4_2", "avx", "f16c", "fma", "bmi2", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "neon", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "svebf16", "sme",
))
# fmt: on
# Version 1 control groups express "no limit" as a value at or above this.
_NO_LIMIT_BYTES = 1 << 60


def read_platform() -> str:
    machine = platform.machine().lower()
    return f"{platform.system().lower()}/{_ARCHITECTURES.get(machine, machine or 'unknown')}"


def read_cpu(tree: FileTree) -> Cpu:
    text = tree.text("/proc/cpuinfo")
    if text is None:
        tree.report("the processor is unknown: /proc/cpuinfo is missing")
        return Cpu(count=os.cpu_count() if tree.root == Path("/") else None)
    fields: dict[str, str] = {}
    count = 0
    packages, cores = [""], set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        name = name.strip().lower()
        count += name == "processor"
        if name == "physical id":
            packages.append(value.strip())
        elif name == "core id":
            cores.add((packages[-1], value.strip()))
        fields.setdefault(name, value.strip())
    # ARM kernels name the board rather than the cores.
    model = fields.get("model name") or tree.text("/proc/device-tree/model") or fields.get("hardware")
    if model is None:
        tree.report("the processor's model is unknown: /proc/cpuinfo does not name it")
    flags = fields.get("flags") or fields.get("features")
    if flags is None:
        tree.report("the processor's features are unknown: /proc/cpuinfo does not list them")
    if not count:
        tree.report("the number of processors is unknown: /proc/cpuinfo lists none")
    return Cpu(
        model=model,
        count=count or None,
        cores=_usable_cores(tree, len(cores) or count),
        flags=None if flags is None else _known_flags(flags),
    )


def _usable_cores(tree: FileTree, cores: int) -> int | None:
    """Physical cores, or fewer where this process may use only some processors or a share of their time: threads
    beyond that slow each other down."""
    limits = [cores, *_processor_shares(tree)]
    if tree.root == Path("/") and hasattr(os, "sched_getaffinity"):
        limits.append(len(os.sched_getaffinity(0)))
    return max(1, min(limits)) if cores else None


def _processor_shares(tree: FileTree) -> Iterator[int]:
    """Processors' worth of time that this process's control group and its parents allow."""
    for line in (tree.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        top = "/sys/fs/cgroup" if controllers == "" else "/sys/fs/cgroup/cpu"
        if controllers and "cpu" not in controllers.split(","):
            continue
        for directory in _up_from(tree, top, group):
            if controllers:
                quota = tree.text(f"{directory}/cpu.cfs_quota_us")
                period = tree.text(f"{directory}/cpu.cfs_period_us")
            else:
                quota, period = (*(tree.text(f"{directory}/cpu.max") or "").split(), "", "")[:2]
            if quota and period and quota.isdigit() and period.isdigit() and int(period):
                yield max(1, round(int(quota) / int(period)))


def _known_flags(flags: str) -> tuple[str, ...]:
    present = set(flags.split())
    if "asimd" in present:  # the name of Neon on 64-bit ARM kernels
        present.add("neon")
    return tuple(sorted(present & _REPORTED_FLAGS))


def read_memory(tree: FileTree) -> Memory:
    """The machine's memory, or the limit of a control group if that is lower."""
    meminfo = _sizes(tree.text("/proc/meminfo") or "")
    total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
    if total is None or available is None:
        tree.report("the machine's memory is unknown: /proc/meminfo does not contain it")
    for limit, used in _memory_limits(tree):
        total = limit if total is None else min(total, limit)
        left = max(0, limit - used)
        available = left if available is None else min(available, left)
    return Memory(total_bytes=total, available_bytes=available)


def read_memory_without_proc(tree: FileTree) -> Memory:
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError) as problem:
        tree.report(f"the machine's memory is unknown: {problem}")
        return Memory()
    return Memory(total_bytes=memory.total, available_bytes=memory.available)


def _sizes(meminfo: str) -> dict[str, int]:
    sizes = {}
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        parts = value.split()
        if parts and parts[0].isdigit():
            sizes[name] = int(parts[0]) << 10
    return sizes


def _memory_limits(tree: FileTree) -> Iterator[tuple[int, int]]:
    """(limit, used) of this process's control group and its parents. Reclaimable cache does not count as used."""
    for line in (tree.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            top, limit_file, used_file, cache = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top, cache = "/sys/fs/cgroup/memory", "total_inactive_file"
            limit_file, used_file = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        for directory in _up_from(tree, top, group):
            limit, used = tree.text(f"{directory}/{limit_file}"), tree.text(f"{directory}/{used_file}")
            if limit is None or used is None or not (limit.isdigit() and used.isdigit()):
                continue  # the top group has no limit file; "max" is no limit
            if int(limit) < _NO_LIMIT_BYTES:
                yield int(limit), int(used) - _stat(tree.text(f"{directory}/memory.stat") or "", cache)


def _up_from(tree: FileTree, top: str, group: str) -> Iterator[str]:
    """In a container the group's path is often the host's and not visible; then the mount's top is the group."""
    parts = [part for part in group.split("/") if part and part != ".."]
    if parts and not tree.exists(f"{top}/{'/'.join(parts)}"):
        parts = []
    for depth in range(len(parts), -1, -1):
        yield "/".join([top, *parts[:depth]])


def _stat(text: str, field: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == field and value.isdigit():
            return int(value)
    return 0


def read_disk(tree: FileTree, directory: Path) -> DiskInfo:
    """The file system of the directory, which need not exist yet."""
    existing = directory.absolute()
    while True:
        try:
            status, device = os.statvfs(existing), existing.stat().st_dev
            break
        except OSError as problem:
            if problem.errno in (errno.ENOENT, errno.ENOTDIR) and existing != existing.parent:
                existing = existing.parent  # not created yet
                continue
            tree.report(f"the disk of {directory} is unknown: {problem.strerror or problem}")
            return DiskInfo(path=str(directory))
    return DiskInfo(
        path=str(directory),
        filesystem=_filesystem(tree, f"{os.major(device)}:{os.minor(device)}"),
        total_bytes=status.f_frsize * status.f_blocks,
        available_bytes=status.f_frsize * status.f_bavail,
    )


def _filesystem(tree: FileTree, device: str) -> str | None:
    for line in (tree.text("/proc/self/mountinfo") or "").splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 2 and fields[2] == device and source:
            return source.split()[0]
    tree.report(f"the kind of file system on device {device} is unknown: /proc/self/mountinfo does not list it")
    return None
