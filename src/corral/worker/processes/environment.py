"""The environment of a backend: an allowlist of the worker's variables, and those of its spec."""

from collections.abc import Iterable, Mapping

from corral.core.errors import InvalidInput
from corral.core.processes.process import ProcessSpec
from corral.worker.processes.tree import MARKER_VARIABLE

# An allowlist, not a denylist: a secret added later is not passed on.
_ALLOWED = frozenset(
    (
        *("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "DYLD_LIBRARY_PATH"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES"),
        *("NVIDIA_DRIVER_CAPABILITIES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"),
        *("ROCM_PATH", "ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK", "SYCL_DEVICE_FILTER", "VK_DRIVER_FILES"),
        *("VK_ICD_FILENAMES", "XDG_DATA_DIRS", "OMP_NUM_THREADS"),
    )
)
_ALLOWED_PREFIXES = ("LC_",)
# Loaders run the files named here inside the backend; a spec must not set them.
_REFUSED = frozenset(("LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", MARKER_VARIABLE))


def plan_environment(
    spec: ProcessSpec,
    inherited: Mapping[str, str],
    *,
    port: int,
    token: str,
    marker: str,
    home: str,
    also: Iterable[str],
) -> dict[str, str]:
    """`also`: further variables that the administrator allows. Proxy addresses with a password are not passed on."""
    allowed = _ALLOWED | frozenset(also)
    environment = {
        name: value
        for name, value in inherited.items()
        if (name in allowed or name.startswith(_ALLOWED_PREFIXES)) and not _has_password(name, value)
    }
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    environment |= {"HOME": home, "TMPDIR": home, "PYTHONUNBUFFERED": "1"}
    for name, value in spec.environment.items():
        if name in _REFUSED:
            raise InvalidInput(
                f"{spec.key}: {name} must not be set for a backend, because it loads code into it. Remove it."
            )
        environment[name] = value if isinstance(value, str) else value.text(host=spec.host, port=port, token=token)
    environment[MARKER_VARIABLE] = marker
    return environment


def _has_password(name: str, value: str) -> bool:
    return name.lower().endswith("_proxy") and "@" in value
