"""A build as one value: how its digest is shown, and how a command overrides what a gallery says."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.backends.build import BuildRef, short_digest

DIGEST = "sha256:" + "a" * 64
TEXT = st.text(max_size=3)
BUILDS = st.builds(
    BuildRef,
    name=TEXT,
    alias=TEXT,
    uris=st.lists(TEXT, max_size=2).map(tuple),
    digest=TEXT,
    sha256=TEXT,
    version=TEXT,
    manifest=TEXT,
)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        pytest.param(BuildRef(name="a", version="1"), BuildRef(), BuildRef(name="a", version="1"), id="nothing-is-set"),
        pytest.param(BuildRef(name="a"), BuildRef(digest="d"), BuildRef(name="a", digest="d"), id="a-field-is-added"),
        pytest.param(BuildRef(version="1"), BuildRef(version="2"), BuildRef(version="2"), id="a-field-is-replaced"),
        pytest.param(
            BuildRef(uris=("x",)), BuildRef(uris=("y", "z")), BuildRef(uris=("y", "z")), id="sources-as-a-whole"
        ),
    ],
)
def test_with_overrides(own: BuildRef, other: BuildRef, expected: BuildRef) -> None:
    assert own.with_overrides(other) == expected


@given(BUILDS, BUILDS)
def test_every_field_comes_from_the_other_build_where_it_is_set(own: BuildRef, other: BuildRef) -> None:
    merged = own.with_overrides(other)
    for field in fields(BuildRef):
        assert getattr(merged, field.name) == (getattr(other, field.name) or getattr(own, field.name))


@pytest.mark.parametrize(
    ("digest", "short"),
    [
        (DIGEST, "sha256:" + "a" * 12),
        ("sha256:ab", "sha256:ab"),
        ("sha512:" + "b" * 128, "sha512:" + "b" * 128),
        ("", ""),
    ],
)
def test_short_digest(digest: str, short: str) -> None:
    assert short_digest(digest) == short
