"""One chat completion, streamed token by token."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from corral.cli.client.api import Api
from corral.cli.program_name import command
from corral.core.errors import CorralError, NotFound, OutcomeUnknown, Unavailable
from corral.system import Clock
from corral.system.clock import pause
from corral.system.http_client import EventStream, Unreachable, error_of

Message = dict[str, Any]
SHOW_NODE = {"X-Corral-Client": "1"}
"""Asks the frontend to name the node that answered."""
NODE_HEADERS = ("x-corral-node-name", "x-corral-node", "x-localai-node")
SILENCE_S = 900.0
"""The longest silence: a model may read a very long prompt before its first token."""
RETRY_MAX_S = 15.0
HOLD_S = 2.0
"""How long the frontend holds a request for a model that is loading before it answers with the load's progress."""


@dataclass(slots=True)
class Answered:
    text: str = ""
    reasoning: str = ""
    node: str = ""
    request_id: str = ""
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    pieces: int = 0
    first_after_s: float | None = None
    took_s: float = 0.0
    stopped: bool = False
    """Whether the user stopped it before its end."""

    @property
    def tokens_per_s(self) -> float | None:
        """The generation speed. The time before the first token, in which the prompt is read, does not count."""
        tokens = self.usage.get("completion_tokens") or self.pieces
        if self.first_after_s is None or tokens < 2 or self.took_s <= self.first_after_s:
            return None
        return float(tokens - 1) / (self.took_s - self.first_after_s)


class Loading(Unavailable):
    """The model is loading; `what` is the progress."""

    def __init__(self, message: str, *, what: dict[str, Any], retry_after_s: float) -> None:
        super().__init__(message)
        self.what = what
        self.retry_after_s = retry_after_s


class NotLoaded(CorralError):
    """The model was not loaded within the user's waiting time."""

    code = "model_loading"


def ask(
    api: Api,
    clock: Clock,
    body: dict[str, Any],
    *,
    on_text: Callable[[str], None],
    on_reasoning: Callable[[str], None],
    on_node: Callable[[str], None] = lambda _name: None,
    load_wait_s: float | None = None,
) -> Answered:
    """Streams one answer. Ctrl-C stops it; the text so far is the answer. `on_node`: called before the first text."""
    headers = SHOW_NODE if load_wait_s is None else {**SHOW_NODE, "X-Corral-Load-Wait": str(math.ceil(load_wait_s))}
    began_s = clock.monotonic_s()
    answered = Answered()
    try:
        url = f"{api.url}/v1/chat/completions"
        with EventStream(
            url,
            bearer=api.key,
            body={**body, "stream": True},
            headers=headers,
            answer_within_s=SILENCE_S,
            silence_s=SILENCE_S,
        ) as events:
            if events.status != 200:
                raise api.explain(_read_rejection(events))
            answered.node = next((events.headers[name] for name in NODE_HEADERS if name in events.headers), "")
            answered.request_id = events.headers.get("x-request-id", "")
            on_node(answered.node)
            for chunk in _chunks(events):
                _take(answered, chunk, on_text, on_reasoning)
                if answered.pieces and answered.first_after_s is None:
                    answered.first_after_s = clock.monotonic_s() - began_s
    except Unreachable as error:
        raise api.explain(error) from error
    except KeyboardInterrupt:
        answered.stopped = True
    answered.took_s = clock.monotonic_s() - began_s
    return answered


def ask_when_loaded(
    attempt: Callable[[float], Answered], clock: Clock, *, within_s: float, on_loading: Callable[[Loading], None]
) -> Answered:
    """Repeats the request while the model is loading, for up to `within_s`. Each attempt gets the time for which the
    frontend may hold it; after an attempt that was held, the next follows without a pause."""
    deadline_s = clock.monotonic_s() + within_s
    while True:
        try:
            began_s = clock.monotonic_s()
            return attempt(min(HOLD_S, max(0.0, deadline_s - began_s)))
        except Loading as loading:
            now_s = clock.monotonic_s()
            pause_s = 0.0 if now_s - began_s >= HOLD_S / 2 else min(RETRY_MAX_S, loading.retry_after_s)
            if now_s + pause_s >= deadline_s:
                raise NotLoaded(f"{loading} (waited {within_s:.0f} s; the load continues)") from loading
            on_loading(loading)
            try:
                pause(pause_s)
            except KeyboardInterrupt:
                return Answered(stopped=True)


def _read_rejection(events: EventStream) -> CorralError:
    try:
        answer = json.loads(events.read() or b"null")
    except ValueError:
        return Unavailable(
            f"the server does not answer like a Corral frontend (status {events.status}); check the address"
        )
    error = _in_commands(error_of(events.status, answer))
    loading = answer.get("loading") if isinstance(answer, dict) else None
    if events.status == 503 and isinstance(loading, dict) and loading.get("state") != "failed":
        after = events.headers.get("retry-after", "5")
        return Loading(str(error), what=loading, retry_after_s=float(after) if after.isdigit() else 5.0)
    return error


def _in_commands(error: CorralError) -> CorralError:
    """Replaces an API route in the advice by the command that does the same."""
    if not isinstance(error, NotFound):
        return error
    return NotFound(str(error).replace("GET /v1/models lists", f"`{command('models list')}` lists"))


def _chunks(events: EventStream) -> Iterator[dict[str, Any]]:
    for event in events:
        if event.data == "[DONE]":
            return
        chunk = event.decode()
        if isinstance(chunk, dict):
            if chunk.get("error"):
                raise error_of(502, chunk)
            yield chunk
    raise OutcomeUnknown("the answer was cut off before its end")


def _take(
    answered: Answered, chunk: dict[str, Any], on_text: Callable[[str], None], on_reasoning: Callable[[str], None]
) -> None:
    answered.usage = chunk.get("usage") or answered.usage
    for choice in chunk.get("choices") or []:
        delta = choice.get("delta") or {}
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        text = delta.get("content") or ""
        if reasoning:
            answered.reasoning += reasoning
            on_reasoning(reasoning)
        if text:
            answered.text += text
            on_text(text)
        answered.pieces += bool(reasoning or text)
        answered.finish_reason = choice.get("finish_reason") or answered.finish_reason
