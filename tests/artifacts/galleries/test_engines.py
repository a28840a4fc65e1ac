"""Which build of an engine a node gets with Corral's and LocalAI's galleries loaded. `docs/engines.md` shows the same
table."""

from pathlib import Path

import pytest

from corral.artifacts.galleries.catalogue import CORRAL_GALLERY, Catalogue, shipped
from corral.artifacts.galleries.entries import BackendEntry, backend_request, parse_backends
from corral.core.backends.acceleration import has_accelerator, is_accelerated
from corral.core.backends.variants import Chosen, Unfit
from harness.capabilities import CAPABILITIES

LOCALAI = (Path(__file__).parent / "localai_families.yaml").read_bytes()
DOCUMENT = Path(__file__).parents[3] / "docs" / "engines.md"

BUILDS = {
    "llama-cpp": (
        "corral@cpu-xllamacpp",
        "corral@cuda12-llama-cpp",
        "corral@cuda12-llama-cpp",
        "corral@cuda13-llama-cpp",
        "corral@nvidia-l4t-arm64-llama-cpp",
        "corral@nvidia-l4t-arm64-llama-cpp",
        "corral@cuda13-nvidia-l4t-arm64-llama-cpp",
        "corral@rocm-llama-cpp",
        "corral@intel-sycl-f16-llama-cpp",
        "corral@vulkan-llama-cpp",
        "corral@metal-xllamacpp",
        "corral@cpu-xllamacpp",
    ),
    "vllm": (
        "corral@cpu-vllm",
        "corral@cuda-vllm",
        "corral@cuda-vllm",
        "corral@cuda-vllm",
        "corral@cpu-vllm",
        "corral@cpu-vllm",
        "corral@cuda-vllm",
        "corral@rocm-vllm",
        "corral@intel-vllm",
        "corral@cpu-vllm",
        "corral@metal-vllm",
        "corral@cpu-vllm",
    ),
    "sglang": (
        "corral@cpu-sglang",
        "corral@cuda-sglang",
        "corral@cuda-sglang",
        "corral@cuda-sglang",
        "corral@cpu-sglang",
        "corral@cpu-sglang",
        "corral@cuda13-nvidia-l4t-arm64-sglang",
        "corral@rocm-sglang",
        "corral@intel-sglang",
        "corral@cpu-sglang",
        "corral@cpu-sglang",
        "corral@cpu-sglang",
    ),
    "whisper": (
        "localai@cpu-whisper",
        "localai@cuda12-whisper",
        "localai@cuda12-whisper",
        "localai@cuda13-whisper",
        "localai@nvidia-l4t-arm64-whisper",
        "localai@nvidia-l4t-arm64-whisper",
        "localai@cuda13-nvidia-l4t-arm64-whisper",
        "localai@rocm-whisper",
        "localai@intel-sycl-f16-whisper",
        "localai@vulkan-whisper",
        "localai@metal-whisper",
        "localai@cpu-whisper",
    ),
    "stablediffusion": (
        "localai@cpu-stablediffusion-ggml",
        "localai@cuda12-stablediffusion-ggml",
        "localai@cuda12-stablediffusion-ggml",
        "localai@cuda13-stablediffusion-ggml",
        "localai@nvidia-l4t-arm64-stablediffusion-ggml",
        "localai@nvidia-l4t-arm64-stablediffusion-ggml",
        "localai@cuda13-nvidia-l4t-arm64-stablediffusion-ggml",
        "localai@cpu-stablediffusion-ggml",
        "localai@intel-sycl-f16-stablediffusion-ggml",
        "localai@vulkan-stablediffusion-ggml",
        "localai@metal-stablediffusion-ggml",
        "localai@cpu-stablediffusion-ggml",
    ),
    "diffusers": (
        "localai@cpu-diffusers",
        "localai@cuda12-diffusers",
        "localai@cuda12-diffusers",
        "localai@cuda13-diffusers",
        "localai@nvidia-l4t-diffusers",
        "localai@nvidia-l4t-diffusers",
        "localai@cuda13-nvidia-l4t-arm64-diffusers",
        "localai@rocm-diffusers",
        "localai@intel-diffusers",
        "localai@cpu-diffusers",
        "localai@metal-diffusers",
        "localai@cpu-diffusers",
    ),
}
"""By engine, in the order of the capabilities: the build, as `gallery@name`."""
WITHOUT_A_BUILD = {
    ("vllm", "nvidia-l4t"),
    ("vllm", "nvidia-l4t-cuda-12"),
    ("vllm", "vulkan"),
    ("sglang", "nvidia-l4t"),
    ("sglang", "nvidia-l4t-cuda-12"),
    ("sglang", "vulkan"),
    ("sglang", "metal"),
    ("stablediffusion", "amd"),
    ("diffusers", "vulkan"),
}
"""Accelerators for which no gallery maps an engine to an accelerated build, so that the CPU build is what there is."""


def load(*, own: bytes | None = None, localai: bytes = LOCALAI) -> Catalogue:
    first = parse_backends(shipped("backends.yaml") if own is None else own, gallery=CORRAL_GALLERY)
    return Catalogue(entries=(*first, *parse_backends(localai, gallery="localai")), galleries=())


BOTH = load()


def chosen(name: str, capability: str, catalogue: Catalogue = BOTH) -> BackendEntry:
    resolution = catalogue.resolve(name, capability)
    assert isinstance(resolution, Chosen), resolution
    return catalogue.chosen_entry(name, resolution)


