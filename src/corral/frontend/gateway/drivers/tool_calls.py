"""Finds tool calls in a model's text if the backend does not, by the `function` part of the configuration."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig

_TAGGED = r"(?s)<tool_call>(.*?)</tool_call>"
TEXT_MAX_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundCalls:
    content: str
    calls: list[dict[str, Any]]


def find_tool_calls(config: ModelConfig, text: str) -> FoundCalls:
    """The tool calls, or the text unchanged if it contains none."""
    settings = config.document.get("function") or {}
    if len(text) > TEXT_MAX_CHARS:
        return FoundCalls(text, [])
    try:
        content = _replaced(text, settings.get("replace_llm_results"))
        written = "\n".join(_candidates(content, settings))
        calls = _read_calls(_replaced(written, settings.get("replace_function_results")), settings)
    except (re.error, IndexError) as error:
        raise InvalidInput(f"the configuration of {config.name!r} has an invalid pattern: {error}") from error
    return FoundCalls("" if calls else content, calls)


def _replaced(text: str, rules: Any) -> str:
    """Applies replacement rules. Go writes a group as `${1}` or `$1`."""
    for rule in rules if isinstance(rules, list) else []:
        if isinstance(rule, Mapping) and isinstance(rule.get("key"), str):
            value = str(rule.get("value") or "").replace("\\", "\\\\")
            text = re.sub(rule["key"], re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", value), text)
    return text


def _candidates(text: str, settings: Mapping[str, Any]) -> list[str]:
    """Texts that may be calls: matches of the configured patterns, else texts tagged as calls, else the whole text."""
    patterns = settings.get("json_regex_match")
    for pattern in [*(str(item) for item in (patterns if isinstance(patterns, list) else [])), _TAGGED]:
        found = [match[1] if match.re.groups else match[0] for match in re.finditer(pattern, text)]
        if found:
            return found
    return [text]


def _read_calls(text: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = settings.get("grammar")
    grammar = given if isinstance(given, Mapping) else {}
    name_key = settings.get("function_name_key") or grammar.get("function_name_key") or "name"
    arguments_key = settings.get("function_arguments_key") or grammar.get("function_arguments_key") or "arguments"
    calls: list[dict[str, Any]] = []
    for item in _json_values(text):
        for entry in item if isinstance(item, list) else [item]:
            name = entry.get(name_key) if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name:
                return []
            arguments = entry.get(arguments_key, entry.get("parameters", {}))
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            function = {"name": name, "arguments": written}
            calls.append({"id": f"call_{len(calls)}", "type": "function", "function": function})
    return calls


def _json_values(text: str) -> Iterator[Any]:
    """JSON values that follow one another. None if there is any other text between them."""
    decoder = json.JSONDecoder()
    at = 0
    found = []
    while True:
        at = re.compile(r"[\s,;]*").match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text):
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        found.append(value)
    yield from found
