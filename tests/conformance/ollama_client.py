"""Ollama's own Python client, as its users have it. Run as a program: URL KEY MODEL FEATURE...

Prints one `ok NAME` for each check, as `client.py` does.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import ollama

url, key, model, *features = sys.argv[1:]
client = ollama.Client(host=url, headers={"Authorization": f"Bearer {key}"}, timeout=120)
HORSE = [{"role": "user", "content": "Name one colour of a horse."}]
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FEW = {"num_predict": 16, "temperature": 0}


def models_are_listed_and_shown() -> None:
    assert model in {item.model for item in client.list().models}
    assert client.show(model).capabilities


def chat_is_answered() -> None:
    answer = client.chat(model, HORSE, options=FEW)
    assert answer.message.content
    assert (answer.done, answer.done_reason in ("stop", "length")) == (True, True)
    assert answer.eval_count
    assert answer.total_duration
    assert (answer.eval_duration or 0) > 0
    assert (answer.prompt_eval_duration or 0) > 0


def chat_is_streamed() -> None:
    parts = list(client.chat(model, HORSE, options=FEW, stream=True))
    assert "".join(part.message.content or "" for part in parts)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].eval_duration or 0) > 0


def text_is_generated() -> None:
    assert client.generate(model, "A horse is", options=FEW).response
    assert client.generate(model).done_reason == "load"
    assert model in {item.model for item in client.ps().models}


def an_unknown_model_is_not_found() -> None:
    status = 0
    try:
        client.chat(f"{model}x", HORSE)
    except ollama.ResponseError as error:
        status = error.status_code
    assert status == 404


def tools_are_called() -> None:
    asked: Any = [{"role": "user", "content": "tool"}]
    (call,) = client.chat(model, asked, tools=TOOLS).message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Paris"})
    streamed = [part.message.tool_calls or () for part in client.chat(model, asked, tools=TOOLS, stream=True)]
    assert [one.function.name for calls in streamed for one in calls] == ["weather"]


def a_tool_call_may_be_cut() -> None:
    asked: Any = [{"role": "user", "content": "cut"}]
    answer = client.chat(model, asked, tools=TOOLS)
    assert (answer.done_reason, answer.message.tool_calls) == ("length", None)
    *_, last = client.chat(model, asked, tools=TOOLS, stream=True)
    assert last.done_reason == "length"


def thoughts_are_told() -> None:
    answer = client.chat(model, [{"role": "user", "content": "think"}], think=True)
    assert (answer.message.thinking, bool(answer.message.content)) == ("hmm", True)


def a_model_is_stopped() -> None:
    assert client.generate(model, keep_alive=0).done_reason == "unload"


def texts_are_embedded() -> None:
    short, long = client.embed(model, ["abc", "abcde"]).embeddings
    assert (short[0], long[0]) == (3.0, 5.0)


def images_are_sent() -> None:
    asked: Any = [{"role": "user", "content": "Look.", "images": [PNG]}]
    assert f"data:image/png;base64,{PNG}" in (client.chat(model, asked).message.content or "")


def a_schema_is_kept() -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["bay", "grey"]}}, "required": ["colour"]}
    answer = client.chat(model, HORSE, format=schema, options={"num_predict": 64, "temperature": 0})
    assert json.loads(answer.message.content or "")["colour"] in ("bay", "grey")


def models_are_pulled_and_deleted() -> None:
    """With an admin key; `model` is one that a gallery offers."""
    steps = list(client.pull(model, stream=True))
    assert steps[-1].status == "success", steps
    assert client.pull(f"{model}:latest").status == "success"
    assert model in {item.model for item in client.ps().models}
    assert client.delete(model).status == "success"
    assert model not in {item.model for item in client.list().models}
    refused: list[ollama.ResponseError] = []
    for request in (client.delete, client.pull):
        try:
            request(f"{model}-unknown")
        except ollama.ResponseError as error:
            refused.append(error)
    assert [(error.status_code, model in error.error) for error in refused] == [(404, True)] * 2, refused


CHECKS: dict[str, tuple[Callable[[], None], ...]] = {
    "chat": (
        models_are_listed_and_shown,
        chat_is_answered,
        chat_is_streamed,
        text_is_generated,
        an_unknown_model_is_not_found,
    ),
    "tools": (tools_are_called,),
    "thinking": (thoughts_are_told,),
    "cut": (a_tool_call_may_be_cut,),
    "stop": (a_model_is_stopped,),
    "embeddings": (texts_are_embedded,),
    "vision": (images_are_sent,),
    "structured": (a_schema_is_kept,),
    "pull": (models_are_pulled_and_deleted,),
}
for feature in features:
    for check in CHECKS[feature]:
        check()
        print("ok", check.__name__, flush=True)
