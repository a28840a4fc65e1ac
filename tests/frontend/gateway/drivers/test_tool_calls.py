"""Tool calls that are found in a model's text."""

from typing import Any

import pytest

from corral.core.errors import InvalidInput
from corral.core.models.config import parse_model_config
from corral.frontend.gateway.drivers.tool_calls import FoundCalls, find_tool_calls


def call(index: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


def find(text: str, **function: Any) -> FoundCalls:
    return find_tool_calls(parse_model_config({"name": "m", "function": function}), text)


PARIS = call(0, "weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("text", "function", "expected"),
    [
        pytest.param('{"name": "weather", "arguments": {"city": "Paris"}}', {}, [PARIS], id="plain"),
        pytest.param(' [{"name": "weather", "parameters": {"city": "Paris"}}]\n', {}, [PARIS], id="a-list"),
        pytest.param(
            '{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}', {}, [PARIS], id="arguments-as-text"
        ),
        pytest.param(
            'Sure.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
            '<tool_call>{"name": "b", "arguments": {}}</tool_call>',
            {},
            [PARIS, call(1, "b", "{}")],
            id="tagged",
        ),
        pytest.param(
            'thinking [CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}] more',
            {
                "json_regex_match": [r"(?s)\[CALLS\](.*)"],
                "replace_function_results": [{"key": r"(?s)^[^{\[]*", "value": ""}, {"key": r"(?s)[^}\]]*$"}],
            },
            [PARIS],
            id="by-pattern",
        ),
        pytest.param(
            "{'name': 'weather', 'arguments': {'city': 'Paris'}}",
            {"replace_function_results": [{"key": "'([^']*?)'", "value": '"${1}"'}]},
            [PARIS],
            id="groups-as-go-writes-them",
        ),
        pytest.param(
            '{"function": "weather", "args": {"city": "Paris"}}',
            {"function_name_key": "function", "function_arguments_key": "args"},
            [PARIS],
            id="other-keys",
        ),
        pytest.param('{"a": 1}', {}, [], id="json-that-is-no-call"),
        pytest.param("It is sunny.", {}, [], id="no-json"),
        pytest.param('{"name": "weather"} is what I would say', {}, [], id="a-call-inside-of-text-is-text"),
    ],
)
def test_calls_are_found_as_the_configuration_says(
    text: str, function: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    found = find(text, **function)
    assert found.calls == expected
    assert found.content == ("" if expected else text)


def test_reasoning_can_be_removed_from_the_text() -> None:
    rules = [{"key": "(?s)<Thought>(.*?)</Thought>", "value": ""}]
    assert find("<Thought>hm</Thought>yes", replace_llm_results=rules) == FoundCalls("yes", [])


def test_a_pattern_that_cannot_be_used_is_named() -> None:
    with pytest.raises(InvalidInput, match="the configuration of 'm' has an invalid pattern"):
        find("x", json_regex_match=["("])
