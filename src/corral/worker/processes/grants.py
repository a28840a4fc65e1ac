"""What a backend may reach on this machine: the system's programs and libraries, its own version, its model's files,
its home, and the devices that compute. Nothing else, so nothing has to be listed that is secret."""

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from corral.core.processes import ProcessSpec
from corral.worker.processes import confine as rights

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *("/run/opengl-driver", "/proc", "/sys"),
)
# Of /etc only what libraries look for: configuration of other programs may hold secrets.
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
    "hugepages",
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
# Variables by which an administrator tells libraries where things are; what they name may be read.
_TELLING = (
    *("LD_LIBRARY_PATH", "CUDA_HOME", "ROCM_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "VK_DRIVER_FILES"),
    *("VK_ICD_FILENAMES", "XDG_DATA_DIRS"),
)
_GGUF_PART = re.compile(r"(.+-)[0-9]{5}(-of-[0-9]{5}\.gguf)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The same for every backend of a worker."""

    private: tuple[str, ...] = ()
    """Directories of Corral's, which nothing that is granted for the system's sake includes."""
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    """What the administrator lets them reach besides."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Grant:
    path: str
    rights: int
    needed: bool = False
    """It cannot work without: its own files, not the machine's."""


def plan_grants(spec: ProcessSpec, reach: Reach, *, program: str, own: Iterable[str]) -> list[Grant]:
    """Blocking: it looks at what is there. `own`: the directories that are the process's alone."""
    return [
        *(Grant(path, rights.OWN, needed=True) for path in own),
        *_grants_of_version(spec, program),
        *(Grant(path, rights.DATA, needed=True) for name in spec.reads for path in _with_parts(name)),
        *(Grant(path, rights.EXCHANGE, needed=True) for path in spec.exchange if os.path.isdir(path)),
        *grants_of_machine(reach),
    ]


def grants_of_machine(reach: Reach) -> list[Grant]:
    told = [path for name in _TELLING for path in reach.environment.get(name, "").split(":") if path.startswith("/")]
    system = (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *_DNS, *_interpreters(), *told, *reach.readable)
    devices = [*(f"/dev/{name}" for name in _DEVICES), *gpu_devices()]
    return [
        *(Grant(path, rights.READ) for one in system for path in _without(one, reach.private)),
        *(Grant(path, rights.DEVICE) for path in devices if os.path.exists(path)),
        *(Grant(path, rights.OWN) for one in ("/dev/shm", *reach.writable) for path in _without(one, reach.private)),
    ]


def gpu_devices() -> list[str]:
    return [path for pattern in _GPU_DEVICES for path in glob.glob(f"/dev/{pattern}")]


def _interpreters() -> tuple[str, ...]:
    """Environments of backends are made from the worker's own Python."""
    return tuple({os.path.realpath(path): None for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})


def _grants_of_version(spec: ProcessSpec, program: str) -> Iterator[Grant]:
    if spec.directory is not None:
        yield Grant(spec.directory, rights.READ, needed=True)
        yield from _older_interpreter(spec.directory)
    yield Grant(program, rights.READ, needed=True)  # the file alone: what is beside it is not ours to give


def _older_interpreter(directory: str) -> Iterator[Grant]:
    """An environment that was made with the Python of an earlier worker leads to that one."""
    python = os.path.realpath(os.path.join(directory, "bin", "python"))
    prefix = os.path.dirname(os.path.dirname(python))
    if not python.startswith(directory + "/") and glob.glob(os.path.join(glob.escape(prefix), "lib", "python3*")):
        yield Grant(prefix, rights.READ)


def _with_parts(path: str) -> list[str]:
    """Weights in several parts are named by their first."""
    part = _GGUF_PART.match(path)
    return sorted(glob.glob(f"{glob.escape(part[1])}?????{glob.escape(part[2])}")) if part else [path]


def _without(path: str, private: tuple[str, ...]) -> Iterator[str]:
    """Rules allow and cannot forbid: a directory with a private one inside is given entry by entry, without it."""
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
