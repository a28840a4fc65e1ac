"""A replica that dies in the middle of a streamed answer: another one continues it, and the client sees one stream."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from corral.core.replicas.attached import UpstreamProtocol
from corral.core.replicas.routing import ASSISTANT_PREFILL, CONTINUE_FINAL_MESSAGE
from corral.frontend.gateway.gateway import TICK_EVERY_S
from corral.frontend.gateway.limits import GatewayLimits
from harness.gateway import Answering, Replica, RunningGateway, calling, completion, running_gateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
WORDS = ["One", " two", " three", "\n", "four", " five", " ähm", " six"]
QUESTION = "count"
NATIVE = frozenset({MESSAGES})


def text_of(words: list[str]) -> str:
    return "".join(words)


class Engine:
    """Speaks as llama.cpp does: a token is a word, a prompt's tokens are its characters, a template cuts spaces."""

    def __init__(self, *deaths: int, words: list[str] | None = None, **extra: Any) -> None:
        """`deaths`: after how many words each of the first streams dies, whichever replica gives it. `extra`: further
        fields of every delta."""
        self.deaths = list(deaths)
        self.words = WORDS if words is None else words
        self.extra = extra
        self.streams: list[str] = []
        """The replicas that streamed, in order."""
        self.counted = 0
        self.name = ""

    async def __call__(self, answering: Answering) -> None:
        body = answering.seen.json()
        if answering.seen.path == MESSAGES:
            await self._stream_message(answering, body)
            return
        is_chat = answering.seen.path == CHAT
        given = body["messages"] if is_chat else []
        last = given[-1] if given and given[-1]["role"] == "assistant" else {"content": ""}
        so_far = last["content"].strip() if is_chat else body["prompt"].removeprefix(QUESTION)
        said, done = "", 0
        while said.strip() != so_far.strip() and done < len(self.words):
            said += self.words[done]
            done += 1
        usage = {"prompt_tokens": 5 + done, "completion_tokens": 1, "total_tokens": 6 + done}
        if not body.get("stream"):
            self.counted += 1
            await answering.json({"choices": [], "usage": usage})
            return
        self.name = answering.seen.headers["authorization"].removeprefix("Bearer token-of-")
        self.streams.append(self.name)
        dies_after = self.deaths.pop(0) if self.deaths else None
        most = body.get("max_tokens") or 1000
        rest = self.words[done : done + most]
        await answering.start_stream()
        if is_chat:
            await answering.event(self._chunk(is_chat, role="assistant", content=None))
        for at, word in enumerate(rest):
            if at == dies_after:
                answering.die()
                return
            await answering.event(self._chunk(is_chat, content=word, **self.extra))
        if dies_after == len(rest):
            answering.die()
            return
        reason = "length" if done + len(rest) < len(self.words) else "stop"
        await answering.event(self._chunk(is_chat, reason=reason))
        if body.get("stream_options", {}).get("include_usage"):
            usage = {"prompt_tokens": 5 + done, "completion_tokens": len(rest), "total_tokens": 5 + done + len(rest)}
            await answering.event({"id": self.name, "created": 1, "choices": [], "usage": usage, "timings": {}})
        await answering.event("[DONE]")
        await answering.end_stream()

    def _chunk(self, is_chat: bool, reason: str | None = None, **delta: Any) -> dict[str, Any]:
        said = {"delta": delta} if is_chat else {"text": delta.get("content") or ""}
        return {"id": self.name, "created": 1, "model": "m", "choices": [{"index": 0, **said, "finish_reason": reason}]}

    async def _stream_message(self, answering: Answering, body: dict[str, Any]) -> None:
        self.name = answering.seen.headers["authorization"].removeprefix("Bearer token-of-")
        self.streams.append(self.name)
        dies_after = self.deaths.pop(0)
        await answering.start_stream()
        usage = {"input_tokens": 4, "cache_read_input_tokens": 1, "output_tokens": 0}
        events: list[tuple[str, dict[str, Any]]] = [
            ("message_start", {"message": {"id": f"msg_{self.name}", "type": "message", "role": "assistant",
             "content": [], "model": "m", "stop_reason": None, "stop_sequence": None, "usage": usage}}),
            ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
            *(("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": word}})
              for word in self.words),
        ]  # fmt: skip
        for at, (kind, fields) in enumerate(events):
            if at == dies_after + 2:
                answering.die()
                return
            await answering.chunk(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())


