"""Which builds use the accelerator of a machine."""

from collections.abc import Mapping

import pytest

from corral.core.backends.acceleration import has_accelerator, is_accelerated

MAP = {"nvidia": "engine-a", "default": "engine-b", "metal": "engine-c"}


@pytest.mark.parametrize(
    ("name", "uri", "capabilities", "expected"),
    [
        pytest.param("cuda12-llama-cpp", "", {}, True, id="by-its-name"),
        pytest.param("llama-cpp-rocm6", "", {}, True, id="at-the-end-of-the-name"),
        pytest.param("CPU-llama-cpp", "", {}, False, id="a-cpu-build-in-any-case"),
        pytest.param("llama-cpp", "quay.io/x/y:latest-gpu-vulkan-llama-cpp", {}, True, id="by-its-source"),
        pytest.param("cpu-llama-cpp", "quay.io/x/y:latest-cuda", {}, False, id="the-name-comes-first"),
        pytest.param("cpuid-tool", "", {}, None, id="part-of-a-word-says-nothing"),
        pytest.param("intelligence", "", {}, None, id="nor-does-the-beginning-of-one"),
        pytest.param("engine-a", "", MAP, True, id="by-the-map-of-its-family"),
        pytest.param("Engine-C", "", MAP, True, id="in-any-case-there-too"),
        pytest.param("engine-b", "", MAP, False, id="the-default-beside-accelerated-ones"),
        pytest.param("engine-b", "", {"default": "engine-b"}, None, id="the-default-of-a-family-without-others"),
        pytest.param("engine-d", "", MAP, None, id="not-in-the-map"),
    ],
)
def test_is_accelerated(name: str, uri: str, capabilities: Mapping[str, str], expected: bool | None) -> None:
    assert is_accelerated(name, uri, capabilities) is expected


@pytest.mark.parametrize("capability", ["", "default", "CPU", "darwin-x86", "disable", "unknown"])
def test_these_use_the_processor_only(capability: str) -> None:
    assert not has_accelerator(capability)


@pytest.mark.parametrize("capability", ["nvidia", "nvidia-cuda-13", "AMD", "intel", "vulkan", "metal", "nvidia-l4t"])
def test_these_use_more(capability: str) -> None:
    assert has_accelerator(capability)
