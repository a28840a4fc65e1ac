"""Picks the build of a model for a node. The rules are LocalAI's, so that a gallery has the same meaning for both;
Corral adds the reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corral.core.sizes import format_bytes

_PREFERRED_ENGINES = {
    "nvidia": ("vllm", "sglang", "llama-cpp"),
    "amd": ("vllm", "sglang", "llama-cpp"),
    "intel": ("vllm", "sglang", "llama-cpp"),
    "metal": ("mlx", "llama-cpp"),
    "vulkan": ("llama-cpp",),
    "darwin-x86": ("llama-cpp", "vllm", "sglang"),
    "default": ("llama-cpp", "vllm", "sglang"),
}
_PREFERRED_TAGS = ("dflash", "mtp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBuild:
    """One of several gallery entries for the same model."""

    name: str
    backend: str
    size_bytes: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PickedBuild:
    name: str
    reason: str


def pick_build(
    entry: ModelBuild,
    variants: Sequence[ModelBuild],
    *,
    capability: str,
    memory_bytes: int | None,
    runs_here: Callable[[str], bool],
    pin: str = "",
) -> PickedBuild | None:
    """The build to install for `entry`. `memory_bytes` is GPU memory, else RAM, if known. `runs_here`: whether a
    backend has a build for this node. None only for a pin that names no build."""
    builds = [entry, *(variant for variant in variants if variant.name != entry.name)]
    if pin:
        return next((PickedBuild(b.name, f"{b.name} was requested") for b in builds if b.name == pin), None)
    usable = [build for build in builds if build is entry or _may_run(build, memory_bytes, runs_here)]
    best = min(usable, key=lambda build: _rank(build, capability, memory_bytes, runs_here))
    return PickedBuild(best.name, _reason(best, entry, len(builds), capability, memory_bytes))


def _may_run(build: ModelBuild, memory_bytes: int | None, runs_here: Callable[[str], bool]) -> bool:
    too_large = memory_bytes is not None and build.size_bytes is not None and build.size_bytes > memory_bytes
    return not too_large and (not build.backend or runs_here(build.backend))


def _rank(
    build: ModelBuild, capability: str, memory_bytes: int | None, runs_here: Callable[[str], bool]
) -> tuple[int, int, int, int]:
    """Lower is better: known to fit, then a preferred engine, then a preferred kind of build, then the larger one."""
    if not _may_run(build, memory_bytes, runs_here):
        fit = 2
    else:
        fit = 0 if build.size_bytes is not None and memory_bytes is not None else 1
    engines = _engines(capability)
    engine = next((place for place, name in enumerate(engines) if name in build.backend.lower()), len(engines))
    tags = {tag.lower() for tag in build.tags}
    tag = next((place for place, name in enumerate(_PREFERRED_TAGS) if name in tags), len(_PREFERRED_TAGS))
    return fit, engine, tag, -(build.size_bytes or 0)


def _engines(capability: str) -> tuple[str, ...]:
    family = next((name for name in _PREFERRED_ENGINES if capability.startswith(name)), "default")
    return _PREFERRED_ENGINES[family]


def _reason(best: ModelBuild, entry: ModelBuild, count: int, capability: str, memory_bytes: int | None) -> str:
    if count == 1:
        return f"{entry.name} has one build"
    memory = "unknown memory" if memory_bytes is None else f"{format_bytes(memory_bytes)} of memory"
    size = "of unknown size" if best.size_bytes is None else f"of {format_bytes(best.size_bytes)}"
    if best is entry and memory_bytes is not None and (best.size_bytes or 0) > memory_bytes:
        return f"none of {count} builds fits {memory} on a {capability} node; using {best.name} as requested"
    what = f"{best.name}, {size} for {best.backend or 'any backend'}"
    return f"{what}, is the best of {count} builds for a {capability} node with {memory}"
