"""Which build of a model suits which machine."""

import pytest

from corral.core.models.variants import ModelBuild, pick_build

GB = 10**9
ENTRY = ModelBuild(name="m", backend="llama-cpp", size_bytes=5 * GB)
LARGE = ModelBuild(name="m-q8", backend="llama-cpp", size_bytes=9 * GB)
VLLM = ModelBuild(name="m-vllm", backend="vllm", size_bytes=16 * GB)
MLX = ModelBuild(name="m-mlx", backend="mlx", size_bytes=5 * GB)
FAST = ModelBuild(name="m-mtp", backend="vllm", size_bytes=15 * GB, tags=("MTP",))
UNKNOWN = ModelBuild(name="m-unknown", backend="vllm")
ALL = (LARGE, VLLM, MLX, FAST, UNKNOWN)


def runs_on(capability: str, backend: str) -> bool:
    if backend == "vllm":
        return capability.startswith("nvidia")
    return backend != "mlx" or capability == "metal"


def pick(capability: str, memory_gb: float | None, *, pin: str = "") -> str | None:
    picked = pick_build(
        ENTRY,
        ALL,
        capability=capability,
        memory_bytes=None if memory_gb is None else int(memory_gb * GB),
        runs_here=lambda backend: runs_on(capability, backend),
        pin=pin,
    )
    return picked.name if picked else None


@pytest.mark.parametrize(
    ("capability", "memory_gb", "expected"),
    [
        ("default", 8, "m"),
        ("default", 12, "m-q8"),
        ("default", 2, "m"),
        ("default", None, "m-q8"),
        ("nvidia-cuda-12", 24, "m-mtp"),
        ("nvidia-cuda-12", 15.5, "m-mtp"),
        ("nvidia-cuda-12", 12, "m-q8"),
        ("nvidia-cuda-12", 2, "m-unknown"),
        ("metal", 24, "m-mlx"),
        ("vulkan", 6, "m"),
        ("something-new", 12, "m-q8"),
    ],
)
def test_the_build_that_suits_best_is_picked(capability: str, memory_gb: float | None, expected: str) -> None:
    assert pick(capability, memory_gb) == expected


def test_a_pin_wins_and_an_unknown_one_is_no_build() -> None:
    assert pick("default", 1, pin="m-vllm") == "m-vllm"
    assert pick("default", 1, pin="other") is None


def test_the_reason_shows_size_backend_and_capacity() -> None:
    picked = pick_build(ENTRY, [LARGE], capability="default", memory_bytes=12 * GB, runs_here=lambda _: True)
    assert picked is not None
    assert picked.reason == (
        "m-q8, of 8.4 GiB for llama-cpp, is the best of 2 builds for a default node with 11.2 GiB of memory"
    )
    picked = pick_build(ENTRY, [LARGE], capability="default", memory_bytes=GB, runs_here=lambda _: True)
    assert picked is not None
    assert picked.reason.startswith("none of 2 builds fits")
