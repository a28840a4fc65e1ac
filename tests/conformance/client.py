"""OpenAI's own Python client, as its users have it. Run as a program: URL KEY MODEL FEATURE...

Prints one `ok NAME` for each check; the first that fails ends it with a traceback. `client.mjs` is the same for Node.
"""

import base64
import sys
from collections.abc import Callable
from typing import Any, Literal

import openai
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import BaseModel

url, key, model, *features = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, timeout=120, max_retries=0)
HORSE: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name one colour of a horse."}]
TOOLS: list[ChatCompletionToolUnionParam] = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CHECKS: dict[str, Callable[[], None]] = {}


def check(feature: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(function: Callable[[], None]) -> Callable[[], None]:
        if feature in features:
            CHECKS[function.__name__] = function
        return function

    return add


def fails(kind: type[openai.APIStatusError], request: Callable[[], object]) -> openai.APIStatusError:
    try:
        request()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@check("chat")
def models_are_listed() -> None:
    found = {item.id: item for item in client.models.list()}
    assert model in found, found
    assert found[model].object == "model"
    assert client.models.retrieve(model).id == model


@check("chat")
def chat_is_answered() -> None:
    answer = client.chat.completions.create(model=model, messages=HORSE, max_tokens=16, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.model == model
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


@check("chat")
def chat_is_streamed() -> None:
    stream = client.chat.completions.create(
        model=model, messages=HORSE, max_tokens=16, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    text, reasons, usage = "", [], None
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert text
    assert reasons in (["stop"], ["length"])
    assert usage is not None
    assert usage.completion_tokens > 0


@check("chat")
def a_stream_can_be_left() -> None:
    stream = client.chat.completions.create(model=model, messages=HORSE, max_tokens=64, stream=True)
    for _chunk in stream:
        break
    stream.close()
    chat_is_answered()


@check("echo")
def every_character_arrives() -> None:
    said = "gr\u00fc\u00df dich \U0001f40e"
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": said}]
    whole = client.chat.completions.create(model=model, messages=messages)
    assert (whole.choices[0].message.content or "").endswith(said)
    stream = client.chat.completions.create(model=model, messages=messages, stream=True)
    text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
    assert text == whole.choices[0].message.content


@check("chat")
def tools_can_be_offered() -> None:
    """Whether one is called is the model's choice."""
    answer = client.chat.completions.create(model=model, messages=HORSE, tools=TOOLS, max_tokens=8, temperature=0)
    message = answer.choices[0].message
    assert message.content or message.tool_calls


@check("tools")
def tools_are_called() -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "tool"}]
    answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    call = (choice.message.tool_calls or [])[0]
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')
    assert call.id
    with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as stream:
        final = stream.get_final_completion()
    call = (final.choices[0].message.tool_calls or [])[0]
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')
    asked: Any = choice.message.model_dump(exclude_none=True)
    messages += [asked, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    followed = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    assert "sunny" in (followed.choices[0].message.content or "")


@check("chat")
def text_is_completed() -> None:
    answer = client.completions.create(model=model, prompt="A horse is", max_tokens=8, temperature=0)
    assert answer.object == "text_completion"
    assert answer.choices[0].text


@check("responses")
def a_response_is_given() -> None:
    answer = client.responses.create(model=model, input="Name one colour of a horse.", max_output_tokens=16)
    assert answer.object == "response"
    assert answer.output_text
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0


@check("responses")
def a_response_is_streamed() -> None:
    with client.responses.stream(model=model, input="Name one colour of a horse.", max_output_tokens=16) as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert {"response.output_item.added", "response.output_text.delta", "response.output_item.done"} <= {*kinds}


@check("response_tools")
def a_response_calls_tools() -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    answer = client.responses.create(model=model, input="tool", tools=[tool])
    (call,) = answer.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("weather", '{"city": "Paris"}')
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    said: Any = [{"role": "user", "content": "tool"}, call.model_dump(exclude_none=True), result]
    assert "sunny" in client.responses.create(model=model, input=said, tools=[tool]).output_text


@check("response_cut")
def a_responses_tool_call_may_be_cut() -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    answer = client.responses.create(model=model, input="cut", tools=[tool])
    (call,) = answer.output
    assert call.type == "function_call"
    assert (answer.status, call.status) == ("incomplete", "incomplete")
    *_, last = client.responses.create(model=model, input="cut", tools=[tool], stream=True)
    assert last.type == "response.incomplete"


@check("tool_images")
def tools_give_images() -> None:
    image = f"data:image/png;base64,{PNG}"
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "see", "arguments": "{}"}
    parts: Any = [{"type": "input_image", "image_url": image}]
    result: Any = {"type": "function_call_output", "call_id": "call_1", "output": parts}
    said: Any = [{"role": "user", "content": "Look."}, call, result]
    assert image in client.responses.create(model=model, input=said).output_text


@check("vision")
def images_are_sent() -> None:
    image = f"data:image/png;base64,{PNG}"
    content: Any = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": image}}]
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": content}])
    assert image in (answer.choices[0].message.content or "")
    parts: Any = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": image}]
    assert image in client.responses.create(model=model, input=[{"role": "user", "content": parts}]).output_text


class Horse(BaseModel):
    colour: Literal["bay", "grey"]


@check("structured")
def a_schema_is_kept() -> None:
    few: Any = {"temperature": 0, "max_tokens": 64}
    answer = client.chat.completions.parse(model=model, messages=HORSE, response_format=Horse, **few)
    assert isinstance(answer.choices[0].message.parsed, Horse)
    parsed = client.responses.parse(
        model=model, input="Name one colour of a horse.", text_format=Horse, max_output_tokens=64, temperature=0
    )
    assert isinstance(parsed.output_parsed, Horse)


@check("embeddings")
def texts_are_embedded() -> None:
    answer = client.embeddings.create(model=model, input=["abc", "abcde"])
    assert [item.index for item in answer.data] == [0, 1]
    assert answer.data[0].embedding[:2] == [3.0, 0.5]
    assert answer.data[1].embedding[0] == 5.0
    assert answer.usage.total_tokens > 0


@check("vectors")
def texts_become_vectors() -> None:
    answer = client.embeddings.create(model=model, input=["a horse", "a mare"])
    horse, mare = (item.embedding for item in answer.data)
    assert len(horse) == len(mare) > 100
    assert horse != mare
    assert answer.usage.total_tokens > 0


@check("chat")
def an_unknown_model_is_not_found_and_near_names_are_told() -> None:
    error = fails(openai.NotFoundError, lambda: client.chat.completions.create(model=f"{model}x", messages=HORSE))
    assert error.status_code == 404
    assert model in error.message
    assert error.code == "model_not_found"


@check("chat")
def a_wrong_key_is_refused() -> None:
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="not-a-key", max_retries=0)
    error = fails(openai.AuthenticationError, lambda: stranger.chat.completions.create(model=model, messages=HORSE))
    assert error.status_code == 401


