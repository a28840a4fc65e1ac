"""The paths that a backend may access: system programs and libraries, its own version, its model files, its home and
the GPU devices. This is an allowlist, so secrets need not be listed."""

import glob
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from corral.core.processes.process import ProcessSpec
from corral.worker.processes import confine as rights

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *("/run/opengl-driver", "/proc", "/sys"),
)
# In /etc only files that libraries read: configuration of other programs may contain secrets.
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "hosts", "hostname", "host.conf", "gai.conf"),
    *("resolv.conf", "nsswitch.conf", "services", "protocols", "networks", "localtime", "timezone", "os-release"),
    *("locale.conf", "locale.alias", "machine-id", "mime.types", "fonts", "alternatives", "terminfo", "inputrc"),
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/certs", "pki/tls/cert.pem", "pki/ca-trust"),
    *("ca-certificates", "crypto-policies", "OpenCL", "vulkan", "glvnd", "egl", "drirc", "nvidia", "cuda", "rocm"),
    *("libibverbs.d", "rdma", "openmpi", "mpich", "libnl", "bash.bashrc", "profile", "profile.d"),
)
_DNS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/nscd")
_GPU_DEVICES = (
    *("nvidia*", "dri", "kfd", "dxg", "accel", "infiniband", "davinci*", "hisi_hdc", "mali*", "apex_*", "mqueue"),
    *("hugepages", "nvhost*", "nvmap", "nvgpu*", "nvsci*", "devmm_svm", "hl*", "tenstorrent", "dma_heap", "rknpu*"),
)
_CUDA_DEVICES = ("nvidia*", "nvmap", "dxg")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
# Variables with paths that libraries read; these paths may be read.
_PATH_VARIABLES = (
    *("LD_LIBRARY_PATH", "CUDA_HOME", "ROCM_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "VK_DRIVER_FILES"),
    *("VK_ICD_FILENAMES", "XDG_DATA_DIRS"),
)
_MOST_LINKS = 4096
"""Limit for the directories of one model. A Hugging Face snapshot contains one link per file."""
_MOST_ENTRIES = 100_000
_GGUF_PART = re.compile(r"(.+-)[0-9]{5}(-of-[0-9]{5}\.gguf)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Paths and variables that are the same for all backends of a worker."""

    private: tuple[str, ...] = ()
    """Corral's own directories. Grants for system directories never include them."""
    weights: tuple[str, ...] = ()
    """Directories inside the private ones with model files, each of which may be granted."""
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    """Additional paths that the administrator allows."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    passed_on: tuple[str, ...] = ()
    """Variables that the administrator passes to backends, for example HF_HOME; paths in them may be read."""


@dataclass(frozen=True, slots=True)
class Grant:
    path: str
    rights: int
    needed: bool = False
    """Whether the backend cannot work without it: true for its own files, false for system files."""


def plan_grants(
    spec: ProcessSpec, reach: Reach, *, program: str, own: Iterable[str], most_links: int = _MOST_LINKS
) -> list[Grant]:
    """Blocking: reads the file system. `own`: the private directories of the process."""
    named = [path for name in spec.reads for path in _with_parts(name)]
    return [
        *(Grant(path, rights.OWN, needed=True) for path in own),
        *_grants_of_version(spec, program, reach),
        *(Grant(path, rights.DATA, needed=True) for one in named for path in _readable(one, reach)),
        *(Grant(path, rights.DATA, needed=True) for one in named for path in _linked_files(one, reach, most_links)),
        *(Grant(path, rights.EXCHANGE, needed=True) for path in spec.exchange if os.path.isdir(path)),
        *grants_of_machine(reach),
    ]


def grants_of_machine(reach: Reach) -> list[Grant]:
    named = [
        path for name in _PATH_VARIABLES for path in reach.environment.get(name, "").split(":") if path.startswith("/")
    ]
    named += [path for path in _passed_on(reach) if not _contains_any(os.path.realpath(path), reach.private)]
    system = (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *_DNS, *_interpreters(), *named, *reach.readable)
    devices = [*(f"/dev/{name}" for name in _DEVICES), *gpu_devices()]
    return [
        *(Grant(path, rights.READ) for one in system for path in _without(one, reach.private)),
        *(Grant(path, rights.DEVICE) for path in devices if os.path.exists(path)),
        *(Grant(path, rights.OWN) for one in ("/dev/shm", *reach.writable) for path in _without(one, reach.private)),
    ]


def grant_of_names(uid: int, *, own: bool, devices: str = "/dev") -> list[Grant]:
    """NVIDIA's library sets the names of its threads (/proc/PID/task/TID/comm) and fails if it cannot. Files in /proc
    belong to the user of each process. `own`: no other process has this user, so no other process is writable.
    Root also owns kernel settings in /proc, so a root process may write only its own threads, and its children none."""
    if uid == 0:
        return [Grant("/proc/self/task", rights.NAMES)]
    return [Grant("/proc", rights.NAMES)] if own or _find_devices(devices, _CUDA_DEVICES) else []


def gpu_devices(devices: str = "/dev") -> list[str]:
    return _find_devices(devices, _GPU_DEVICES)


def _find_devices(directory: str, patterns: Iterable[str]) -> list[str]:
    return [path for pattern in patterns for path in glob.glob(f"{glob.escape(directory)}/{pattern}")]


def _passed_on(reach: Reach) -> list[str]:
    values = [reach.environment.get(name, "") for name in reach.passed_on]
    return [path for value in values for path in value.split(":") if path.startswith("/")]


def _interpreters() -> tuple[str, ...]:
    """The worker's Python: virtual environments of backends refer to it."""
    return tuple({os.path.realpath(path): None for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})


def _grants_of_version(spec: ProcessSpec, program: str, reach: Reach) -> Iterator[Grant]:
    if spec.directory is not None:
        yield Grant(spec.directory, rights.READ, needed=True)
        yield from (Grant(path, rights.READ) for path in _older_interpreter(spec.directory, reach))
    yield Grant(program, rights.READ, needed=True)  # only the file, not its directory


def _older_interpreter(directory: str, reach: Reach) -> Iterator[str]:
    """The Python of an earlier worker, if the virtual environment was created with it."""
    python = os.path.realpath(os.path.join(directory, "bin", "python"))
    prefix = os.path.dirname(os.path.dirname(python))
    if not python.startswith(directory + "/") and glob.glob(os.path.join(glob.escape(prefix), "lib", "python3*")):
        yield from _without(prefix, reach.private)


def _with_parts(path: str) -> list[str]:
    """All parts of split weights, which are named by their first part."""
    part = _GGUF_PART.match(path)
    return sorted(glob.glob(f"{glob.escape(part[1])}?????{glob.escape(part[2])}")) if part else [path]


def _readable(path: str, reach: Reach) -> list[str]:
    """The path as given, which may contain links, if its target may be read."""
    real = os.path.realpath(path)
    if any(_is_within(real, place) and real != place for place in reach.weights):
        return [path]
    return [path] if not _contains_any(real, reach.private) and list(_without(real, reach.private)) else []


def _linked_files(directory: str, reach: Reach, most_links: int) -> Iterator[str]:
    """Targets of links in a directory: a Hugging Face snapshot is a directory of links. Links in directories that
    backends may write to are ignored, because a backend could link to any file."""
    real = os.path.realpath(directory)
    writable = (os.path.realpath(one) for one in reach.writable)
    if not _readable(directory, reach) or not os.path.isdir(real) or any(_is_within(real, one) for one in writable):
        return
    entries = (os.path.join(place, name) for place, _, names in os.walk(real) for name in names)
    links = (path for path in itertools.islice(entries, _MOST_ENTRIES) if os.path.islink(path))
    for link in itertools.islice(links, most_links):
        if os.path.isfile(link) and not _is_within(os.path.realpath(link), real):
            yield from _readable(link, reach)


def _contains_any(path: str, others: Iterable[str]) -> bool:
    return any(_is_within(other, path) for other in others)


def _without(path: str, private: tuple[str, ...]) -> Iterator[str]:
    """Landlock rules only allow: a directory that contains a private one is granted entry by entry, without it."""
    real = os.path.realpath(path)
    if not os.path.exists(real) or any(_is_within(real, one) for one in private):
        return
    if not any(_is_within(one, real) for one in private):
        yield real
        return
    for name in os.listdir(real):
        if not os.path.islink(entry := os.path.join(real, name)):
            yield from _without(entry, private)


def _is_within(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")
