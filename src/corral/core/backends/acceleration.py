"""Whether a build uses the accelerator of a machine. Names and sources show it, as in LocalAI's galleries; where they
do not, the capability map of the build's family does."""

import re
from collections.abc import Mapping

_PROCESSOR_ONLY = frozenset({"", "default", "cpu", "darwin-x86", "disable", "unknown"})
_CPU = re.compile(r"(?<![a-z0-9])cpu(?![a-z0-9])")
_ACCELERATED = re.compile(
    r"(?<![a-z0-9])(?:cuda\d*|cu\d{2,3}|nvidia|l4t|rocm\d*|hip(?:blas)?|amd|sycl|intel|vulkan|metal|mlx)(?![a-z0-9])"
)


def has_accelerator(capability: str) -> bool:
    """Whether builds for this capability use more than the processor."""
    return capability.lower() not in _PROCESSOR_ONLY


def is_accelerated(name: str, uri: str, capabilities: Mapping[str, str]) -> bool | None:
    """Whether a build uses an accelerator; None if nothing shows it."""
    for text in (name.lower(), uri.lower()):
        if _CPU.search(text):
            return False
        if _ACCELERATED.search(text):
            return True
    keys = {key for key, target in capabilities.items() if target.lower() == name.lower()}
    if any(map(has_accelerator, keys)):
        return True
    return False if keys and any(map(has_accelerator, capabilities)) else None