@check("chat")
def wrong_input_is_refused() -> None:
    wrong = {"model": model, "messages": "not a list"}
    error = fails(openai.BadRequestError, lambda: client.post("/chat/completions", body=wrong, cast_to=object))
    assert error.status_code == 400
    assert error.message


@check("errors")
def a_failing_backend_is_an_error() -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "fail"}]
    error = fails(openai.InternalServerError, lambda: client.chat.completions.create(model=model, messages=messages))
    assert "fell over" in error.message


@check("chat")
def a_time_out_is_the_clients_own_and_harms_nobody() -> None:
    hasty = client.with_options(timeout=0.5)
    long: dict[str, Any] = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    try:
        hasty.chat.completions.create(model=model, messages=[{"role": "user", "content": "hang"}], **long)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("it did not time out")
    chat_is_answered()


@check("media")
def sound_and_pictures_pass() -> None:
    heard = client.audio.transcriptions.create(model=model, file=("a.wav", b"spoken words"))
    assert heard.text == "spoken words"
    spoken = client.audio.speech.create(model=model, input="hello", voice="ann", response_format="wav")
    assert spoken.read() == b"RIFFann:hello"
    drawn = client.images.generate(model=model, prompt="a horse", size="256x256", response_format="b64_json")
    assert base64.b64decode((drawn.data or [])[0].b64_json or "").startswith(b"\x89PNG")


for name, run in CHECKS.items():
    run()
    print("ok", name, flush=True)
