"""Streaming clients that wait for a load: comments where a setting says so, in streams that official clients read."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import openai
import pytest

from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.load_notices import load_notice
from corral.frontend.gateway.loads import LoadFailed
from frontend.gateway.test_continuation import BODIES, CHAT, COMPLETIONS, MESSAGES, WORDS, Engine, chat_text, text_of
from harness.gateway import KEY, Answering, Replica, RunningGateway, running_gateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
AUTH = {"Authorization": f"Bearer {KEY}"}
NOTIFYING = GatewayLimits(load_notice_s=0.2)
PROGRESS = "staging on n1, 40 %"


class HeldLoads:
    """A load that ends when the test says so."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.described = 0

    async def ensure(self, model: str, *, within_s: float) -> None:
        await asyncio.shield(self.done)

    def describe(self, model: str) -> str:
        self.described += 1
        return PROGRESS


@asynccontextmanager
async def waiting(limits: GatewayLimits = NOTIFYING) -> AsyncIterator[tuple[RunningGateway, HeldLoads]]:
    loads = HeldLoads()
    async with running_gateway(limits=limits, loads=loads) as gateway:
        gateway.serve("m")
        yield gateway, loads
        if not loads.done.done():
            loads.done.set_result(None)


async def finish(gateway: RunningGateway, loads: HeldLoads, replica: Start, engine: Engine, **more: Any) -> None:
    one = await replica("one")
    one.script = engine
    gateway.serve("m", one, **more)
    loads.done.set_result(None)


def streamed(client: httpx.AsyncClient, gateway: RunningGateway, path: str, **more: Any) -> Any:
    body = {"model": "m", "stream": True, **BODIES[path], **more}
    return client.stream("POST", gateway.url + path, json=body, headers=AUTH, timeout=60)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
async def test_a_stream_that_waits_begins_with_comments_and_then_is_the_replicas(path: str, replica: Start) -> None:
    async with (
        waiting() as (gateway, loads),
        httpx.AsyncClient() as client,
        streamed(client, gateway, path) as answer,
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        assert answer.headers["x-request-id"]
        lines = answer.aiter_lines()
        assert await anext(lines) == f": m is being loaded: {PROGRESS}"
        assert await anext(lines) == ""
        assert (await anext(lines)).startswith(":"), "another one follows"
        await finish(gateway, loads, replica, Engine())
        rest = [line async for line in lines if line.startswith("data:")]
    assert all(any(word.strip() in line for line in rest) for word in WORDS if word.strip() and word.isascii())


async def test_the_official_clients_read_such_streams(replica: Start) -> None:
    async with waiting() as (gateway, loads):
        chat = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0)
        messages = anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY, max_retries=0)

        async def ask_openai() -> str:
            parts = []
            async for chunk in await chat.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "count"}], stream=True
            ):
                parts += [choice.delta.content or "" for choice in chunk.choices]
            return "".join(parts)

        async def ask_anthropic() -> str:
            async with messages.messages.stream(
                model="m", messages=[{"role": "user", "content": "count"}], max_tokens=100
            ) as stream:
                return await stream.get_final_text()

        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask_openai()), tasks.create_task(ask_anthropic())]
            await until(lambda: loads.described > 4, "both were sent comments")
            await finish(gateway, loads, replica, Engine())
        await chat.close()
        await messages.close()
    assert [task.result() for task in asked] == [text_of(WORDS)] * 2


async def test_a_load_that_fails_ends_such_a_stream_with_an_error_event() -> None:
    async with waiting() as (gateway, loads), httpx.AsyncClient() as client:
        async with streamed(client, gateway, CHAT) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            loads.done.set_exception(LoadFailed("no node has 40 GiB of memory"))
            rest = [line async for line in lines]
        chat = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0)
        with pytest.raises(openai.APIError, match="40 GiB"):
            await chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        await chat.close()
    [event] = [line for line in rest if line.startswith("data:")]
    assert "no node has 40 GiB of memory" in event


