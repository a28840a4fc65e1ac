"""Finding an installed backend by any of its names."""

import pytest

from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import (
    Observation,
    ObservedBackend,
    ObservedProcess,
    ProcessStatus,
    ProcessTable,
    family_of,
    find_backend,
)

FAMILY = ObservedBackend(name="llama-cpp", is_meta=True, concrete="cuda12-llama-cpp")
BUILD = ObservedBackend(name="cuda12-llama-cpp", alias="llama")
OTHER = ObservedBackend(name="whisper", alias="speech")
INSTALLED = (FAMILY, BUILD, OTHER)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["whisper"], OTHER, id="by-its-directory"),
        pytest.param(["llama-cpp"], BUILD, id="by-the-meta-backend-that-resolves-to-it"),
        pytest.param(["speech"], OTHER, id="by-its-alias"),
        pytest.param(["absent"], None, id="not-installed"),
        pytest.param(["", "whisper"], OTHER, id="an-empty-name-is-skipped"),
        pytest.param(["absent", "whisper"], OTHER, id="the-first-name-that-is-installed"),
        pytest.param(["llama", "whisper"], OTHER, id="a-directory-comes-before-an-alias"),
        pytest.param([], None, id="no-name"),
    ],
)
def test_find_backend(names: list[str], expected: ObservedBackend | None) -> None:
    assert find_backend(INSTALLED, *names) == expected


def test_a_meta_backend_whose_build_is_missing_is_found_itself() -> None:
    assert find_backend([FAMILY], "llama-cpp") == FAMILY


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("cuda12-llama-cpp", "llama-cpp", id="a-build-of-a-meta-backend"),
        pytest.param("llama-cpp", "llama-cpp", id="a-meta-backend-itself"),
        pytest.param("whisper", "whisper", id="a-build-of-its-own"),
        pytest.param("absent", "absent", id="one-that-is-not-installed"),
    ],
)
def test_family_of(name: str, expected: str) -> None:
    assert family_of(INSTALLED, name) == expected


def test_a_process_is_found_by_its_key() -> None:
    process = ObservedProcess(
        process_key="m#0", model="m", replica=0, backend="b", digest="d", state=ProcessStatus.READY
    )
    table = ProcessTable(epoch=1, processes=(process,))
    assert (table.find("m#0"), table.find("m#1")) == (process, None)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        pytest.param((1, 1), (1, 2), id="a-later-report-of-the-same-worker-process"),
        pytest.param((1, 9), (2, 1), id="any-report-of-a-newer-worker-process"),
    ],
)
def test_the_order_of_observations(earlier: tuple[int, int], later: tuple[int, int]) -> None:
    def observed(at: tuple[int, int]) -> Observation:
        return Observation(node_id=NodeId("n"), instance="i", epoch=at[0], sequence=at[1], backends=(), processes=())

    assert observed(earlier).order < observed(later).order
