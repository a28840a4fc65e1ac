"""Which existing names are offered for an unknown one."""

import pytest

from corral.core.suggestions import NAME_MOST, near_names

KNOWN = ["llama-cpp", "whisper", "vllm", "LLaVA", "stablediffusion"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("lama-cpp", ["llama-cpp"], id="a-missing-letter"),
        pytest.param("wisper", ["whisper"], id="another-one"),
        pytest.param("VLLM", ["vllm"], id="in-any-case"),
        pytest.param("llava", ["LLaVA"], id="in-the-spelling-that-is-known"),
        pytest.param("vlm", ["vllm"], id="a-short-name"),
        pytest.param("postgres", [], id="nothing-similar"),
        pytest.param("", [], id="nothing-at-all"),
        pytest.param("whisper" * NAME_MOST, [], id="a-name-too-long-to-compare"),
    ],
)
def test_near_names(name: str, expected: list[str]) -> None:
    assert near_names(name, KNOWN)[: max(1, len(expected))] == expected


def test_the_most_similar_comes_first_and_not_too_many() -> None:
    known = ["node-1", "node-11", "node-12", "node-13", "other"]
    assert near_names("node-1x", known, most=2)[0] == "node-1"
    assert len(near_names("node-1x", known, most=2)) == 2
    assert near_names("node-1x", []) == []