@pytest.mark.parametrize(
    ("engine", "capability", "expected"),
    [
        pytest.param(engine, capability, build, id=f"{engine}-{capability}")
        for engine, builds in BUILDS.items()
        for capability, build in zip(CAPABILITIES, builds, strict=True)
    ],
)
def test_each_engine_resolves_to_its_best_build(engine: str, capability: str, expected: str) -> None:
    entry = chosen(engine, capability)
    assert f"{entry.gallery}@{entry.name}" == expected
    wanted = has_accelerator(capability) and (engine, capability) not in WITHOUT_A_BUILD
    assert is_accelerated(entry.name, entry.uri, entry.capabilities) is wanted


def test_a_build_says_how_it_is_spoken_to() -> None:
    """The driver follows the build: by its manifest, and without one by LocalAI's `run.sh`, which speaks gRPC."""
    assert '"protocol":"openai"' in backend_request(chosen("llama-cpp", "default")).build.manifest
    assert '"protocol":"openai"' in backend_request(chosen("llama-cpp", "metal")).build.manifest
    assert backend_request(chosen("llama-cpp", "nvidia-cuda-12")).build.manifest == ""


def test_the_images_of_the_shipped_gallery_have_localais_names_tags_and_capabilities() -> None:
    """One image has one name in both galleries, so that a fleet lists it once."""
    theirs = BOTH.by_gallery["localai"]
    images = [entry for entry in BOTH.by_gallery[CORRAL_GALLERY].values() if entry.uri.startswith("quay.io/")]
    assert len(images) == 15
    for entry in images:
        assert entry.uri.rpartition(":")[2] == theirs[entry.name].uri.rpartition(":")[2]
        same = {key for key, build in entry.capabilities.items() if build == entry.name}
        assert same <= {key for key, build in theirs[entry.alias].capabilities.items() if build == entry.name}


SLOW = b"- {name: a, capabilities: {default: cpu-a}}\n- {name: cpu-a, uri: registry.example/cpu-a}\n"
FAST = (
    b"- {name: a, capabilities: {amd: rocm-a, default: cpu-a}}\n"
    b"- {name: rocm-a, uri: registry.example/rocm-a}\n- {name: cpu-a, uri: registry.example/cpu-a-2}\n"
)


@pytest.mark.parametrize(
    ("name", "capability", "own", "other", "expected"),
    [
        pytest.param("a", "amd", SLOW, FAST, "localai@rocm-a", id="an-accelerated-build-of-a-later-gallery-wins"),
        pytest.param("a", "default", SLOW, FAST, "corral@cpu-a", id="without-an-accelerator-the-first-gallery-wins"),
        pytest.param("a", "vulkan", SLOW, FAST, "corral@cpu-a", id="without-an-accelerated-build-the-first-wins"),
        pytest.param("a", "amd", FAST, SLOW, "corral@rocm-a", id="of-two-galleries-the-first-with-a-fast-build-wins"),
        pytest.param("corral@a", "amd", SLOW, FAST, "corral@cpu-a", id="a-named-gallery-is-meant-exactly"),
        pytest.param("CORRAL@A", "amd", SLOW, FAST, "corral@cpu-a", id="names-of-galleries-ignore-case"),
        pytest.param(
            "a",
            "intel",
            b"- {name: a, capabilities: {amd: x}}",
            FAST,
            "localai@cpu-a",
            id="no-build-is-worse-than-slow",
        ),
    ],
)
def test_the_choice_between_galleries(name: str, capability: str, own: bytes, other: bytes, expected: str) -> None:
    entry = chosen(name, capability, load(own=own, localai=other))
    assert f"{entry.gallery}@{entry.name}" == expected


def test_the_choice_of_another_gallery_says_why() -> None:
    found = load(own=SLOW, localai=FAST).resolve("a", "amd")
    assert found.reason == (
        "rocm-a is the build for amd, from gallery localai; gallery corral has no accelerated build for amd"
    )


@pytest.mark.parametrize("capability", ["default", "amd", "intel", "vulkan", "metal", "darwin-x86"])
def test_a_cuda_image_is_no_default(capability: str) -> None:
    found = BOTH.resolve("faster-qwen3-tts", capability)
    assert found == Unfit(
        f"faster-qwen3-tts has no build for {capability}: cuda12-faster-qwen3-tts, its build for default,"
        " needs nvidia-cuda-12"
    )


@pytest.mark.parametrize("capability", [one for one in CAPABILITIES if one not in ("metal", "darwin-x86")])
def test_mlx_needs_a_mac(capability: str) -> None:
    assert isinstance(BOTH.resolve("mlx", capability), Unfit)


def test_mlx_runs_on_a_mac() -> None:
    assert chosen("mlx", "metal").name == "metal-mlx"


def test_a_former_name_means_the_present_one() -> None:
    assert BOTH.find("stablediffusion").name == "stablediffusion-ggml"
    assert BOTH.find("localai@llama").name == "llama-cpp"
    assert BOTH.find("Go-Llama").gallery == CORRAL_GALLERY


def test_a_former_name_that_a_gallery_uses_again_means_that_entry() -> None:
    again = load(localai=LOCALAI + b"- {name: llama, uri: registry.example/llama}\n")
    assert again.find("llama").name == "llama"


def show(engine: str) -> str:
    rows = []
    for capability in CAPABILITIES:
        entry = chosen(engine, capability)
        note = ", on the CPU" if (engine, capability) in WITHOUT_A_BUILD else ""
        speaks = "OpenAI" if backend_request(entry).build.manifest else "gRPC"
        rows.append(f"| `{capability}` | `{entry.name}`{note} | {entry.gallery} | {speaks} |")
    head = ["| capability | build | gallery | protocol |", "|---|---|---|---|"]
    return "\n".join([f"### {engine}", "", *head, *rows])


@pytest.mark.parametrize("engine", BUILDS)
def test_the_page_shows_this_table(engine: str) -> None:
    """To update the page, replace the part under the heading by what the failure shows."""
    assert show(engine) in DOCUMENT.read_text()
