"""The environment of a backend: a short list of what it may know, and nothing of the worker's own."""

from collections.abc import Iterable, Mapping

from corral.core.errors import InvalidInput
from corral.core.processes.process import ProcessSpec
from corral.worker.processes.tree import MARKER_VARIABLE

# Never the whole environment less some names: a secret added tomorrow would be in it.
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
# Loaders run what these name inside the backend; an option that reaches the environment must not set them.
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
    """`also` names what the administrator lets through besides. A proxy address with a password in it stays here."""
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
                f"{spec.key}: {name} must not be set for a backend; it would run foreign code inside it."
            )
        environment[name] = value if isinstance(value, str) else value.text(host=spec.host, port=port, token=token)
    environment[MARKER_VARIABLE] = marker
    return environment


def _has_password(name: str, value: str) -> bool:
    return name.lower().endswith("_proxy") and "@" in value
