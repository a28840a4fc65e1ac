"""Ollama's own client against the gateway."""

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx
import ollama
import pytest

from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from corral.frontend.gateway.protocols.dispatch import is_for_gateway
from harness.gateway import KEY, LIMITED_KEY, Answering, Replica, RunningGateway

Start = Callable[..., Coroutine[Any, Any, Replica]]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
HORSE = [{"role": "user", "content": "Name one colour of a horse."}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def asking(gateway: RunningGateway) -> ollama.AsyncClient:
    return ollama.AsyncClient(host=gateway.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=20)


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


@pytest.mark.parametrize("name", ["m", "m:latest"])
async def test_chat_is_answered(gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start, name: str) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    answer = await asking.chat(
        name, HORSE, options={"num_predict": 9, "temperature": 0, "num_ctx": 512}, format="json", keep_alive="5m"
    )
    assert (answer.message.content, answer.done, answer.done_reason) == ("hi", True, "stop")
    assert (answer.prompt_eval_count, answer.eval_count, answer.model) == (7, 3, name)
    assert answer.total_duration is not None
    assert answer.total_duration > 0
    assert served.seen[0].path == "/v1/chat/completions"
    assert served.seen[0].json() == {
        "model": "m",
        "messages": HORSE,
        "max_tokens": 9,
        "temperature": 0,
        "response_format": {"type": "json_object"},
    }


async def test_chat_is_streamed_with_thoughts_and_whole_tool_calls(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start
) -> None:
    served = await replica("a")
    served.script = streams(
        {"reasoning_content": "hmm"},
        {"content": "gr\u00fc"},
        {"content": "\u00df"},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Paris"}'}}]},
        reason="tool_calls",
    )
    gateway.serve("m", served)
    parts = [part async for part in await asking.chat("m", HORSE, stream=True, tools=[WEATHER], think=True)]
    assert "".join(part.message.content or "" for part in parts) == "gr\u00fc\u00df"
    assert "".join(part.message.thinking or "" for part in parts) == "hmm"
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Paris"})
    assert [part.done for part in parts].count(True) == 1
    assert parts[-1].done
    assert (parts[-1].prompt_eval_count, parts[-1].eval_count) == (7, 3)
    sent = served.seen[0].json()
    assert sent["chat_template_kwargs"] == {"enable_thinking": True}
    assert sent["tools"][0]["function"]["name"] == "weather"


async def test_a_tool_call_that_the_token_limit_cuts_is_left_out(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start
) -> None:
    served = await replica("a")
    cut = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city": "Par'}}

    async def whole(answering: Answering) -> None:
        message = {"role": "assistant", "content": None, "tool_calls": [cut]}
        await answering.json({"choices": [{"message": message, "finish_reason": "length"}], "usage": USAGE})

    gateway.serve("m", served)
    served.script = whole
    answer = await asking.chat("m", HORSE, tools=[WEATHER])
    assert (answer.done_reason, answer.message.tool_calls) == ("length", None)
    served.script = streams({"tool_calls": [cut]}, reason="length")
    parts = [part async for part in await asking.chat("m", HORSE, stream=True, tools=[WEATHER])]
    assert parts[-1].done_reason == "length"
    assert not any(part.message.tool_calls for part in parts)


@pytest.mark.parametrize("timings", [None, {"prompt_n": 7, "prompt_ms": 2.5, "predicted_n": 3, "predicted_ms": 40.0}])
async def test_durations_are_told(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start, timings: dict[str, Any] | None
) -> None:
    served = await replica("a")

    async def whole(answering: Answering) -> None:
        said = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": USAGE}
        await answering.json({**said, "timings": timings} if timings else said)

    served.script = whole
    gateway.serve("m", served)
    answer = await asking.chat("m", HORSE)
    told = (answer.prompt_eval_duration or 0, answer.eval_duration or 0)
    assert min(told) >= 1
    if timings:
        assert told == (2_500_000, 40_000_000)
    else:
        assert sum(told) <= (answer.total_duration or 0)
        assert told[1] > told[0], "a token of the answer takes longer than one of the prompt"
    served.script = streams({"content": "hi"})
    *_, last = [part async for part in await asking.chat("m", HORSE, stream=True)]
    assert min(last.prompt_eval_duration or 0, last.eval_duration or 0) >= 1


async def test_tool_results_and_pictures_reach_the_replica(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    calls: list[Any] = [{"function": {"name": name, "arguments": {}}} for name in ("weather", "time")]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "look", "images": [b"\x89PNG\r\n\x1a\n"]},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_name": "time", "content": "noon"},
        {"role": "tool", "tool_name": "weather", "content": "sunny"},
    ]
    await asking.chat("m", messages)
    sent = served.seen[0].json()["messages"]
    assert sent[0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    weather, time = (call["id"] for call in sent[1]["tool_calls"])
    assert [(message["tool_call_id"], message["content"]) for message in sent[2:]] == [
        (time, "noon"),
        (weather, "sunny"),
    ]


async def test_text_is_generated_and_a_model_can_only_be_loaded(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start
) -> None:
    served = await replica("a")
    gateway.serve("m", served)
    schema = {"type": "object"}
    answer = await asking.generate("m", "A horse is", system="Be brief.", format=schema)
    assert (answer.response, answer.done_reason) == ("hi", "stop")
    assert served.seen[0].json()["response_format"]["json_schema"]["schema"] == schema
    loaded = await asking.generate("m")
    assert (loaded.response, loaded.done_reason) == ("", "load")
    refused: list[tuple[str, dict[str, Any]]] = [
        ("raw", {"raw": True}), ("template", {"template": "x"}), ("context", {"context": [1]}),
        ("logprobs", {"logprobs": True}),
    ]  # fmt: skip
    for said, fields in refused:
        with pytest.raises(ollama.ResponseError, match=said):
            await asking.generate("m", "x", **fields)


async def test_a_model_that_is_only_loaded_says_nothing_and_stopping_one_loads_none(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start, client: httpx.AsyncClient
) -> None:
    served = await replica("a")

    async def thinks(answering: Answering) -> None:
        message = {"content": "hi", "reasoning_content": "hm"}
        await answering.json({"choices": [{"message": message, "finish_reason": "length"}], "usage": USAGE})

    served.script = thinks
    gateway.serve("m", served)
    gateway.serve("cold")
    loaded = await asking.generate("m")
    assert (loaded.response, loaded.thinking, loaded.done_reason) == ("", None, "load")
    for nothing in ({"prompt": None}, {"prompt": ""}):
        assert (await client.post("/api/generate", json={"model": "m", "stream": False, **nothing})).status_code == 200
    assert (await client.post("/api/chat", json={"model": "m", "stream": False, "messages": None})).status_code == 200
    before = len(served.seen)
    for model in ("m", "m:latest", "cold"):
        stopped = await asking.generate(model, keep_alive=0)
        assert (stopped.done, stopped.done_reason, stopped.response) == (True, "unload", "")
        assert (await asking.chat(model, keep_alive="0s")).done_reason == "unload"
    with pytest.raises(ollama.ResponseError, match="does not exist"):
        await asking.generate("mm", keep_alive=0)
    assert len(served.seen) == before
    await asking.generate("m", "A horse is", keep_alive=0, options={"repeat_penalty": 1.2})
    sent = served.seen[-1].json()
    assert (sent["repeat_penalty"], sent["repetition_penalty"]) == (1.2, 1.2)


async def test_texts_are_embedded(gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start) -> None:
    served = await replica("a")

    async def script(answering: Answering) -> None:
        data = [{"index": at, "embedding": [float(at), 0.5]} for at in (1, 0)]
        await answering.json({"object": "list", "data": data, "usage": {"prompt_tokens": 4, "total_tokens": 4}})

    served.script = script
    gateway.serve("m", served)
    answer = await asking.embed("m", ["a", "b"])
    assert [list(vector) for vector in answer.embeddings] == [[0.0, 0.5], [1.0, 0.5]]
    assert answer.prompt_eval_count == 4
    assert list((await asking.embeddings("m", "a")).embedding) == [0.0, 0.5]
    assert {seen.path for seen in served.seen} == {"/v1/embeddings"}


async def test_models_are_listed_and_shown(
    gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start, client: httpx.AsyncClient
) -> None:
    gateway.serve("m", await replica("a"))
    gateway.serve("cold")
    assert [model.model for model in (await asking.list()).models] == ["cold", "m"]
    assert [model.model for model in (await asking.ps()).models] == ["m"]
    shown = await asking.show("m")
    assert shown.capabilities == ["completion", "tools"]
    (listed,) = (await asking.ps()).models
    assert listed.expires_at is not None
    assert listed.expires_at.year > 2100
    gateway.serve("m", await replica("b"), context_size=4096, capabilities=("embedding",))
    shown = await asking.show("m")
    assert shown.capabilities == ["embedding"]
    assert (shown.modelinfo or {})["corral.context_length"] == 4096
    assert (await asking.ps()).models[0].context_length == 4096
    assert (await client.get("/api/version")).json()["version"].startswith("0.")
    limited = {"Authorization": f"Bearer {LIMITED_KEY}"}
    assert (await client.get("/api/tags", headers=limited)).json() == {"models": []}


async def test_every_listed_name_can_be_shown(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    gateway.serve("m", await replica("a"), context_size=4096)
    gateway.routes.snapshot = replace(
        gateway.routes.snapshot, public=(PublicRoute(name="allowed", tiers=((RouteTarget("m"),),)),)
    )
    gateway.gateway.table.apply(gateway.routes.snapshot)
    for key, names in ((LIMITED_KEY, ["allowed"]), (KEY, ["allowed", "m"])):
        headers = {"Authorization": f"Bearer {key}"}
        tags = (await client.get("/api/tags", headers=headers)).json()["models"]
        assert [one["name"] for one in tags] == names
        for name in names:
            shown = await client.post("/api/show", json={"model": name}, headers=headers)
            assert shown.status_code == 200, shown.text
            assert shown.json()["model_info"]["corral.context_length"] == 4096
    hidden = await client.post("/api/show", json={"model": "m"}, headers={"Authorization": f"Bearer {LIMITED_KEY}"})
    assert hidden.status_code == 404


async def test_errors_are_ollamas(gateway: RunningGateway, asking: ollama.AsyncClient, replica: Start) -> None:
    served = await replica("a")

    async def too_long(answering: Answering) -> None:
        await answering.json({"error": {"message": "maximum context length is 4096 tokens"}}, status=400)

    served.script = too_long
    gateway.serve("m", served)
    with pytest.raises(ollama.ResponseError, match="prompt is too long") as small:
        await asking.chat("m", HORSE)
    assert small.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="does not exist") as unknown:
        await asking.show("mm")
    assert unknown.value.status_code == 404
    stranger = ollama.AsyncClient(host=gateway.url)
    with pytest.raises(ollama.ResponseError) as unauthenticated:
        await stranger.chat("m", HORSE)
    await stranger._client.aclose()
    assert unauthenticated.value.status_code == 401

    async def dies(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": "hel"}}]})
        answering.die()

    served.script = dies
    with pytest.raises(ollama.ResponseError, match="incomplete"):
        _ = [part async for part in await asking.chat("m", HORSE, stream=True)]
    assert gateway.open_requests() == 0


async def test_the_admin_api_beside_it_is_still_the_apps(gateway: RunningGateway, client: httpx.AsyncClient) -> None:
    for path in ("/api/models", "/api/chatter", "/api/pull", "/api/showing/x", "/api/nodes"):
        assert (await client.get(path)).text == "the app"
    assert (await client.get("/api/chat")).status_code == 405


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"POST /v1/x", True),
        (b"POST /api/chat HTTP/1.1", True),
        (b"POST /api/chat?x=1 HTTP/1.1", True),
        (b"GET /api/tags HTTP/1.1", True),
        (b"POST /api/embed HTTP/1.1", True),
        (b"POST /api/embeddings HTTP/1.1", True),
        (b"GET /api/models HTTP/1.1", False),
        (b"GET /api/chatter HTTP/1.1", False),
        (b"GET /api/embeddingsx HTTP/1.1", False),
        (b"GET /ui HTTP/1.1", False),
        (b"GET /api/models", False),
        (b"GET /api/ch", None),
        (b"GET /api/chat", None),
        (b"GET /a", None),
        (b"GET /", None),
        (b"GE", None),
        (b"ENDLESSMETHOD", False),
    ],
)
def test_requests_are_told_apart(data: bytes, expected: bool | None) -> None:
    assert is_for_gateway(data) is expected


def test_every_cut_of_a_request_leads_to_the_same_place() -> None:
    for line, expected in ((b"POST /api/chat HTTP/1.1\r\n", True), (b"GET /api/models/x HTTP/1.1\r\n", False)):
        assert {is_for_gateway(line[:size]) for size in range(len(line) + 1)} == {None, expected}


@pytest.fixture(autouse=True)
async def _closing(asking: ollama.AsyncClient) -> AsyncIterator[None]:
    yield
    await asking._client.aclose()
