"""The capability token of a node, which selects builds of a backend. The rules are LocalAI's, so that its galleries
work unchanged."""

from dataclasses import dataclass

from corral.core.nodes.hardware import GpuVendor, vram_label
from corral.core.nodes.node import Node

__all__ = [
    "DEFAULT_TOKEN",
    "Capability",
    "CapabilityFacts",
    "capability_of",
    "pick_capability",
    "reported_capability",
    "vram_label",
]

DEFAULT_TOKEN = "default"
SMALL_VRAM_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityFacts:
    platform: str  # "linux/amd64"
    gpu_vendor: GpuVendor | None = None
    vram_total_bytes: int | None = None
    cuda_majors: frozenset[int] = frozenset()  # 12 when /usr/local/cuda-12 exists
    forced: str | None = None  # by setting
    run_file: str | None = None  # written by the entry point of the container image


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    token: str
    reason: str


def pick_capability(facts: CapabilityFacts) -> Capability:
    """The first rule that applies wins; the order is LocalAI's."""
    for token, where in ((facts.forced, "by setting"), (facts.run_file, "by the capability file")):
        if token is not None and token.strip():
            return Capability(token=token.strip(), reason=f"forced {where}")
    match facts.platform:
        case "darwin/arm64":
            return Capability(token="metal", reason="an Apple GPU")
        case "darwin/amd64":
            return Capability(token="darwin-x86", reason="a Mac with an Intel processor")
    if facts.platform == "linux/arm64" and facts.gpu_vendor == "nvidia":
        return _with_cuda("nvidia-l4t", facts, reason="an NVIDIA GPU on a 64-bit ARM machine")
    if facts.gpu_vendor is None:
        return Capability(token=DEFAULT_TOKEN, reason="no GPU found")
    if facts.vram_total_bytes is None:
        # LocalAI counts unknown memory as zero, with the same result. We also give the reason.
        return Capability(
            token=DEFAULT_TOKEN,
            reason=f"the memory of the {facts.gpu_vendor} GPU is unknown, so CPU builds are used;"
            " set LOCALAI_FORCE_META_BACKEND_CAPABILITY to choose others",
        )
    if facts.vram_total_bytes <= SMALL_VRAM_BYTES:
        return Capability(token=DEFAULT_TOKEN, reason=f"the {facts.gpu_vendor} GPU has no more than 4 GiB of memory")
    if facts.gpu_vendor == "nvidia":
        return _with_cuda("nvidia", facts, reason="an NVIDIA GPU")
    return Capability(token=facts.gpu_vendor, reason=f"a GPU of the vendor {facts.gpu_vendor}")


def reported_capability(token: str | None, *, gpu_vendor: str | None, vram_total_bytes: int | None) -> str:
    """The token of a node that reports none: its GPU vendor, if the GPU has more than 4 GiB of memory."""
    if token:
        return token
    if gpu_vendor and gpu_vendor != "unknown" and (vram_total_bytes or 0) > SMALL_VRAM_BYTES:
        return gpu_vendor
    return DEFAULT_TOKEN


def capability_of(node: Node) -> str:
    """The token by which builds are chosen for the node."""
    return reported_capability(node.capability, gpu_vendor=node.gpu_vendor, vram_total_bytes=node.total_vram)


def _with_cuda(family: str, facts: CapabilityFacts, *, reason: str) -> Capability:
    for major in (13, 12):
        if major in facts.cuda_majors:
            return Capability(token=f"{family}-cuda-{major}", reason=f"{reason} and CUDA {major}")
    return Capability(token=family, reason=reason)