@asynccontextmanager
async def streamed(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], **more: Any
) -> AsyncIterator[httpx.Response]:
    async with client.stream("POST", path, json={"model": "m", "stream": True, **body}, **more) as answer:
        yield answer


async def events_of(client: httpx.AsyncClient, path: str, body: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """All events of a stream that ends as a stream should."""
    async with streamed(client, path, body, **more) as answer:
        assert answer.status_code == 200
        lines = [line async for line in answer.aiter_lines()]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    if path in (CHAT, COMPLETIONS):
        assert data.pop() == "[DONE]"
    return [json.loads(value) for value in data]


def chat_text(events: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": QUESTION}]},
    COMPLETIONS: {"prompt": QUESTION},
    MESSAGES: {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 100},
    RESPONSES: {"input": QUESTION},
}
USAGE = {"stream_options": {"include_usage": True}}


async def two_replicas(
    gateway: RunningGateway, replica: Start, engine: Engine, *, kind: str = ASSISTANT_PREFILL, **more: Any
) -> None:
    replicas = [await replica("a"), await replica("b")]
    for one in replicas:
        one.script = engine
    gateway.serve("m", *replicas, continuation=kind, **more)


@pytest.mark.parametrize("kind", [ASSISTANT_PREFILL, CONTINUE_FINAL_MESSAGE])
@pytest.mark.parametrize("dies_after", range(len(WORDS)))
async def test_a_chat_goes_on_where_it_broke_off(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, dies_after: int, kind: str
) -> None:
    engine = Engine(dies_after)
    await two_replicas(gateway, replica, engine, kind=kind)
    events = await events_of(client, CHAT, {**BODIES[CHAT], **USAGE})
    first, second = engine.streams
    assert {first, second} == {"a", "b"}
    assert chat_text(events) == text_of(WORDS)
    assert {event["id"] for event in events} == {first}
    choices = [choice for event in events for choice in event["choices"]]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert sum("role" in choice["delta"] for choice in choices) == 1
    assert [event["usage"] for event in events if event.get("usage")] == [
        {"prompt_tokens": 5, "completion_tokens": len(WORDS), "total_tokens": 5 + len(WORDS)}
    ]
    assert gateway.open_requests() == 0
    metrics = gateway.metrics()
    place = f'model="m",node="node-{second}"'
    assert f'corral_tokens_total{{{place},direction="in"}} 5' in metrics
    assert f'corral_tokens_total{{{place},direction="out"}} {len(WORDS)}' in metrics
    assert f'corral_requests_total{{{place},status="200"}} 1' in metrics
    assert f'corral_requests_total{{model="m",node="node-{first}"' not in metrics
    assert f"corral_continued_answers_total{{{place}}} 1" in metrics


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("name", ["", "their-name"], ids=["same-name", "another-name"])
async def test_an_answer_of_an_attached_server_goes_on_at_another_one(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str, name: str
) -> None:
    engine = Engine(3)
    servers = [await replica("a"), await replica("b")]
    for one in servers:
        one.script = engine
    routes = [one.attached_route(model=name, continuation=CONTINUE_FINAL_MESSAGE) for one in servers]
    gateway.serve_routes("m", *routes)
    events = await events_of(client, path, BODIES[path])
    assert {*engine.streams} == {"a", "b"}
    text = json.dumps([event for event in events if event.get("type") != "response.completed"], ensure_ascii=False)
    assert all(text.count(json.dumps(word, ensure_ascii=False)) == 1 for word in WORDS)
    if path == CHAT:
        assert chat_text(events) == text_of(WORDS)
        assert {event["model"] for event in events} == {"m"}
    rest = [seen.json() for one in servers for seen in one.seen if seen.json().get("continue_final_message")]
    assert rest
    assert {body["model"] for body in rest} == {name or "m"}
    assert gateway.open_requests() == 0


async def test_an_answer_goes_on_at_the_attached_server_that_can_continue_one(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    engine = Engine(3)
    servers = [await replica(name) for name in "abc"]
    for one in servers:
        one.script = engine
    first, *others = servers
    gateway.serve_routes("m", first.attached_route())
    async with streamed(client, CHAT, BODIES[CHAT]) as answer:
        assert "cannot continue a text" in (await answer.aread()).decode()
    gateway.gateway.table.apply(gateway.routes.snapshot)
    engine.deaths = [3]
    gateway.serve_routes(
        "m", first.attached_route(weight=1000), others[0].attached_route(),
        others[1].attached_route(continuation=ASSISTANT_PREFILL),
    )  # fmt: skip
    for endpoint in gateway.gateway.table.endpoints():
        endpoint.avoid_until_s = 0.0
    assert chat_text(await events_of(client, CHAT, BODIES[CHAT])) == text_of(WORDS)
    assert engine.streams[-1] == "c"


async def test_a_text_completion_goes_on_too(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    await two_replicas(gateway, replica, Engine(3))
    events = await events_of(client, COMPLETIONS, BODIES[COMPLETIONS])
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == text_of(WORDS)
    assert not any(event.get("usage") for event in events), "the client did not ask for it"


async def test_the_limit_of_tokens_holds_for_the_whole_answer(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    await two_replicas(gateway, replica, Engine(2))
    events = await events_of(client, CHAT, {**BODIES[CHAT], **USAGE, "max_tokens": 6})
    assert chat_text(events) == text_of(WORDS[:6])
    assert [event["usage"]["completion_tokens"] for event in events if event.get("usage")] == [6]


async def test_an_answer_that_had_said_all_it_may_is_only_ended(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    """The replica died after its last token, before it said so."""
    engine = Engine(3)
    await two_replicas(gateway, replica, engine)
    events = await events_of(client, CHAT, {**BODIES[CHAT], **USAGE, "max_tokens": 3})
    assert chat_text(events) == text_of(WORDS[:3])
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    assert reasons == ["length"]
    assert {event["object"] for event in events[-2:]} == {"chat.completion.chunk"}
    assert [event["usage"]["completion_tokens"] for event in events if event.get("usage")] == [3]
    assert len(engine.streams) == 1, "no replica was asked for more text"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_continued_answer_that_its_client_leaves_counts_all_that_was_said(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str
) -> None:
    engine, holds = Engine(2), asyncio.Event()

    async def script(answering: Answering) -> None:
        if not answering.seen.json().get("stream") or not engine.streams:
            await engine(answering)
            return
        await answering.start_stream()
        for word in engine.words[2:5]:
            await answering.event({"id": "b", "choices": [{"index": 0, "delta": {"content": word}}]})
        await holds.wait()

    for one in (replicas := [await replica("a"), await replica("b")]):
        one.script = script
    gateway.serve("m", *replicas, continuation=ASSISTANT_PREFILL)
    async with streamed(client, path, BODIES[path]) as answer:
        seen = ""
        async for line in answer.aiter_lines():
            seen += line
            if WORDS[4].strip() in seen:
                break
    await until(lambda: gateway.open_requests() == 0, "the request has ended")
    holds.set()
    counted = [line for line in gateway.metrics().splitlines() if line.startswith("corral_tokens_total")]
    counts = {way: sum(int(line.split()[-1]) for line in counted if f'"{way}"' in line) for way in ("in", "out")}
    assert counts == {"in": 5, "out": 5}


async def test_the_least_tokens_of_an_answer_hold_for_the_whole_answer(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    replicas, engine = [await replica("a"), await replica("b")], Engine(2)
    for one in replicas:
        one.script = engine
    gateway.serve("m", *replicas, continuation=ASSISTANT_PREFILL)
    await events_of(client, CHAT, {**BODIES[CHAT], "min_tokens": 5, "max_tokens": 8})
    sent = [seen.json() for one in replicas for seen in one.seen]
    assert sorted(body["min_tokens"] for body in sent if body.get("stream")) == [3, 5]
    assert not any("min_tokens" in body for body in sent if not body.get("stream")), "one token is counted with"


async def test_an_answer_is_continued_at_most_twice(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    replicas = [await replica(name) for name in "abcd"]
    engine = Engine(2, 2, 2)
    for one in replicas:
        one.script = engine
    gateway.serve("m", *replicas, continuation=ASSISTANT_PREFILL)
    text, error = await broken_off(client, CHAT, BODIES[CHAT])
    assert text == text_of(WORDS[:5])  # the second one said the line break again
    assert error["error"]["code"] == "replica_failed"
    assert "it already was 2 times" in error["error"]["message"]
    assert gateway.open_requests() == 0


async def broken_off(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], **more: Any
) -> tuple[str, dict[str, Any]]:
    """The text of a stream that ends with an error, and the error."""
    async with streamed(client, path, body, **more) as answer:
        lines = [line async for line in answer.aiter_lines()]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return chat_text([event for event in data if "choices" in event]), data[-1]


@pytest.mark.parametrize(
    ("engine", "body", "headers", "kind", "why"),
    [
        pytest.param(Engine(2), {}, {}, "", "cannot continue a text", id="engine"),
        pytest.param(Engine(2), {}, {"X-Corral-No-Continuation": "1"}, ASSISTANT_PREFILL, "not allow", id="header"),
        pytest.param(Engine(2), {"n": 2}, {}, ASSISTANT_PREFILL, "several choices", id="choices"),
        pytest.param(Engine(2), {"logprobs": True}, {}, ASSISTANT_PREFILL, "log probabilities", id="logprobs"),
        pytest.param(
            Engine(2), {"response_format": {"type": "json_object"}}, {}, ASSISTANT_PREFILL, "constrained", id="form"
        ),
        pytest.param(Engine(2), {"tool_choice": "required"}, {}, ASSISTANT_PREFILL, "must call a tool", id="forced"),
        pytest.param(
            Engine(2, tool_calls=[{"index": 0, "function": {"name": "f"}}]), {}, {}, ASSISTANT_PREFILL, "a tool call",
            id="tool",
        ),
        pytest.param(Engine(2, reasoning_content="hm"), {}, {}, ASSISTANT_PREFILL, "reasoning", id="reasoning"),
        pytest.param(
            Engine(2),
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            {},
            ASSISTANT_PREFILL,
            "images",
            id="images",
        ),
    ],
)  # fmt: skip
async def test_what_cannot_be_continued_ends_with_an_error_that_says_why(
    gateway: RunningGateway,
    client: httpx.AsyncClient,
    replica: Start,
    engine: Engine,
    body: dict[str, Any],
    headers: dict[str, str],
    kind: str,
    why: str,
) -> None:
    await two_replicas(gateway, replica, engine, kind=kind)
    text, error = await broken_off(client, CHAT, {**BODIES[CHAT], **body}, headers=headers)
    assert text == text_of(WORDS[:2])
    assert error["error"]["code"] == "replica_failed"
    assert why in error["error"]["message"]
    assert len(engine.streams) == 1
    assert gateway.open_requests() == 0


@pytest.mark.parametrize("endpoints", [frozenset[str](), NATIVE], ids=["translated", "relayed"])
async def test_an_anthropic_message_goes_on(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, endpoints: frozenset[str]
) -> None:
    await two_replicas(gateway, replica, Engine(3), endpoints=endpoints)
    events = await events_of(client, MESSAGES, BODIES[MESSAGES])
    kinds = [event["type"] for event in events if event["type"] not in ("ping", "content_block_delta")]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta") == text_of(
        WORDS
    )
    assert {event["index"] for event in events if "index" in event} == {0}
    usage = events[-2]["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 5
    assert usage["output_tokens"] == len(WORDS)
    assert gateway.open_requests() == 0


async def test_a_response_goes_on(gateway: RunningGateway, client: httpx.AsyncClient, replica: Start) -> None:
    await two_replicas(gateway, replica, Engine(3))
    events = await events_of(client, RESPONSES, BODIES[RESPONSES])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text_of(WORDS)
    done = events[-1]["response"]
    assert (events[-1]["type"], done["output"][0]["content"][0]["text"]) == ("response.completed", text_of(WORDS))
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (5, len(WORDS))


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_an_answer_in_ollamas_form_goes_on(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str
) -> None:
    await two_replicas(gateway, replica, Engine(3))
    body = {"messages": [{"role": "user", "content": QUESTION}], "prompt": QUESTION}
    async with streamed(client, path, body) as answer:
        lines = [json.loads(line) async for line in answer.aiter_lines() if line]
    said = [line["message"]["content"] if path == "/api/chat" else line["response"] for line in lines]
    assert "".join(said) == text_of(WORDS)
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert (lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]) == (5, len(WORDS))


async def test_half_an_event_is_never_passed_on(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    engine = Engine()
    one, two = await replica("a"), await replica("b")
    has_died = asyncio.Event()

    async def script(answering: Answering) -> None:
        if not answering.seen.json().get("stream") or has_died.is_set():
            await engine(answering)
            return
        has_died.set()
        await answering.start_stream()
        first = json.dumps({"id": "x", "choices": [{"index": 0, "delta": {"content": WORDS[0]}}]})
        await answering.chunk(f"data: {first}\n\ndata: {first[:20]}".encode())
        await answering.chunk(f"{first[20:40]}".encode())
        answering.die()

    one.script = two.script = script
    gateway.serve("m", one, two, continuation=ASSISTANT_PREFILL)
    assert chat_text(await events_of(client, CHAT, BODIES[CHAT])) == text_of(WORDS)


@pytest.mark.parametrize("headers", [{}, {"X-Corral-No-Continuation": "1"}], ids=["any", "not-to-be-continued"])
async def test_a_replica_that_dies_between_head_and_first_token_is_replaced(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, headers: dict[str, str]
) -> None:
    """Whatever the request: nothing of the answer is known to the client."""
    engine = Engine()
    one, two = await replica("a"), await replica("b")
    has_died = asyncio.Event()

    async def script(answering: Answering) -> None:
        if has_died.is_set():
            await engine(answering)
            return
        has_died.set()
        await answering.start_stream()
        await answering.chunk(b": still here\n\n")
        answering.die()

    one.script = two.script = script
    gateway.serve("m", one, two)
    body = {**BODIES[CHAT], "response_format": {"type": "json_object"}}
    events = await events_of(client, CHAT, body, headers=headers)
    assert chat_text(events) == text_of(WORDS)
    assert gateway.open_requests() == 0


async def test_a_client_that_leaves_ends_the_continuation(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("a"), await replica("b")
    engine, arrived = Engine(3), asyncio.Event()

    async def script(answering: Answering) -> None:
        if engine.streams:
            arrived.set()
            await answering.wait_for_hangup()
        else:
            await engine(answering)

    one.script = two.script = script
    gateway.serve("m", one, two, continuation=ASSISTANT_PREFILL)
    async with streamed(client, CHAT, BODIES[CHAT]):
        await asyncio.wait_for(arrived.wait(), 30)
    await until(lambda: one.open + two.open == 0, "the replica is told", within_s=30)
    assert gateway.open_requests() == 0


async def test_an_answer_that_has_begun_waits_anew_however_long_ago_its_request_was_queued(replica: Start) -> None:
    limits = GatewayLimits(queue_wait_s=1.5)
    engine, holds = Engine(), asyncio.Event()
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def script(answering: Answering) -> None:
        name = answering.seen.headers["authorization"].removeprefix("Bearer token-of-")
        if answering.seen.json().get("user") == "busy":
            await gates[name].wait()
            await answering.json(completion(name))
        elif name == "a":
            await answering.start_stream()
            await answering.event({"id": "a", "choices": [{"index": 0, "delta": {"content": engine.words[0]}}]})
            await holds.wait()
            answering.die()
        else:
            await engine(answering)

    replicas = [await replica("a"), await replica("b")]
    for one in replicas:
        one.script = script
    async with running_gateway(limits=limits) as gateway, calling(gateway) as client:
        gateway.serve("m", *replicas, continuation=ASSISTANT_PREFILL, capacity=1)
        now_s = gateway.gateway.now_s
        busy = [asyncio.create_task(client.post(CHAT, json={**BODIES[CHAT], "model": "m", "user": "busy"}))
                for _ in range(2)]  # fmt: skip
        await until(lambda: all(one.open == 1 for one in replicas), "both replicas are busy")
        answer = asyncio.create_task(events_of(client, CHAT, BODIES[CHAT]))
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 1, "it waits")
        queued_at_s = now_s()
        gates["a"].set()
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 0, "it is sent")
        await until(lambda: now_s() > queued_at_s + limits.queue_wait_s, "its first deadline passes")
        holds.set()
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 1, "it waits again")
        died_at_s = now_s()
        await until(lambda: now_s() > died_at_s + 2 * TICK_EVERY_S, "the deadlines were checked")
        gates["b"].set()
        assert chat_text(await answer) == text_of(WORDS)
        assert {one.status_code for one in await asyncio.gather(*busy)} == {200}


async def test_a_replica_that_refuses_to_continue_ends_the_answer_with_an_error(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("a"), await replica("b")
    engine = Engine(3)

    async def script(answering: Answering) -> None:
        if engine.streams:
            await answering.json({"error": {"message": "prefill is not allowed"}}, status=400)
        else:
            await engine(answering)

    one.script = two.script = script
    gateway.serve("m", one, two, continuation=ASSISTANT_PREFILL)
    text, error = await broken_off(client, CHAT, BODIES[CHAT])
    assert text == text_of(WORDS[:3])
    assert "refused to continue it with status 400" in error["error"]["message"]
    assert 'corral_broken_answers_total{model="m"' in gateway.metrics()
    assert gateway.open_requests() == 0


DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "eA=="}}
FILE = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
COMPUTER = {"type": "computer_20250124", "name": "computer", "display_width_px": 9, "display_height_px": 9}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"messages": [{"role": "user", "content": [DOCUMENT]}]}, "'document'"),
        ({"messages": [{"role": "user", "content": [FILE]}]}, "'image'"),
        ({"tools": [COMPUTER]}, "computer_20250124"),
        ({"max_tokens": None}, "max_tokens"),
    ],
    ids=["document", "file", "computer", "no-limit"],
)
async def test_a_relayed_message_that_cannot_be_translated_ends_with_an_error_that_says_why(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, changes: dict[str, Any], why: str
) -> None:
    await two_replicas(gateway, replica, Engine(2), endpoints=NATIVE)
    body = {name: value for name, value in {**BODIES[MESSAGES], **changes}.items() if value is not None}
    _, error = await broken_off(client, MESSAGES, body, timeout=5)
    assert error["type"] == "error"
    assert "was not continued at another replica: " in error["error"]["message"]
    assert why in error["error"]["message"]
    assert gateway.open_requests() == 0


