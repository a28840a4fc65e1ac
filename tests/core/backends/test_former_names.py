"""Names that backends had before."""

import pytest

from corral.core.backends.former_names import FORMER_NAMES, current_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("llama", "llama-cpp", id="a-former-name"),
        pytest.param("LLAMA", "llama-cpp", id="in-any-case"),
        pytest.param("localai@go-llama", "localai@llama-cpp", id="of-one-gallery"),
        pytest.param("llama-cpp", "llama-cpp", id="the-present-name"),
        pytest.param("Whisper", "Whisper", id="a-name-without-a-past-keeps-its-spelling"),
        pytest.param("my@llama@whisper", "my@llama@whisper", id="only-the-last-part-is-a-name"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_current_name(name: str, expected: str) -> None:
    assert current_name(name) == expected


def test_no_former_name_leads_to_another_one() -> None:
    assert not set(FORMER_NAMES.values()) & (set(FORMER_NAMES) - {"stablediffusion"})
    assert all(name == name.lower() for name in FORMER_NAMES)
