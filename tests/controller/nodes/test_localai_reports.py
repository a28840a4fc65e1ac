"""What LocalAI's workers list, completed to what a Corral worker lists."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from corral.bus.messages import ListedBackend
from corral.controller.nodes.localai_reports import complete_listing, names_of


@dataclass(frozen=True)
class Entry:
    name: str
    gallery: str = "localai"
    uri: str = ""
    alias: str = ""
    capabilities: Mapping[str, str] = field(default_factory=dict)


NAMES = names_of(
    [
        Entry("tiny", alias="tiny", capabilities={"default": "cpu-tiny", "nvidia": "cuda12-tiny"}),
        Entry("cpu-tiny", uri="quay.io/x:cpu", alias="tiny"),
        Entry("cuda12-tiny", uri="quay.io/x:cuda", alias="tiny"),
        Entry("piper", capabilities={"default": "cpu-piper"}),
        Entry("cpu-piper", uri="quay.io/x:piper"),
        Entry("solo", uri="quay.io/x:solo"),
    ]
)


def build(name: str, uri: str = "quay.io/x:cpu") -> ListedBackend:
    return ListedBackend(name=name, is_system=False, is_meta=False, uri=uri, digest="sha256:1", version="1")


def meta(name: str) -> ListedBackend:
    return ListedBackend(name=name, is_system=False, is_meta=True)


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        pytest.param([build("cpu-tiny")], {("cpu-tiny", ""), ("tiny", "cpu-tiny")}, id="a-family-that-is-left-out"),
        pytest.param(
            [build("cpu-tiny"), build("tiny")], {("cpu-tiny", ""), ("tiny", "cpu-tiny")}, id="a-row-for-an-alias"
        ),
        pytest.param(
            [build("cpu-tiny"), meta("localai@tiny")],
            {("cpu-tiny", ""), ("tiny", "cpu-tiny")},
            id="a-family-with-its-gallery-in-the-name",
        ),
        pytest.param(
            [build("cpu-piper", "quay.io/x:piper"), meta("piper")],
            {("cpu-piper", ""), ("piper", "cpu-piper")},
            id="a-family-without-its-build",
        ),
        pytest.param(
            [build("cpu-tiny"), build("cuda12-tiny", "quay.io/x:cuda")],
            {("cpu-tiny", ""), ("cuda12-tiny", ""), ("tiny", "cpu-tiny")},
            id="a-family-with-two-builds",
        ),
        pytest.param([build("solo", "quay.io/x:solo")], {("solo", "")}, id="a-build-without-a-family"),
        pytest.param([build("unknown")], {("unknown", "")}, id="a-build-that-no-gallery-has"),
        pytest.param([meta("gone")], {("gone", "")}, id="a-family-whose-build-is-not-listed"),
    ],
)
def test_a_listing_has_every_family_with_its_build(listed: list[ListedBackend], shown: set[tuple[str, str]]) -> None:
    rows = complete_listing(listed, NAMES)
    assert {(row.name, row.concrete or "") for row in rows} == shown
    assert len(rows) == len(shown)


def test_a_build_has_the_alias_of_its_gallery() -> None:
    [row, _] = complete_listing([build("cuda12-tiny", "quay.io/x:cuda")], NAMES)
    assert (row.alias, row.digest, row.version) == ("tiny", "sha256:1", "1")