def message_events(reason: str) -> list[bytes]:
    """A message up to its last event but one."""
    usage = {"input_tokens": 4, "cache_read_input_tokens": 1, "output_tokens": 0}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
         "model": "m", "stop_reason": None, "stop_sequence": None, "usage": usage}}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "One"}}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 9}}),
    ]  # fmt: skip
    return [f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode() for kind, fields in events]


@pytest.mark.parametrize("half", [b"", b'event: message_stop\ndata: {"ty'], ids=["whole-events", "half-an-event"])
@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_message_that_lacks_only_its_end_is_ended_with_its_own_reason(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, replicas: int, half: bytes
) -> None:
    async def script(answering: Answering) -> None:
        await answering.start_stream()
        for event in message_events("max_tokens"):
            await answering.chunk(event)
        if half:
            await answering.chunk(half)
        answering.die()

    started = [await replica(name) for name in "ab"[:replicas]]
    for one in started:
        one.script = script
    gateway.serve("m", *started, continuation=ASSISTANT_PREFILL, endpoints=NATIVE)
    body = {**BODIES[MESSAGES], "messages": [{"role": "user", "content": [DOCUMENT]}]}
    events = await events_of(client, MESSAGES, body)
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"] == ["max_tokens"]
    assert sum(len(one.seen) for one in started) == 1, "no other replica was asked"
    assert gateway.open_requests() == 0
    counted = [line for line in gateway.metrics().splitlines() if line.startswith("corral_tokens_total")]
    assert {line.split('direction="')[1] for line in counted if line[-2:] != " 0"} == {'in"} 5', 'out"} 9'}


