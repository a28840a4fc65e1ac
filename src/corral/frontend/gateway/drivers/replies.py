"""Translates a LocalAI backend's replies into OpenAI's answers."""

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig


@dataclass(slots=True)
class Tokens:
    prompt: int = 0
    completion: int = 0

    def update(self, reply: Mapping[str, Any]) -> None:
        """Takes the counts of a reply. In a stream they are cumulative, and not in every reply."""
        self.prompt = max(self.prompt, reply.get("prompt_tokens", 0))
        self.completion = max(self.completion, reply.get("tokens", 0))

    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


@dataclass(slots=True)
class Delta:
    """What one reply adds to the answer."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: Any = None

    @property
    def empty(self) -> bool:
        return not (self.content or self.reasoning or self.tool_calls or self.logprobs)

    def as_message(self) -> dict[str, Any]:
        message: dict[str, Any] = {}
        if self.content:
            message["content"] = self.content
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


class ReplyReader:
    """Reads the replies of one answer. A character's bytes may be split between two replies."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.tokens = Tokens()
        self._calls: set[int] = set()
        self.called = False

    def read(self, reply: Mapping[str, Any], *, last: bool = False) -> Delta:
        self.tokens.update(reply)
        delta = Delta(logprobs=_logprobs(reply.get("logprobs")))
        deltas = reply.get("chat_deltas") or []
        if deltas:
            delta.content = "".join(item.get("content", "") for item in deltas)
            delta.reasoning = "".join(item.get("reasoning_content", "") for item in deltas)
            delta.tool_calls = [self._call(call) for item in deltas for call in item.get("tool_calls") or []]
        else:
            delta.content = self._decoder.decode(reply.get("message", b""), last)
        return delta

    def end(self) -> str:
        return self._decoder.decode(b"", True)

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        self.called = True
        index = call.get("index", 0)
        function: dict[str, Any] = {"arguments": call.get("arguments", "")}
        if call.get("name"):
            function["name"] = call["name"]
        found: dict[str, Any] = {"index": index, "function": function}
        if index not in self._calls:
            self._calls.add(index)
            found["type"] = "function"
            found["id"] = call.get("id") or f"call_{index}"
        elif call.get("id"):
            found["id"] = call["id"]
        return found


def _logprobs(data: bytes | None) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None


def merge_calls(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete tool calls, from their pieces."""
    calls: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        call = calls.setdefault(
            piece["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = piece.get("id") or call["id"]
        call["function"]["name"] += piece["function"].get("name", "")
        call["function"]["arguments"] += piece["function"].get("arguments", "")
    return [calls[index] for index in sorted(calls)]


def finish_reason(*, called: bool, tokens: Tokens, max_tokens: int) -> str:
    if called:
        return "tool_calls"
    return "length" if max_tokens and tokens.completion >= max_tokens else "stop"


def finetune(config: ModelConfig, text: str) -> str:
    """Applies the configuration's rules for complete answers: cut, extract and trim."""
    try:
        for pattern in config.cutstrings:
            text = re.sub(pattern, "", text)
        for pattern in config.extract_regex:
            found = re.search(pattern, text)
            text = found[0] if found else text
    except re.error as error:
        raise InvalidInput(f"the configuration of {config.name!r} has an invalid pattern: {error}") from error
    for prefix in config.trimspace:
        text = text.removeprefix(prefix).strip()
    for suffix in config.trimsuffix:
        text = text.removesuffix(suffix).strip()
    return text
