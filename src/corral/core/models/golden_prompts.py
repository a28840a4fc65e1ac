"""Golden prompts: requests of a model's configuration whose answers are known. A new version or revision must answer
them as expected before it replaces the one that serves."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.core.errors import CorralError, InvalidInput
from corral.core.models.config_schema import WrongValue

PROMPTS_MOST = 16
MESSAGES_MOST = 32
TEXT_MOST_CHARS = 16_384
EXPECTED_MOST_CHARS = 4_096
PATTERN_MOST_CHARS = 256
MATCHED_MOST_CHARS = 512
MAX_TOKENS_DEFAULT = 64
MAX_TOKENS_MOST = 1_024
SHOWN_CHARS = 120
ROLES = ("system", "user", "assistant")
CHECKS = ("expect", "contains", "matches")
FIELDS = ("prompt", "messages", *CHECKS, "max_tokens")
_SLOW = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
"""A repeated group or a reference back: such a pattern can take exponential time."""
_REPETITION = re.compile(r"(?<!\\)(?:[*+]|\{\d*,)")
REPETITIONS_MOST = 2


class GoldenPromptFailed(CorralError):
    """The replica answered, and not as expected."""

    code = "golden_prompt_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPrompt:
    messages: tuple[tuple[str, str], ...]
    """Role and text."""
    expect: str | None = None
    contains: str | None = None
    matches: str | None = None
    max_tokens: int = MAX_TOKENS_DEFAULT

    def body(self, model: str) -> dict[str, Any]:
        """The request for `/v1/chat/completions`."""
        return {
            "model": model,
            "messages": [{"role": role, "content": text} for role, text in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": False,
        }

    def find_mismatch(self, answer: str) -> str:
        """What was expected and what came; empty if the answer fits. Space around the text does not count."""
        text = answer.strip()
        if self.expect is not None and text != self.expect.strip():
            return f"expected {shorten(self.expect)}, got {shorten(text)}"
        if self.contains is not None and self.contains not in text:
            return f"expected a text with {shorten(self.contains)}, got {shorten(text)}"
        if self.matches is not None and not re.search(self.matches, text[:MATCHED_MOST_CHARS]):
            return f"expected a text that matches {shorten(self.matches)}, got {shorten(text)}"
        return ""


def shorten(text: str) -> str:
    plain = " ".join(text.split())
    return repr(plain if len(plain) <= SHOWN_CHARS else f"{plain[: SHOWN_CHARS - 3]}...")


def parse_golden_prompts(value: Any) -> tuple[GoldenPrompt, ...]:
    """Raises InvalidInput that names the entry and the field."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidInput("golden_prompts must be a list of maps, each with a prompt and what its answer must be")
    if len(value) > PROMPTS_MOST:
        raise InvalidInput(f"golden_prompts has {len(value)} entries; {PROMPTS_MOST} are the most")
    found = []
    for at, item in enumerate(value):
        try:
            found.append(_parse(item))
        except WrongValue as wrong:
            raise InvalidInput(f"golden_prompts[{at}] {wrong}") from None
    return tuple(found)


def _parse(item: Any) -> GoldenPrompt:
    if not isinstance(item, Mapping):
        raise WrongValue("must be a map, such as {prompt: What is 2 + 2?, contains: '4'}")
    unknown = [key for key in item if key not in FIELDS]
    if unknown:
        raise WrongValue(f"has an unknown field {str(unknown[0])[:80]!r}; known are {', '.join(FIELDS)}")
    checks = [name for name in CHECKS if item.get(name) is not None]
    if len(checks) != 1:
        raise WrongValue(f"needs exactly one of {', '.join(CHECKS)}, and has {' and '.join(checks) or 'none'}")
    check = checks[0]
    limit = PATTERN_MOST_CHARS if check == "matches" else EXPECTED_MOST_CHARS
    expected = _text(item[check], check, most=limit)
    if check == "matches":
        _check_pattern(expected)
    return GoldenPrompt(messages=_messages(item), max_tokens=_max_tokens(item), **{check: expected})


def _messages(item: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    prompt, messages = item.get("prompt"), item.get("messages")
    if (prompt is None) == (messages is None):
        raise WrongValue("needs either a prompt or messages")
    if prompt is not None:
        return (("user", _text(prompt, "prompt", most=TEXT_MOST_CHARS)),)
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not 1 <= len(messages) <= MESSAGES_MOST:
        raise WrongValue(f"must have 1 to {MESSAGES_MOST} messages, each with role and content")
    found = []
    for message in messages:
        if not isinstance(message, Mapping) or set(message) != {"role", "content"} or message["role"] not in ROLES:
            raise WrongValue(f"must have messages with role ({', '.join(ROLES)}) and content, and nothing else")
        found.append((str(message["role"]), _text(message["content"], "content", most=TEXT_MOST_CHARS)))
    return tuple(found)


def _text(value: Any, name: str, *, most: int) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)  # YAML reads 4 as a number
    if not isinstance(value, str) or not value.strip():
        raise WrongValue(f"must have a text as {name}")
    if len(value) > most:
        raise WrongValue(f"has a text of {len(value)} characters as {name}; {most} are the most")
    return value


def _max_tokens(item: Mapping[str, Any]) -> int:
    value = item.get("max_tokens")
    if value is None:
        return MAX_TOKENS_DEFAULT
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS_MOST:
        raise WrongValue(f"must have a whole number from 1 to {MAX_TOKENS_MOST} as max_tokens")
    return value


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise WrongValue(f"has an invalid regular expression as matches: {error}") from None
    if _SLOW.search(pattern) or len(_REPETITION.findall(pattern)) > REPETITIONS_MOST:
        raise WrongValue(
            f"has a regular expression as matches that can take very long: it may have {REPETITIONS_MOST} repetitions"
            " (*, +, {1,}), no repeated group and no reference back"
        )