@pytest.mark.parametrize("is_partial", [False, True], ids=["openai", "anthropic"])
async def test_a_chat_that_lacks_only_its_end_is_ended_without_its_usage_twice(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, is_partial: bool
) -> None:
    async def script(answering: Answering) -> None:
        await answering.start_stream()
        if is_partial:
            for event in message_events("max_tokens"):
                await answering.chunk(event)
        else:
            for delta, finish in (({"content": "One"}, None), ({}, "length")):
                await answering.event({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
            await answering.event({"id": "c", "choices": [], "usage": usage})
        answering.die()

    server = await replica("a")
    server.script = script
    protocol = UpstreamProtocol.ANTHROPIC if is_partial else UpstreamProtocol.OPENAI
    gateway.serve_routes("m", server.attached_route(protocol=protocol))
    for extra, usages in (({}, 0), (USAGE, 1)):
        if not is_partial and not usages:
            continue
        events = await events_of(client, CHAT, {**BODIES[CHAT], **extra})
        reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
        assert [reason for reason in reasons if reason] == ["length"]
        assert [event["usage"]["completion_tokens"] for event in events if event.get("usage")] == [9] * usages
    assert gateway.open_requests() == 0


async def test_an_event_that_comes_with_a_comment_is_not_repeated(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    engine, has_died = Engine(), asyncio.Event()

    async def script(answering: Answering) -> None:
        if has_died.is_set() or not answering.seen.json().get("stream"):
            await engine(answering)
            return
        has_died.set()
        first = json.dumps({"id": "x", "choices": [{"index": 0, "delta": {"content": WORDS[0]}}]})
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        data = f": ping\n\ndata: {first}\n\n".encode()
        if with_head:
            await answering.send(b"%b%x\r\n%b\r\n" % (head, len(data), data))
        else:
            await answering.send(head)
            await answering.chunk(b": first\n\n")
            await arrived.wait()
            await answering.chunk(data)
        answering.die()

    replicas = [await replica("a"), await replica("b")]
    for one in replicas:
        one.script = script
    gateway.serve("m", *replicas, continuation=ASSISTANT_PREFILL)
    for with_head in (True, False):
        has_died.clear()
        arrived = asyncio.Event()
        async with streamed(client, CHAT, BODIES[CHAT]) as answer:
            lines = []
            async for line in answer.aiter_lines():
                arrived.set()
                lines.append(line)
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
        assert chat_text([json.loads(value) for value in data]) == text_of(WORDS), with_head


async def test_an_answer_that_cannot_be_translated_does_not_keep_others_at_an_unresponsive_replica(
    replica: Start,
) -> None:
    limits = GatewayLimits(probe_after_s=0.3, probe_within_s=0.2, probe_every_s=0.1, unresponsive_s=2.0)
    engine, hung = Engine(), await replica("hung")

    async def begin_and_hang(answering: Answering) -> None:
        if answering.seen.path == MESSAGES:
            await answering.start_stream()
            for event in message_events("max_tokens")[:3]:
                await answering.chunk(event)
        await answering.wait_for_hangup()

    hung.script = begin_and_hang
    async with running_gateway(limits=limits) as gateway, calling(gateway) as client:
        gateway.serve("m", hung, continuation=ASSISTANT_PREFILL, endpoints=NATIVE)
        bodies = [{**BODIES[MESSAGES], "messages": [{"role": "user", "content": [DOCUMENT]}]}] * 3
        begun = [asyncio.create_task(broken_off(client, MESSAGES, body)) for body in bodies]
        await until(lambda: hung.open == 3, "the replica has three messages")
        waiting = asyncio.create_task(events_of(client, CHAT, BODIES[CHAT]))
        await until(lambda: hung.open >= 4, "and a chat")
        other = await replica("other")
        other.script = engine
        gateway.serve("m", hung, other, continuation=ASSISTANT_PREFILL, endpoints=NATIVE)
        assert chat_text(await waiting) == text_of(WORDS)
        for _, error in await asyncio.gather(*begun):
            assert "'document'" in error["error"]["message"]
        assert gateway.open_requests() == 0
