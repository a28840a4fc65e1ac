"""OpenAI's own client and `/v1/responses`: translated for an engine of chat completions, relayed to one that has it."""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import openai
import pydantic
import pytest

from harness.gateway import KEY, Answering, Replica, RunningGateway

Start = Callable[..., Coroutine[Any, Any, Replica]]
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "completion_tokens_details": {"reasoning_tokens": 2},
}
WEATHER: Any = {
    "type": "function", "name": "weather", "description": "The weather", "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip
PATCH: Any = {"type": "custom", "name": "patch", "description": "Applies a patch."}


class Colour(pydantic.BaseModel):
    name: str


@pytest.fixture
async def asking(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


def answers(message: dict[str, Any], reason: str = "stop") -> Callable[[Answering], Any]:
    async def script(answering: Answering) -> None:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        await answering.json({"id": "c", "object": "chat.completion", "choices": [choice], "usage": USAGE})

    return script


def streams(*deltas: dict[str, Any], reason: str = "stop") -> Callable[[Answering], Any]:
    async def script(answering: Answering) -> None:
        await answering.start_stream()
        for delta in deltas:
            await answering.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        await answering.event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        await answering.event({"choices": [], "usage": USAGE})
        await answering.event("[DONE]")
        await answering.end_stream()

    return script


async def test_a_response_is_translated(gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    picture: Any = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    conversation: Any = [
        {"role": "developer", "content": "Use few words."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look"}, picture]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "rain"}]},
    ]
    answer = await asking.responses.create(
        model="m", input=conversation, instructions="Be kind.", max_output_tokens=20, tools=[WEATHER]
    )
    assert (answer.status, answer.output_text, answer.object) == ("completed", "hi", "response")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    sent = served.seen[0].json()
    assert served.seen[0].path == "/v1/chat/completions"
    assert sent["messages"][0] == {"role": "system", "content": "Be kind.\n\nUse few words."}
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent["messages"][2]["tool_calls"]] == ["call_1", "call_2"]
    assert (sent["max_tokens"], sent["messages"][4]["content"]) == (20, "rain")
    assert sent["tools"][0]["function"]["parameters"] == WEATHER["parameters"]


async def test_what_tools_gave_and_late_instructions_reach_the_replica(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    picture: Any = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    action: Any = {"type": "exec", "command": ["ls"], "env": {}}
    conversation: Any = [
        {"role": "user", "content": "Look"},
        {"type": "function_call", "call_id": "call_1", "name": "see", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_2", "name": "see", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "this"}, picture],
        },
        {"type": "function_call_output", "call_id": "call_2", "output": "nothing"},
        {"role": "developer", "content": "Be brief."},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_3", "action": action, "status": "completed"},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.txt"},
        {"type": "shell_call", "call_id": "call_4", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "call_4", "output": [{"stdout": "b.txt", "stderr": ""}]},
        {"role": "user", "content": "And?"},
    ]
    strict: Any = {**WEATHER, "strict": True}
    await asking.responses.create(model="m", input=conversation, tools=[strict])
    sent = served.seen[0].json()
    seen = [(message["role"], message.get("tool_call_id", "")) for message in sent["messages"]]
    assert seen == [
        ("user", ""), ("assistant", ""), ("tool", "call_1"), ("tool", "call_2"), ("user", ""),
        ("assistant", ""), ("tool", "call_3"), ("assistant", ""), ("tool", "call_4"), ("user", ""),
    ]  # fmt: skip
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    assert sent["messages"][4]["content"] == [shown, {"type": "text", "text": "Be brief."}]
    assert sent["messages"][5]["tool_calls"][0]["function"]["name"] == "local_shell"
    assert sent["messages"][8]["content"] == '[{"stdout":"b.txt","stderr":""}]'
    assert sent["tools"][0]["function"]["strict"] is True


async def test_only_the_allowed_tools_reach_the_replica(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    allowed: Any = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "custom", "name": "patch"}, {"type": "web_search"}],
    }
    await asking.responses.create(model="m", input="x", tools=[WEATHER, PATCH], tool_choice=allowed)
    sent = served.seen[0].json()
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["patch"]
    assert sent["tool_choice"] == "required"
    choices: list[Any] = [{"type": "web_search"}, {**allowed, "tools": []}, {"type": "function", "name": "other"}]
    for choice in choices:
        with pytest.raises(openai.BadRequestError, match="tool_choice"):
            await asking.responses.create(model="m", input="x", tools=[WEATHER], tool_choice=choice)


async def test_structured_output_is_parsed(gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start) -> None:
    served = await replica("a")
    served.script = answers({"content": '{"name": "bay"}'})
    gateway.serve("m", served)
    answer = await asking.responses.parse(model="m", input="A colour", text_format=Colour)
    assert answer.output_parsed == Colour(name="bay")
    assert served.seen[0].json()["response_format"]["json_schema"]["name"] == "Colour"


async def test_a_cut_answer_is_incomplete(gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start) -> None:
    served = await replica("a")
    served.script = answers({"content": "to be cont"}, "length")
    gateway.serve("m", served)
    answer = await asking.responses.create(model="m", input="x")
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


async def test_a_stream_with_thoughts_text_and_calls_is_translated(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    served.script = streams(
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"reasoning_content": "m"},
        {"content": "I look "},
        {"content": "it up \U0001f40e"},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Paris"}'}}]},
        {
            "tool_calls": [
                {"index": 1, "id": "call_2", "function": {"name": "patch", "arguments": '{"input": "*** x"}'}}
            ]
        },
        reason="tool_calls",
    )
    gateway.serve("m", served)
    async with asking.responses.stream(model="m", input="x", tools=[WEATHER, PATCH]) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 4
    assert [event.sequence_number for event in events] == sorted(event.sequence_number for event in events)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == final.output_text
    assert final.output_text == "I look it up \U0001f40e"
    thought, _text, call, patch = final.output
    assert thought.type == "reasoning"
    assert call.type == "function_call"
    assert (call.name, call.arguments, call.call_id) == ("weather", '{"city": "Paris"}', "call_1")
    assert patch.type == "custom_tool_call"
    assert (patch.name, patch.input) == ("patch", "*** x")
    assert final.usage is not None
    assert final.usage.total_tokens == 10


async def test_a_replica_that_has_the_endpoint_gets_the_request_unchanged(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    content = [{"type": "output_text", "text": "native", "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}

    async def script(answering: Answering) -> None:
        await answering.json({"id": "resp_1", "object": "response", "status": "completed", "output": [message]})

    served.script = script
    gateway.serve("m", served, endpoints=frozenset({"/v1/responses"}))
    answer = await asking.responses.create(model="m", input="x", previous_response_id="resp_0")
    assert (answer.id, answer.output_text) == ("resp_1", "native")
    assert served.seen[0].path == "/v1/responses"
    assert served.seen[0].json() == {"model": "m", "input": "x", "previous_response_id": "resp_0"}


async def test_what_cannot_be_translated_is_the_clients_mistake(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    with pytest.raises(openai.BadRequestError, match="stores no responses"):
        await asking.responses.create(model="m", input="x", previous_response_id="resp_0")
    for fields, said in (
        ({"conversation": "conv_1"}, "stores no conversations"),
        ({"prompt": {"id": "pmpt_1"}}, "stores no prompts"),
        ({"input": []}, "input: a text or a list of items is required"),
    ):
        with pytest.raises(openai.BadRequestError, match=said):
            await asking.responses.create(model="m", extra_body=fields)
    with pytest.raises(openai.BadRequestError, match="invalid request"):
        await asking.responses.create(model="m", input=7)  # type: ignore[call-overload]
    assert served.seen == []

    async def too_long(answering: Answering) -> None:
        await answering.json({"error": {"message": "maximum context length is 4096 tokens"}}, status=400)

    served.script = too_long
    with pytest.raises(openai.BadRequestError, match="prompt is too long") as small:
        await asking.responses.create(model="m", input="x")
    assert small.value.code == "context_length_exceeded"
    assert gateway.open_requests() == 0


@pytest.mark.parametrize("endpoints", [frozenset[str](), frozenset({"/v1/responses"})], ids=["translated", "relayed"])
async def test_a_replica_that_dies_in_a_stream_is_a_failed_response(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start, endpoints: frozenset[str]
) -> None:
    """Codex CLI waits for this event."""
    served = await replica("a")

    async def dies(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": "hel"}}]})
        answering.die()

    served.script = dies
    gateway.serve("m", served, endpoints=endpoints)
    events = [event async for event in await asking.responses.create(model="m", input="x", stream=True)]
    failed = events[-1]
    assert failed.type == "response.failed"
    assert failed.response.status == "failed"
    assert failed.response.error is not None
    assert failed.response.error.code == "server_error"
    assert "incomplete" in failed.response.error.message
    numbers = [event.sequence_number for event in events if not endpoints or event.type == "response.failed"]
    assert numbers == list(range(len(events))) if not endpoints else [1]
    assert gateway.open_requests() == 0


async def test_a_replicas_error_within_a_stream_is_a_failed_response(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")

    async def fails(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": "hel"}}]})
        await answering.event({"error": {"message": "maximum context length is 4096 tokens"}})
        await answering.end_stream()

    served.script = fails
    gateway.serve("m", served)
    *_, failed = [event async for event in await asking.responses.create(model="m", input="x", stream=True)]
    assert failed.type == "response.failed"
    assert failed.response.error is not None
    assert str(failed.response.error.code) == "context_length_exceeded"
    assert [item.status for item in failed.response.output if item.type == "message"] == ["incomplete"]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", ["weather", "patch"])
async def test_a_tool_call_that_the_token_limit_cuts_is_an_incomplete_item(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start, name: str, is_stream: bool
) -> None:
    served = await replica("a")
    cut = '{"city": "Par' if name == "weather" else '{"input": "*** Be'
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": cut}}
    made = streams if is_stream else answers
    served.script = made({"content": "I look. ", "tool_calls": [call]}, reason="length")
    gateway.serve("m", served)
    if is_stream:
        events = [event async for event in await asking.responses.create(
            model="m", input="x", tools=[WEATHER, PATCH], stream=True
        )]  # fmt: skip
        assert events[-1].type == "response.incomplete"
        answer = events[-1].response
        done = [event.item for event in events if event.type == "response.output_item.done"]
        assert [item.type for item in done] == [item.type for item in answer.output]
    else:
        answer = await asking.responses.create(model="m", input="x", tools=[WEATHER, PATCH])
    assert answer.status == "incomplete"
    text, called = answer.output
    assert (text.type, text.status) == ("message", "completed")  # type: ignore[union-attr]
    assert called.status == "incomplete"  # type: ignore[union-attr]
    assert (called.arguments if called.type == "function_call" else called.input) == cut  # type: ignore[union-attr]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_refusals_filters_and_reasoning_are_told(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start, is_stream: bool
) -> None:
    served = await replica("a")
    gateway.serve("m", served)

    async def ask(message: dict[str, Any], reason: str) -> Any:
        served.script = (streams if is_stream else answers)(message, reason=reason)
        if not is_stream:
            return await asking.responses.create(model="m", input="x")
        events = [event async for event in await asking.responses.create(model="m", input="x", stream=True)]
        return events[-1].response  # type: ignore[union-attr]

    answer = await ask({"refusal": "I will not."}, "stop")
    (message,) = answer.output
    assert [(part.type, part.refusal) for part in message.content] == [("refusal", "I will not.")]
    assert answer.usage.output_tokens_details.reasoning_tokens == 2
    answer = await ask({"content": "It is"}, "content_filter")
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "content_filter")
