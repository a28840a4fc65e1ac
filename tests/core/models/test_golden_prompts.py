"""Golden prompts: what a configuration may say, and how answers are compared."""

from typing import Any

import pytest

from corral.core.errors import InvalidInput
from corral.core.models.config import parse_model_config
from corral.core.models.golden_prompts import GoldenPrompt


def parse(prompts: Any) -> tuple[GoldenPrompt, ...]:
    return parse_model_config({"name": "tiny", "backend": "x", "golden_prompts": prompts}).golden_prompts


def test_a_configuration_has_prompts_or_messages() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    first, second = parse([{"prompt": "2+2?", "expect": 4}, {"messages": messages, "matches": "^4", "max_tokens": 3}])
    assert (first.messages, first.expect, first.max_tokens) == ((("user", "2+2?"),), "4", 64)
    assert second.body("tiny") == {
        "model": "tiny", "messages": messages, "max_tokens": 3, "temperature": 0, "stream": False,
    }  # fmt: skip
    assert parse(None) == ()


@pytest.mark.parametrize(
    ("prompts", "text"),
    [
        ("x", "golden_prompts must be a list of maps"),
        ([{"prompt": "x", "expect": "y"}] * 17, "has 17 entries; 16 are the most"),
        (["x"], r"golden_prompts\[0\] must be a map"),
        ([{"prompt": "x"}], r"golden_prompts\[0\] needs exactly one of expect, contains, matches, and has none"),
        ([{"prompt": "x", "expect": "y", "contains": "z"}], "expect and contains"),
        ([{"expect": "y"}], "needs either a prompt or messages"),
        ([{"prompt": "x", "expect": "y", "exact": True}], "unknown field 'exact'"),
        ([{"prompt": "x" * 20_000, "expect": "y"}], "20000 characters as prompt; 16384 are the most"),
        ([{"prompt": "x", "expect": "y", "max_tokens": 0}], "from 1 to 1024 as max_tokens"),
        ([{"prompt": "x", "matches": "("}], "invalid regular expression"),
        ([{"prompt": "x", "matches": "(a|aa)+$"}], "can take very long"),
        ([{"prompt": "x", "matches": ".*a.*b.*c"}], "can take very long"),
        ([{"messages": [{"role": "robot", "content": "x"}], "expect": "y"}], "role"),
    ],
)
def test_an_invalid_entry_is_refused(prompts: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        parse(prompts)


@pytest.mark.parametrize(
    ("check", "answer", "mismatch"),
    [
        ({"expect": "4"}, " 4\n", ""),
        ({"expect": "4"}, "5", "expected '4', got '5'"),
        ({"contains": "Paris"}, "It is Paris.", ""),
        ({"contains": "Paris"}, "It is Rome.", "expected a text with 'Paris', got 'It is Rome.'"),
        ({"matches": "^[0-9]+$"}, "42", ""),
        ({"matches": "^[0-9]+$"}, "x" * 500, f"expected a text that matches '^[0-9]+$', got '{'x' * 117}...'"),
    ],
)
def test_answers_are_compared(check: dict[str, str], answer: str, mismatch: str) -> None:
    (prompt,) = parse([{"prompt": "x", **check}])
    assert prompt.find_mismatch(answer) == mismatch
