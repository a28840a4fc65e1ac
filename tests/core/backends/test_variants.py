"""A backend name, a capability, one entry and a reason."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.backends.variants import (
    Chosen,
    Unfit,
    index_by_name,
    is_compatible,
    pick_capability,
    resolve_for_nodes,
    resolve_variant,
)


@dataclass(frozen=True)
class Entry:
    name: str
    uri: str = ""
    capabilities: dict[str, str] = field(default_factory=dict)


FAMILY = {"default": "cpu-x", "nvidia-cuda-13": "cuda13-x", "nvidia-cuda-12": "cuda12-x", "metal": "metal-x"}
GALLERY = index_by_name(
    [
        Entry("x", capabilities=FAMILY),
        *(Entry(name, f"quay.io/y:{name}", FAMILY) for name in FAMILY.values()),
        Entry("gpu-only", capabilities={"nvidia": "cuda12-x"}),
        Entry("broken", capabilities={"default": "nowhere"}),
        Entry("plain", "quay.io/y:plain"),
    ]
)


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        pytest.param(
            "x", "nvidia-cuda-12", Chosen("cuda12-x", "cuda12-x is the build for nvidia-cuda-12"), id="its-own-key"
        ),
        pytest.param("X", "metal", Chosen("metal-x", "metal-x is the build for metal"), id="names-ignore-case"),
        pytest.param(
            "x",
            "nvidia",
            Chosen("cpu-x", "x has no build for nvidia; cpu-x is its build for default"),
            id="no-family-kinship",
        ),
        pytest.param(
            "gpu-only",
            "amd",
            Unfit("gpu-only has no build for amd; it has builds for nvidia"),
            id="no-default-no-variant",
        ),
        pytest.param(
            "broken",
            "amd",
            Unfit("broken maps default to nowhere, but no gallery has that entry"),
            id="a-missing-target",
        ),
        pytest.param("none", "amd", Unfit("No gallery has a backend named none"), id="an-unknown-name"),
        pytest.param(
            "cuda13-x",
            "nvidia-cuda-12",
            Chosen("cuda13-x", "cuda13-x was requested by name and fits this node (nvidia-cuda-12)"),
            id="the-rules-tell-nvidia-from-others-not-cuda-12-from-13",
        ),
        pytest.param(
            "metal-x",
            "nvidia-cuda-12",
            Unfit("metal-x requires metal, but this is a nvidia-cuda-12 node. cuda12-x fits", "cuda12-x"),
            id="a-concrete-entry-that-does-not-fit-names-one-that-does",
        ),
    ],
)
def test_resolve_variant(name: str, capability: str, expected: Chosen | Unfit) -> None:
    assert resolve_variant(GALLERY, name, capability) == expected


def test_a_substitute_names_what_was_requested_and_what_the_node_is() -> None:
    chosen = resolve_variant(GALLERY, "cuda13-x", "metal", substitute=True)
    reason = "metal-x replaces cuda13-x, which requires nvidia-cuda-13: this is a metal node"
    assert chosen == Chosen("metal-x", reason)


def test_each_node_has_its_own_resolution() -> None:
    told = resolve_for_nodes({"own": GALLERY}, "gpu-only", {"a": "nvidia", "b": "amd"})
    assert isinstance(told["a"], Chosen)
    assert isinstance(told["b"], Unfit)


@given(
    st.dictionaries(st.sampled_from(["default", "cpu", "amd", "metal"]), st.just("x")),
    st.sampled_from(["default", "cpu", "amd", "metal", "intel"]),
)
def test_a_capability_is_picked_unless_nothing_general_is_offered(offered: dict[str, str], capability: str) -> None:
    picked = pick_capability(offered, capability)
    if capability in offered:
        assert picked == capability
    elif {"default", "cpu"} & offered.keys():
        assert picked in ("default", "cpu")
    else:
        assert picked is None


def test_the_capability_that_disables_the_check() -> None:
    assert is_compatible("metal-x", "", "disable")
