"""Anthropic's own client against the gateway: translated for an engine of OpenAI's API, relayed to one of its own."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anthropic
import httpx
import openai
import pytest

from harness.gateway import KEY, Answering, Replica, RunningGateway, completion

Start = Callable[..., Coroutine[Any, Any, Replica]]
HORSE: Any = [{"role": "user", "content": "Name one colour of a horse."}]
WEATHER: Any = {
    "name": "weather",
    "description": "The weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@pytest.fixture
async def asking(gateway: RunningGateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


def answers(message: dict[str, Any], reason: str = "stop", **more: Any) -> Callable[[Answering], Any]:
    async def script(answering: Answering) -> None:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason, **more}
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


async def test_a_message_is_translated(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    answer = await asking.messages.create(
        model="m",
        max_tokens=16,
        messages=HORSE,
        system="Be brief.",
        stop_sequences=["END"],
        extra_body={"temperature": 0},
    )
    assert (answer.type, answer.role, answer.model, answer.stop_reason) == ("message", "assistant", "m", "end_turn")
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].text == "hi"  # type: ignore[union-attr]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    (seen,) = served.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.json() == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, *HORSE],
        "max_tokens": 16,
        "temperature": 0,
        "stop": ["END"],
    }


async def test_tools_results_and_pictures_are_translated(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    served.script = answers({"content": None, "tool_calls": [call]}, "tool_calls")
    gateway.serve("m", served)
    picture = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    messages: Any = [
        {"role": "user", "content": [{"type": "image", "source": picture}, {"type": "text", "text": "Where?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hmm", "signature": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sunny"}]},
                {"type": "text", "text": "And Paris?"},
            ],
        },
    ]
    answer = await asking.messages.create(
        model="m", max_tokens=16, messages=messages, tools=[WEATHER], tool_choice={"type": "any"}
    )
    assert answer.stop_reason == "tool_use"
    (used,) = answer.content
    assert used.type == "tool_use"
    assert (used.id, used.name, used.input) == ("call_1", "weather", {"city": "Paris"})
    sent = served.seen[0].json()
    assert sent["tools"][0]["function"]["parameters"] == WEATHER["input_schema"]
    assert sent["tool_choice"] == "required"
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool", "user"]
    assert sent["messages"][0]["content"][0]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert sent["messages"][1]["reasoning_content"] == "hmm"
    assert sent["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Rome"}'
    assert sent["messages"][2] == {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"}


async def test_a_stream_with_thoughts_text_and_a_tool_call_is_translated(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    served.script = streams(
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"reasoning_content": "m"},
        {"content": "I look "},
        {"content": "it up \U0001f40e"},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Paris"}'}}]},
        {"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "weather", "arguments": "{}"}}]},
        reason="tool_calls",
    )
    gateway.serve("m", served)
    async with asking.messages.stream(model="m", max_tokens=64, messages=HORSE, tools=[WEATHER]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, text, first, second = final.content
    assert thought.thinking == "hmm"  # type: ignore[union-attr]
    assert text.text == "I look it up \U0001f40e"  # type: ignore[union-attr]
    assert (first.id, first.input) == ("call_1", {"city": "Paris"})  # type: ignore[union-attr]
    assert (second.id, second.input) == ("call_2", {})  # type: ignore[union-attr]
    assert final.stop_reason == "tool_use"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (7, 3)
    assert served.seen[0].json()["stream_options"] == {"include_usage": True}


async def test_documents_search_results_and_errors_of_server_tools_are_read(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    document = {"type": "document", "title": "Horses", "context": "A list."}
    found = {"type": "search_result", "source": "https://horse.example", "title": "Colours"}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    messages: Any = [
        {"role": "user", "content": [
            {**document, "source": {"type": "text", "media_type": "text/plain", "data": "bay"}},
            {**document, "title": None, "source": {"type": "content", "content": [{"type": "text", "text": "grey"}]}},
            {**found, "content": [{"type": "text", "text": "dun"}]},
        ]},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "horse"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": failed},
            {"type": "tool_use", "id": "toolu_1", "name": "see", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {**found, "content": [{"type": "text", "text": "roan"}]}, picture,
            ]},
        ]},
    ]  # fmt: skip
    await asking.messages.create(model="m", max_tokens=16, messages=messages)
    sent = served.seen[0].json()["messages"]
    assert sent[0]["content"].split("\n\n") == [
        "Horses\nA list.", "bay", "A list.", "grey", "Colours\nhttps://horse.example", "dun",
    ]  # fmt: skip
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert sent[2]["content"] == "Colours\nhttps://horse.example\nroan"
    assert sent[3]["content"][0]["image_url"]["url"] == "data:image/png;base64,AAAA"


async def test_tools_without_a_schema_get_one_or_are_refused(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)

    async def ask(*tools: Any, choice: str) -> list[str]:
        await asking.messages.create(
            model="m", max_tokens=16, messages=HORSE, tools=tools, tool_choice={"type": "tool", "name": choice}
        )
        found = [tool["function"] for tool in served.seen[-1].json()["tools"]]
        assert all(function["parameters"]["properties"] for function in found)
        return [function["name"] for function in found]

    bash = {"type": "bash_20250124", "name": "bash"}
    editor = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert await ask(bash, editor, search, choice="bash") == ["bash", "str_replace_based_edit_tool"]
    refused = ((search, "web_search", "is no tool"), ({"type": "computer_20250124", "name": "computer"}, "computer",
        "needs an `input_schema` for 'computer' of the type 'computer_20250124'"))  # fmt: skip
    for tool, name, said in refused:
        with pytest.raises(anthropic.BadRequestError, match=said):
            await ask(tool, choice=name)


def called(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "function": {"name": name, "arguments": arguments}}]}


def more(arguments: str, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{**fields, "function": {"arguments": arguments}}]}


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                called("weather", '{"city": ', index=0, id="a"), called("weather", '{"ci', index=1, id="b"),
                more('"Rome"}', index=0), more('ty": "Oslo"}', index=1),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                called("weather", '{"city": ', id="a"), more('"Rome"}'),
                called("weather", '{"ci', id="b"), more('ty": "Oslo"}', id="b"),
            ],
            id="without-an-index",
        ),
        pytest.param(
            [
                called("weather", '{"city": ', index=0, id="a"), more('"Rome"}', index=0, id="other"),
                called("weather", '{"city": "Oslo"}', index=0, id="b"),
            ],
            id="always-the-same-index",
        ),
        pytest.param(
            [{"tool_calls": [
                {"id": "a", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
                {"id": "b", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
            ]}],
            id="whole",
        ),
    ],
)  # fmt: skip
async def test_streamed_tool_calls_are_told_apart(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start, deltas: list[dict[str, Any]]
) -> None:
    served = await replica("a")
    served.script = streams({"content": "I look."}, *deltas, reason="tool_calls")
    gateway.serve("m", served)
    async with asking.messages.stream(model="m", max_tokens=64, messages=HORSE, tools=[WEATHER]) as stream:
        _, *used = (await stream.get_final_message()).content
    assert [(block.id, block.input) for block in used if block.type == "tool_use"] == [
        ("a", {"city": "Rome"}),
        ("b", {"city": "Oslo"}),
    ]
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=20) as other:
        events = [event async for event in await other.responses.create(model="m", input="x", stream=True)]
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.call_id, json.loads(item.arguments)) for item in items if item.type == "function_call"] == [
        ("a", {"city": "Rome"}),
        ("b", {"city": "Oslo"}),
    ]
    async with httpx.AsyncClient(base_url=gateway.url, headers={"Authorization": f"Bearer {KEY}"}) as third:
        lines = (await third.post("/api/chat", json={"model": "m", "messages": HORSE})).text.splitlines()
    calls = [call for line in lines for call in json.loads(line)["message"].get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}]


async def test_a_tool_call_that_the_token_limit_cuts_is_left_out(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    """An error would be repeated by the client, which ends in the same place."""
    served = await replica("a")
    whole = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    cut = {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Par'}}
    gateway.serve("m", served)
    for calls, kinds in (([cut], ["text"]), ([whole, cut], ["tool_use"])):
        served.script = answers({"content": None, "tool_calls": calls}, "length")
        answer = await asking.messages.create(model="m", max_tokens=16, messages=HORSE, tools=[WEATHER])
        assert (answer.stop_reason, [block.type for block in answer.content]) == ("max_tokens", kinds)
    served.script = answers({"content": None, "tool_calls": [cut]}, "tool_calls")
    with pytest.raises(anthropic.InternalServerError, match="arguments that are not JSON"):
        await asking.messages.create(model="m", max_tokens=16, messages=HORSE, tools=[WEATHER])
    served.script = streams({"tool_calls": [{"index": 0, **cut}]}, reason="length")
    async with asking.messages.stream(model="m", max_tokens=16, messages=HORSE, tools=[WEATHER]) as stream:
        assert (await stream.get_final_message()).stop_reason == "max_tokens"


async def test_a_refusal_is_named(gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    served.script = answers({"content": None, "refusal": "I will not."})
    answer = await asking.messages.create(model="m", max_tokens=16, messages=HORSE)
    assert (answer.stop_reason, answer.content[0].type) == ("refusal", "text")
    served.script = streams({"refusal": "I will "}, {"refusal": "not."})
    async with asking.messages.stream(model="m", max_tokens=16, messages=HORSE) as stream:
        assert (await stream.get_final_message()).stop_reason == "refusal"


async def test_a_stream_cut_anywhere_is_translated_alike(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    event = json.dumps({"choices": [{"delta": {"content": "gr\u00fc\u00df"}, "finish_reason": "stop"}]}).encode()
    data = b"data: " + event + b"\r\n\r\ndata: [DONE]\n\n"

    async def bytewise(answering: Answering) -> None:
        await answering.start_stream()
        for at in range(len(data)):
            await answering.chunk(data[at : at + 1])
        await answering.end_stream()

    served = await replica("a")
    served.script = bytewise
    gateway.serve("m", served)
    async with asking.messages.stream(model="m", max_tokens=64, messages=HORSE) as stream:
        assert await stream.get_final_text() == "gr\u00fc\u00df"


async def test_a_replica_that_speaks_the_protocol_gets_the_request_unchanged(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    native = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "native"}], "usage": {"input_tokens": 5, "output_tokens": 2},
    }  # fmt: skip

    async def script(answering: Answering) -> None:
        await answering.json(native)

    served.script = script
    gateway.serve("m", served, endpoints=frozenset({"/v1/messages"}))
    for _ in range(2):
        answer = await asking.messages.create(model="m", max_tokens=16, messages=HORSE)
        assert answer.content[0].text == "native"  # type: ignore[union-attr]
    assert {seen.path for seen in served.seen} == {"/v1/messages"}
    assert served.seen[0].json() == {"model": "m", "max_tokens": 16, "messages": HORSE}


async def test_tokens_are_counted(gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    counted = await asking.messages.count_tokens(model="m", messages=HORSE)
    assert counted.input_tokens == 7
    assert served.seen[0].json()["max_tokens"] == 1


async def test_models_are_listed_in_anthropics_form(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    gateway.serve("m", await replica("a"))
    listed = [model.id async for model in asking.models.list()]
    assert listed == ["m"]
    assert (await asking.models.retrieve("m")).display_name == "m"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(
            400,
            {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 18000,
                "n_ctx": 4096,
            },
            id="llama.cpp",
        ),
        pytest.param(400, {"message": "This model's maximum context length is 4096 tokens."}, id="vllm"),
        pytest.param(500, {"message": "the context size is exceeded; exceed_context_size"}, id="another-status"),
    ],
)
@pytest.mark.parametrize("endpoints", [frozenset[str](), frozenset({"/v1/messages"})], ids=["translated", "relayed"])
async def test_a_context_that_is_too_small_is_named(
    gateway: RunningGateway,
    asking: anthropic.AsyncAnthropic,
    replica: Start,
    status: int,
    error: dict[str, Any],
    endpoints: frozenset[str],
) -> None:
    served = await replica("a")

    async def script(answering: Answering) -> None:
        await answering.json({"error": error}, status=status)

    served.script = script
    gateway.serve("m", served, endpoints=endpoints)
    with pytest.raises(anthropic.BadRequestError) as refused:
        await asking.messages.create(model="m", max_tokens=16, messages=HORSE)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith("prompt is too long")
    assert "context_size" in body["error"]["message"]


async def test_errors_have_anthropics_envelope(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await asking.messages.create(model="mm", max_tokens=16, messages=HORSE)
    assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.AuthenticationError) as wrong:
        await asking.with_options(api_key="wrong").messages.create(model="m", max_tokens=16, messages=HORSE)
    assert wrong.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        await asking.post("/v1/messages", body={"model": "m", "messages": HORSE}, cast_to=httpx.Response)
    with pytest.raises(anthropic.BadRequestError, match="invalid request"):
        await asking.messages.create(model="m", max_tokens=16, messages="hi")  # type: ignore[arg-type]
    assert served.seen == []
    assert gateway.open_requests() == 0


async def test_an_invalid_answer_is_an_error_and_ends_the_lease(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")

    async def script(answering: Answering) -> None:
        await answering.json({"choices": "none"})

    served.script = script
    gateway.serve("m", served)
    with pytest.raises(anthropic.InternalServerError, match="not one of chat completions"):
        await asking.messages.create(model="m", max_tokens=16, messages=HORSE)
    assert gateway.open_requests() == 0


async def test_an_error_within_a_stream_and_a_dead_replica_are_error_events(
    gateway: RunningGateway, asking: anthropic.AsyncAnthropic, replica: Start
) -> None:
    served = await replica("a")

    async def fails(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": "hel"}}]})
        await answering.event({"error": {"message": "it fell over"}})
        await answering.end_stream()

    async def dies(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": "hel"}}]})
        answering.die()

    gateway.serve("m", served)
    for script, said in ((fails, "it fell over"), (dies, "incomplete")):
        served.script = script
        with pytest.raises(anthropic.APIStatusError, match=said):
            async with asking.messages.stream(model="m", max_tokens=16, messages=HORSE) as stream:
                await stream.get_final_message()
    assert gateway.open_requests() == 0


async def test_a_query_and_a_bearer_key_are_accepted(gateway: RunningGateway, replica: Start) -> None:
    gateway.serve("m", await replica("a"))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as client:
        body = {"model": "m", "max_tokens": 1, "messages": HORSE, "context_management": {"edits": []}}
        bearer = {"Authorization": f"Bearer {KEY}"}
        answer = await client.post("/v1/messages?beta=true", json=body, headers=bearer)
    assert answer.status_code == 200
    assert answer.json()["content"] == [{"type": "text", "text": completion("a")["choices"][0]["message"]["content"]}]
