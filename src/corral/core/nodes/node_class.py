"""Classes of machines: versions are compared only on machines that are alike."""

import json
from typing import Any

from corral.core.nodes.capability import capability_of
from corral.core.nodes.node import Node

GIB = 1 << 30


def node_class(node: Node) -> str:
    """The capability and the accelerator with its memory, or the platform of a machine without one:
    `nvidia-cuda-12 (nvidia, 24 GB)`, `default (linux/amd64)`. It changes only with the hardware or the settings."""
    capability = capability_of(node)
    if node.gpu_vendor and node.total_vram:
        return f"{capability} ({node.gpu_vendor}, {_rounded_gib(node.total_vram)} GB)"
    platform = _platform(node)
    return f"{capability} ({platform})" if platform else capability


def _rounded_gib(size_bytes: int) -> int:
    """To about an eighth of the size, because machines with the same card report slightly different sizes."""
    size_gib = size_bytes / GIB
    step = 1
    while step * 8 < size_gib:
        step *= 2
    return max(1, round(size_gib / step) * step)


def _platform(node: Node) -> str:
    try:
        facts: Any = json.loads(node.facts) if node.facts else None
    except ValueError:
        return ""
    platform = facts.get("platform") if isinstance(facts, dict) else None
    return platform if isinstance(platform, str) else ""