async def test_an_error_of_the_replica_reaches_such_a_stream_as_an_event(replica: Start) -> None:
    async with (
        waiting() as (gateway, loads),
        httpx.AsyncClient() as client,
        streamed(client, gateway, CHAT) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        one = await replica("one")
        one.script = lambda answering: answering.json({"error": {"message": "the prompt is too long"}}, status=400)
        gateway.serve("m", one)
        loads.done.set_result(None)
        [event] = [line async for line in lines if line.startswith("data:")]
    assert "the prompt is too long" in event


@pytest.mark.parametrize("status", [401, 403, 404, 307, 500, 503])
async def test_such_a_stream_goes_to_another_attached_server_as_any_request_does(replica: Start, status: int) -> None:
    secret = "the key sk-own is not valid"

    async def refuse(answering: Answering) -> None:
        await answering.json({"error": {"message": secret}}, status=status)

    async def speak(answering: Answering) -> None:
        await answering.start_stream()
        for word in WORDS:
            await answering.event({"id": "x", "choices": [{"index": 0, "delta": {"content": word}}]})
        await answering.event("[DONE]")
        await answering.end_stream()

    for has_other in (True, False):
        async with (
            waiting() as (gateway, loads),
            httpx.AsyncClient() as client,
            streamed(client, gateway, CHAT) as answer,
        ):
            lines = answer.aiter_lines()
            await anext(lines)
            bad, good = await replica("bad"), await replica("good")
            bad.script, good.script = refuse, speak
            routes = [bad.attached_route(weight=1000), good.attached_route()]
            gateway.serve_routes("m", *routes[: 1 + has_other])
            loads.done.set_result(None)
            data = [line.removeprefix("data: ") async for line in lines if line.startswith("data:")]
        assert bad.seen, "it was asked first"
        if has_other:
            assert data.pop() == "[DONE]"
            assert chat_text([json.loads(value) for value in data]) == text_of(WORDS)
        else:
            assert "error" in json.loads(data[-1])
            assert status not in (401, 307) or secret not in data[-1], "it is about Corral's own key"


async def test_a_replica_that_dies_in_such_a_stream_is_continued(replica: Start) -> None:
    async with (
        waiting() as (gateway, loads),
        httpx.AsyncClient() as client,
        streamed(client, gateway, CHAT) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        engine = Engine(3)
        replicas = [await replica("a"), await replica("b")]
        for one in replicas:
            one.script = engine
        gateway.serve("m", *replicas, continuation="assistant-prefill")
        loads.done.set_result(None)
        data = [line.removeprefix("data: ") async for line in lines if line.startswith("data:")]
    assert data.pop() == "[DONE]"
    assert chat_text([json.loads(value) for value in data]) == text_of(WORDS)


@pytest.mark.parametrize(
    ("limits", "stream"), [pytest.param(GatewayLimits(), True, id="off"), pytest.param(NOTIFYING, False, id="whole")]
)
async def test_others_get_a_status(limits: GatewayLimits, stream: bool) -> None:
    async with waiting(limits) as (gateway, loads), httpx.AsyncClient() as client:
        body = {"model": "m", "stream": stream, **BODIES[CHAT]}
        asked = asyncio.ensure_future(client.post(gateway.url + CHAT, json=body, headers=AUTH, timeout=60))
        served = gateway.gateway.table.by_name["m"]
        await until(lambda: served.loading.length == 1, "it waits")
        for connection in gateway.gateway.connections:
            connection.tick(gateway.gateway.now_s() + 10.0)
        loads.done.set_exception(LoadFailed("no node has 40 GiB of memory"))
        answer = await asked
    assert answer.status_code == 503


async def test_a_client_that_leaves_while_it_gets_comments_leaves_nothing_behind() -> None:
    async with waiting() as (gateway, _), httpx.AsyncClient() as client:
        async with streamed(client, gateway, CHAT) as answer:
            await anext(answer.aiter_lines())
        served = gateway.gateway.table.by_name["m"]
        await until(lambda: served.loading.length == 0, "it waits no longer")


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ("", b": m is being loaded\n\n"),
        ("pending (a\nb\r\ndata: x)", b": m is being loaded: pending (a b data: x)\n\n"),
        ("x" * 1000, b": " + f"m is being loaded: {'x' * 1000}"[:500].encode() + b"\n\n"),
    ],
)
def test_a_notice_is_one_short_line(progress: str, expected: bytes) -> None:
    assert load_notice("m", progress) == expected
