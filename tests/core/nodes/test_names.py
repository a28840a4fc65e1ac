"""Names that a person could take for one another."""

import pytest

from corral.core.nodes.names import looks_like


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("bus-live", "BUS-LIVE", id="upper-case"),
        pytest.param("bus-live", "bus_live", id="an-underscore-for-a-hyphen"),
        pytest.param("bus-live", "bus\u2013live", id="a-dash-for-a-hyphen"),
        pytest.param("bus-live", "bus\u2011live", id="a-no-break-hyphen"),
        pytest.param("bus-live", "b\u200bus-live", id="a-zero-width-space"),
        pytest.param("paco", "р\u0430со", id="cyrillic-letters"),
        pytest.param("bus", "ｂｕｓ", id="full-width-letters"),
        pytest.param("straße", "STRASSE", id="case-folding-of-a-sharp-s"),
        pytest.param("a b", " a  b ", id="other-spaces"),
        pytest.param("caf\u00e9", "cafe\u0301", id="a-composed-and-a-combining-accent"),
    ],
)
def test_names_that_look_alike(one: str, other: str) -> None:
    assert looks_like(one) == looks_like(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("node-1", "node-2", id="another-digit"),
        pytest.param("node-1", "node1", id="a-hyphen-more"),
        pytest.param("a-b", "b-a", id="another-order"),
        pytest.param("bus", "буs", id="a-letter-that-looks-like-no-latin-one"),
    ],
)
def test_names_that_do_not(one: str, other: str) -> None:
    assert looks_like(one) != looks_like(other)


def test_the_key_of_a_key_is_itself() -> None:
    assert looks_like(looks_like("Bus\u2014LIVE  1")) == looks_like("Bus\u2014LIVE  1")
