"""Which builds a LocalAI worker can run, and what is left of galleries for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from core.replicas.test_availability import node
from corral.core.backends.runnable import find_localai_obstacle, find_obstacle, pick_runnable

CORRAL, LOCALAI = node(), node(key_hash=None)


@pytest.mark.parametrize(
    "uri",
    ["quay.io/go-skynet/local-ai-backends:latest-cpu-llama-cpp", "ghcr.io/x/y:1", "docker.io/x/y", "oci://h:5000/x:1"],
)
def test_a_localai_worker_runs_images_that_it_recognises(uri: str) -> None:
    assert find_obstacle(LOCALAI, "x", uri=uri, manifest=False) == ""


@pytest.mark.parametrize("uri", ["pypi://vllm==1", "https://h/x.tar.gz", "h:5000/x:1", "localai/backends:latest"])
def test_a_localai_worker_cannot_download_anything_else(uri: str) -> None:
    assert uri in find_obstacle(LOCALAI, "x", uri=uri, manifest=False)
    assert find_obstacle(CORRAL, "x", uri=uri, manifest=False) == ""


def test_a_localai_worker_knows_no_manifest() -> None:
    assert "needs a Corral manifest" in find_obstacle(LOCALAI, "x", uri="oci://h/x:1", manifest=True)
    assert find_obstacle(CORRAL, "x", uri="oci://h/x:1", manifest=True) == ""


@dataclass(frozen=True)
class Entry:
    name: str
    gallery: str
    uri: str = ""
    capabilities: Mapping[str, str] = field(default_factory=dict)


def test_a_gallery_that_a_worker_cannot_use_hides_no_other() -> None:
    own = [
        Entry("llama-cpp", "corral", "pypi://xllamacpp==1"),
        Entry("vllm", "corral", capabilities={"nvidia": "cuda-vllm"}),
        Entry("cuda-vllm", "corral", "pypi://vllm==1"),
    ]
    theirs = [
        Entry("llama-cpp", "localai", capabilities={"default": "CPU-llama-cpp"}),
        Entry("cpu-llama-cpp", "localai", "quay.io/x:cpu"),
        Entry("vllm", "localai", capabilities={"cpu": "cpu-vllm"}),
        Entry("cpu-vllm", "localai", "quay.io/x:vllm"),
    ]
    kept = pick_runnable([*own, *theirs], lambda one: find_localai_obstacle(one.name, uri=one.uri, manifest=False))
    assert list(kept) == theirs
