"""Classes of machines."""

from typing import Any

import pytest

from corral.core.nodes.node_class import node_class
from store.serving.test_replicas import make_node

GIB = 1 << 30
AMD64 = '{"platform":"linux/amd64"}'


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"capability": "default", "facts": AMD64}, "default (linux/amd64)"),
        ({"capability": "metal", "facts": '{"platform":"darwin/arm64"}'}, "metal (darwin/arm64)"),
        ({"capability": "default", "facts": "broken"}, "default"),
        ({"capability": None, "facts": None}, "default"),
        (
            {"capability": "nvidia-cuda-12", "gpu_vendor": "nvidia", "total_vram": 24 * GIB, "facts": AMD64},
            "nvidia-cuda-12 (nvidia, 24 GB)",
        ),
        ({"capability": "nvidia", "gpu_vendor": "nvidia", "total_vram": int(23.6 * GIB)}, "nvidia (nvidia, 24 GB)"),
        ({"capability": "amd", "gpu_vendor": "amd", "total_vram": int(79.1 * GIB)}, "amd (amd, 80 GB)"),
        ({"capability": "default", "gpu_vendor": "intel", "total_vram": GIB // 2}, "default (intel, 1 GB)"),
    ],
)
def test_machines_that_are_alike_have_one_class(fields: dict[str, Any], expected: str) -> None:
    assert node_class(make_node("a", **fields)) == expected
