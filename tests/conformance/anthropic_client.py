"""Anthropic's own Python client, as its users have it. Run as a program: URL KEY MODEL FEATURE...

Prints one `ok NAME` for each check, as `client.py` does.
"""

import sys
from collections.abc import Callable
from typing import Any

import anthropic

url, key, model, *features = sys.argv[1:]
client = anthropic.Anthropic(base_url=url, api_key=key, timeout=120, max_retries=0)
HORSE: Any = [{"role": "user", "content": "Name one colour of a horse."}]
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL: Any = [{"role": "user", "content": "tool"}]


def models_are_listed() -> None:
    found = {item.id: item for item in client.models.list()}
    assert found[model].type == "model"
    assert client.models.retrieve(model).id == model


def a_message_is_answered() -> None:
    answer = client.messages.create(model=model, messages=HORSE, max_tokens=16, system="You know horses.")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", model)
    assert answer.content[0].type == "text"
    assert answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0


def a_message_is_streamed() -> None:
    with client.messages.stream(model=model, messages=HORSE, max_tokens=16) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text
    assert final.content[0].type == "text"
    assert final.content[0].text == text
    assert final.stop_reason in ("end_turn", "max_tokens")
    assert final.usage.output_tokens > 0


def tokens_are_counted() -> None:
    short = client.messages.count_tokens(model=model, messages=HORSE)
    assert short.input_tokens > 0


def wrong_input_and_keys_are_refused() -> None:
    refused: list[anthropic.APIStatusError] = []
    requests: tuple[Callable[[], object], ...] = (
        lambda: client.messages.create(model=f"{model}x", messages=HORSE, max_tokens=1),
        lambda: client.post("/v1/messages", body={"model": model, "max_tokens": 1}, cast_to=object),
        lambda: client.with_options(api_key="wrong").messages.create(model=model, messages=HORSE, max_tokens=1),
    )
    for request in requests:
        try:
            request()
        except anthropic.APIStatusError as error:
            refused.append(error)
    kinds = [type(error) for error in refused]
    assert kinds == [anthropic.NotFoundError, anthropic.BadRequestError, anthropic.AuthenticationError], refused
    assert all(isinstance(error.body, dict) and error.body["type"] == "error" for error in refused), refused


def tools_are_called() -> None:
    answer = client.messages.create(model=model, messages=TOOL, max_tokens=16, tools=TOOLS)
    assert answer.stop_reason == "tool_use"
    call = answer.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {"city": "Paris"})
    with client.messages.stream(model=model, messages=TOOL, max_tokens=16, tools=TOOLS) as stream:
        streamed = stream.get_final_message().content[-1]
    assert streamed.type == "tool_use"
    assert streamed.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    asked = {"role": "assistant", "content": [call.model_dump()]}
    messages = [*TOOL, asked, {"role": "user", "content": [result]}]
    followed = client.messages.create(model=model, messages=messages, max_tokens=16, tools=TOOLS)
    assert followed.content[0].type == "text"
    assert "sunny" in followed.content[0].text


def images_are_sent() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "Look."}]
    asked: Any = [{"role": "user", "content": content}]
    (block,) = client.messages.create(model=model, messages=asked, max_tokens=16).content
    assert block.type == "text"
    assert f"data:image/png;base64,{PNG}" in block.text


def thoughts_are_told() -> None:
    asked: Any = [{"role": "user", "content": "think"}]
    limits: Any = {"max_tokens": 2048, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    thought, text = client.messages.create(model=model, messages=asked, **limits).content
    assert (thought.type, text.type) == ("thinking", "text")
    assert thought.type == "thinking"
    assert thought.thinking
    with client.messages.stream(model=model, messages=asked, **limits) as stream:
        streamed = stream.get_final_message().content
    assert [block.type for block in streamed] == ["thinking", "text"]
    assert streamed[0].type == "thinking"
    assert streamed[0].thinking == thought.thinking
    followed = [*asked, {"role": "assistant", "content": [thought.model_dump(), text.model_dump()]}, *HORSE]
    assert client.messages.create(model=model, messages=followed, **limits).content


def a_tool_call_may_be_cut() -> None:
    asked: Any = [{"role": "user", "content": "cut"}]
    answer = client.messages.create(model=model, messages=asked, max_tokens=16, tools=TOOLS)
    assert answer.stop_reason == "max_tokens"
    assert not [block for block in answer.content if block.type == "tool_use"]
    with client.messages.stream(model=model, messages=asked, max_tokens=16, tools=TOOLS) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"


def tools_give_images() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "image", "source": source}]}
    asked: Any = [*TOOL, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    (block,) = client.messages.create(model=model, messages=asked, max_tokens=16, tools=TOOLS).content
    assert block.type == "text"
    assert f"data:image/png;base64,{PNG}" in block.text


CHECKS: dict[str, tuple[Callable[[], None], ...]] = {
    "messages": (
        models_are_listed,
        a_message_is_answered,
        a_message_is_streamed,
        tokens_are_counted,
        wrong_input_and_keys_are_refused,
    ),
    "tools": (tools_are_called,),
    "vision": (images_are_sent,),
    "thinking": (thoughts_are_told,),
    "cut": (a_tool_call_may_be_cut,),
    "tool_images": (tools_give_images,),
}
for feature in features:
    for check in CHECKS[feature]:
        check()
        print("ok", check.__name__, flush=True)
