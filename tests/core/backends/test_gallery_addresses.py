"""The ways to name galleries in a setting."""

import pytest

from corral.core.backends.gallery_addresses import GalleryAddress, read_gallery_list

A = GalleryAddress(name="a", url="https://a/index.yaml")
B = GalleryAddress(name="b", url="file:///b", mirrors=("https://c",), verification={"issuer": "x"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param("a=https://a/index.yaml", (A,), id="a-pair"),
        pytest.param('[{"name":"a","url":"https://a/index.yaml"}]', (A,), id="localais-json"),
        pytest.param(
            [{"name": "b", "url": "file:///b", "mirrors": ["https://c"], "verification": {"issuer": "x"}}],
            (B,),
            id="tables-of-a-settings-file",
        ),
        pytest.param("a=https://a/index.yaml, b=file:///b", (A, GalleryAddress(name="b", url="file:///b")), id="two"),
    ],
)
def test_a_list_of_galleries_is_read(value: object, expected: tuple[GalleryAddress, ...]) -> None:
    assert read_gallery_list(value) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("https://a/index.yaml", "name"),
        ("[", "not JSON"),
        ('[{"name":"a"}]', "not a list of galleries"),
        ('[{"name":"a@b","url":"x"}]', "needs a name"),
        ('[{"name":"a","url":"x","mirrors":"y"}]', "mirrors"),
        ("corral=https://a", "Corral's own"),
        ("a=x,a=y", "same name"),
        ("7", "not a list"),
        (7, "not a list"),
    ],
)
def test_what_is_no_list_of_galleries_is_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_gallery_list(value)
