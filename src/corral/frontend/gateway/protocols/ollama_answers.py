"""Makes Ollama's answers and its lines of a stream of a replica's answers in OpenAI's form."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.protocols.chat_answers import (
    AnswerChoice,
    ChatAnswer,
    StreamedCalls,
    Timings,
    read_arguments,
    read_chat_answer,
)
from corral.frontend.gateway.protocols.translation import CallFacts, InvalidAnswer
from corral.system.json import decode_json

NANOSECONDS = 1_000_000_000

PROMPT_SPEED = 16
"""How many tokens of a prompt take as long as one of the answer: the usual order of magnitude."""


def _nanoseconds(seconds: float) -> int:
    """Clients divide by durations, so none is 0."""
    return max(1, int(seconds * NANOSECONDS))


def format_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class OllamaAnswer:
    stream_type = b"application/x-ndjson"

    def __init__(self, model: str, facts: CallFacts, *, is_chat: bool, only_loads: bool) -> None:
        """`only_loads`: the request had no prompt; the client wants to know that the model is loaded."""
        self.tokens = (0, 0)
        self._model, self._facts, self._is_chat, self._only_loads = model, facts, is_chat, only_loads
        self._first_s = 0.0
        self._timings: Timings | None = None
        self._calls = StreamedCalls()
        self._reason = "stop"

    def _line(self, text: str, thought: str = "", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        said: dict[str, Any] = {"thinking": thought} if thought else {}
        if calls:
            said["tool_calls"] = calls
        head = {"model": self._model, "created_at": format_time(self._facts.now_ms)}
        if self._is_chat:
            return {**head, "message": {"role": "assistant", "content": text, **said}, "done": False}
        return {**head, "response": text, **said, "done": False}

    def _ending(self, now_s: float) -> dict[str, Any]:
        facts = self._facts
        prompt_s, eval_s = self._durations(now_s)
        return {
            "done": True,
            "done_reason": "load" if self._only_loads else self._reason,
            "total_duration": _nanoseconds(now_s - facts.now_s),
            "load_duration": int(facts.load_s * NANOSECONDS),
            "prompt_eval_count": self.tokens[0],
            "prompt_eval_duration": _nanoseconds(prompt_s),
            "eval_count": self.tokens[1],
            "eval_duration": _nanoseconds(eval_s),
        }

    def _durations(self, now_s: float) -> tuple[float, float]:
        """Of the prompt and of the answer: from the engine, or when the first token came, or estimated."""
        facts, timings = self._facts, self._timings
        if timings is not None and timings.predicted_ms > 0:
            return timings.prompt_ms / 1000, timings.predicted_ms / 1000
        began_s = facts.now_s + facts.load_s
        if self._first_s:
            return self._first_s - began_s, now_s - self._first_s
        tokens_in, tokens_out = self.tokens
        prompt_share = tokens_in / PROMPT_SPEED
        elapsed_s = now_s - began_s
        eval_s = elapsed_s * tokens_out / ((prompt_share + tokens_out) or 1)
        return elapsed_s - eval_s, eval_s

    def whole(self, data: bytes, now_s: float) -> bytes:
        answer = read_chat_answer(data)
        self.tokens, self._timings = answer.tokens, answer.timings
        message = answer.choice.message
        self._follow(answer.choice)
        for call in message.tool_calls or ():
            self._calls.add(call)
        said = self._line("") if self._only_loads else self._line(message.text, message.thought, self._whole_calls())
        return msgspec.json.encode({**said, **self._ending(now_s)})

    def _follow(self, choice: AnswerChoice) -> None:
        if choice.finish_reason:
            self._reason = "length" if choice.finish_reason == "length" else "stop"

    def _whole_calls(self) -> list[dict[str, Any]]:
        """Ollama sends calls only whole. One that the limit of tokens has cut is left out."""
        found: list[dict[str, Any]] = []
        for call in self._calls.calls:
            given = read_arguments(call.name, call.arguments, is_cut=self._reason == "length")
            if given is not None:
                function = {"function": {"name": call.name, "arguments": given}}
                found.append({"id": call.id, **function} if call.id else function)
        return found

    def event(self, data: bytes, now_s: float) -> bytes:
        chunk: ChatAnswer = read_chat_answer(data)
        self._first_s = self._first_s or now_s
        self._timings = chunk.timings or self._timings
        if chunk.usage is not None:
            self.tokens = chunk.tokens
        if not chunk.choices:
            return b""
        choice = chunk.choices[0]
        self._follow(choice)
        delta = choice.delta
        if delta is None:
            return b""
        for call in delta.tool_calls or ():
            self._calls.add(call)
        if self._only_loads or not (delta.text or delta.thought):
            return b""
        return msgspec.json.encode(self._line(delta.text, delta.thought)) + b"\n"

    def end(self, now_s: float) -> bytes:
        out = b""
        calls = [] if self._only_loads else self._whole_calls()
        if calls:
            out = msgspec.json.encode(self._line("", calls=calls)) + b"\n"
        return out + msgspec.json.encode({**self._line(""), **self._ending(now_s)}) + b"\n"

    def error(self, error: ErrorResponse) -> bytes:
        return b""


class _Vector(msgspec.Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _EmbeddingUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None


class _Embeddings(msgspec.Struct, frozen=True):
    data: list[_Vector]
    usage: _EmbeddingUsage | None = None


class EmbedAnswer:
    stream_type = b"application/x-ndjson"

    def __init__(self, model: str, facts: CallFacts, *, is_single: bool) -> None:
        """`is_single`: the form of `/api/embeddings`, which has one vector."""
        self.tokens = (0, 0)
        self._model, self._facts, self._is_single = model, facts, is_single

    def whole(self, data: bytes, now_s: float) -> bytes:
        try:
            found = decode_json(data, _Embeddings)
        except msgspec.DecodeError as error:
            raise InvalidAnswer(f"the replica's answer is not one of embeddings: {error}") from None
        self.tokens = ((found.usage.prompt_tokens or 0) if found.usage else 0, 0)
        vectors = [vector.embedding for vector in sorted(found.data, key=lambda vector: vector.index)]
        if self._is_single:
            return msgspec.json.encode({"embedding": vectors[0] if vectors else []})
        facts = self._facts
        return msgspec.json.encode(
            {
                "model": self._model,
                "embeddings": vectors,
                "total_duration": _nanoseconds(now_s - facts.now_s),
                "load_duration": int(facts.load_s * NANOSECONDS),
                "prompt_eval_count": self.tokens[0],
            }
        )

    def event(self, data: bytes, now_s: float) -> bytes:
        raise InvalidAnswer("the replica streamed an answer that should be complete")

    def end(self, now_s: float) -> bytes:
        return b""

    def error(self, error: ErrorResponse) -> bytes:
        return b""
