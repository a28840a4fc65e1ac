"""Limits of keys at a gateway on a real socket: who is admitted, what clients are told, and what counts."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx
import pytest

from corral.core.access.calendar import DAY_MS
from corral.core.access.key_limits import LimitsInForce, Priority
from corral.core.access.key_meter import METER, Refusal
from corral.core.access.token_estimate import OUTPUT_TOKENS
from corral.core.replicas.attached import UpstreamProtocol
from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from corral.frontend.gateway.key_meters import KeyMeters
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limits import GatewayLimits
from corral.store.serving.usage import KeyTokens
from harness.gateway import (
    KEY,
    OTHER_KEY,
    Answering,
    Replica,
    RunningGateway,
    calling,
    completion,
    running_gateway,
)
from harness.waiting import until


class HeldLoads:
    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def ensure(self, model: str, *, within_s: float) -> None:
        await self.done.wait()

    def describe(self, model: str) -> str:
        return ""


Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
KEY_ID = "key-1"
LEFT = "anthropic-ratelimit-tokens-remaining"


def limit(gateway: RunningGateway, key: str = KEY, **limits: Any) -> None:
    found = LimitsInForce(**limits)
    gateway.keys.known[key] = replace(gateway.keys.known[key], limits=found, priority=found.priority)


async def test_a_key_over_its_requests_per_minute_is_told_which_limit_what_is_left_and_when_to_retry(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    gateway.serve("m", await replica("one"))
    limit(gateway, requests_per_minute=3)
    left = []
    for _ in range(3):
        answer = await client.post(CHAT, json=BODY)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-ratelimit-limit-requests"] == "3"
        left.append(answer.headers["x-ratelimit-remaining-requests"])
    assert left == ["2", "1", "0"]
    refused = await client.post(CHAT, json=BODY)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"] == f"{refused.headers['retry-after']}s"
    body = refused.json()
    assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "'one' is limited to 3 requests per minute: 3 used, 0 left" in body["error"]["message"]
    assert body["limit"] | {"resets_in_s": 0} == {
        "name": "requests_per_minute", "limit": 3, "used": 3, "remaining": 0, "resets_in_s": 0,
    }  # fmt: skip
    assert 'corral_limited_requests_total{limit="requests_per_minute"} 1' in gateway.metrics()


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
async def test_answers_that_no_replica_gives_tell_the_limits_too(replica: Start, path: str) -> None:
    one = await replica("one")

    async def lack(answering: Answering) -> None:
        await answering.json({"detail": "Not Found"}, status=404)

    async with running_gateway(limits=GatewayLimits(queue=0)) as gateway, calling(gateway) as client:
        gateway.serve("m", one)
        limit(gateway, requests_per_minute=10, tokens_per_minute=100_000)
        gateway.serve("away")
        gateway.routes.snapshot = replace(
            gateway.routes.snapshot,
            public=(PublicRoute(name="chat", tiers=((RouteTarget("m"),), (RouteTarget("away"),))),),
        )
        gateway.gateway.table.apply(gateway.routes.snapshot)
        name = "x-ratelimit-remaining-requests" if path == CHAT else "anthropic-ratelimit-requests-remaining"
        body = {**BODY, "max_tokens": 5}

        async def ask(model: str, *, status: int) -> httpx.Headers:
            answer = await client.post(path, json={**body, "model": model})
            assert answer.status_code == status, answer.text
            return answer.headers

        one.script = lack
        held = [await ask(model, status=404) for model in ("m", "chat")]
        assert [headers.get("x-corral-model") for headers in held] == [None, "m"]
        full = [await ask("away", status=429)]
        await one.kill()
        full += [await ask(model, status=429) for model in ("m", "chat")]
        assert full[2]["x-corral-model"] == "away"
        assert full[2]["x-corral-fallback"] == "failed"
        assert [int(headers[name]) for headers in (*held, *full)] == [9, 8, 7, 6, 5]
        assert all(len(headers.get_list(name)) == 1 for headers in (*held, *full))


async def test_simultaneous_requests_repeat_what_is_left_for_a_moment_each_in_its_own_protocol(replica: Start) -> None:
    one = await replica("one")
    release = asyncio.Event()

    async def hold_the_first(answering: Answering) -> None:
        if len(one.seen) == 1:
            await release.wait()
        await answering.json(completion("one"))

    one.script = hold_the_first
    async with running_gateway() as gateway, calling(gateway) as client:
        gateway.serve("m", one)
        limit(gateway, requests_per_minute=10, tokens_per_minute=100_000)
        held = asyncio.ensure_future(client.post(CHAT, json=BODY))
        await until(lambda: one.open == 1, "it is at the replica")
        meter = gateway.gateway.meters.find(KEY_ID)
        assert meter is not None

        async def left(path: str = CHAT, name: str = "x-ratelimit-remaining-requests") -> int:
            answer = await client.post(path, json={**BODY, "max_tokens": 5})
            assert answer.status_code == 200, answer.text
            return int(answer.headers[name])

        meter.lines_until_s = gateway.gateway.now_s() + 60
        assert [await left(), await left()] == [9, 9]
        assert await left("/v1/messages", "anthropic-ratelimit-requests-remaining") == 6
        meter.lines_until_s = 0.0
        assert await left("/v1/messages", "anthropic-ratelimit-requests-remaining") == 5
        release.set()
        assert (await held).headers["x-ratelimit-remaining-requests"] == "9"
        assert [await left(), await left()] == [4, 3], "one after the other, each reads what is left after it"


async def test_a_key_without_limits_gets_no_limit_headers(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    gateway.serve("m", await replica("one"))
    answer = await client.post(CHAT, json=BODY)
    assert not [name for name in answer.headers if "ratelimit" in name]


async def test_tokens_are_estimated_when_a_request_comes_and_corrected_when_it_ends(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    release = asyncio.Event()

    async def wait_then_answer(answering: Answering) -> None:
        await release.wait()
        await answering.json(completion("one"))

    one.script = wait_then_answer
    gateway.serve("m", one)
    limit(gateway, tokens_per_minute=1000)
    first = asyncio.ensure_future(client.post(CHAT, json={**BODY, "max_tokens": 200}))
    await until(lambda: one.open == 1, "it is at the replica")
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    assert 200 < meter.tokens < 260
    release.set()
    answer = await first
    assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
    assert 740 < int(answer.headers["x-ratelimit-remaining-tokens"]) < 800
    assert gateway.gateway.meters.find(KEY_ID) is meter
    assert (meter.tokens, meter.day_tokens, meter.open) == (10, 10, 0)


async def test_only_requests_that_came_while_the_key_had_limits_count_towards_them(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    """All three answers are counted together."""
    gateway.serve("m", await replica("one"))
    for limits in (None, LimitsInForce(tokens_per_minute=1000), None):
        gateway.keys.known[KEY] = replace(gateway.keys.known[KEY], limits=limits)
        assert (await client.post(CHAT, json=BODY)).status_code == 200
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    assert (meter.requests, meter.tokens, meter.day_tokens, meter.open) == (1, 10, 10, 0)


STREAMED = {**BODY, "stream": True, "max_tokens": 9}


@pytest.mark.parametrize("server", ["replica", "attached"])
@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        pytest.param(CHAT, STREAMED, b"[DONE]\n\n", id="chat"),
        pytest.param("/v1/messages", STREAMED, b'"message_stop"}\n\n', id="messages"),
        pytest.param("/api/chat", STREAMED, b"}\n", id="ollama"),
        pytest.param("/v1/responses", {"model": "m", "stream": True, "input": "hi"}, b"}\n\n", id="responses"),
    ],
)
async def test_a_stream_counts_what_it_reports_and_what_it_sent_when_its_client_leaves(
    gateway: RunningGateway,
    client: httpx.AsyncClient,
    replica: Start,
    path: str,
    body: dict[str, Any],
    last: bytes,
    server: str,
) -> None:
    one = await replica("one")
    usage = {"prompt_tokens": 30, "completion_tokens": 70}
    ending = "usage"

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        for _ in range(50):
            await answering.event({"choices": [{"delta": {"content": "x"}}]})
        if ending == "hold":
            await answering.wait_for_hangup()
            return
        if ending == "usage":
            await answering.event({"choices": [], "usage": usage})
        await answering.event("[DONE]")
        await answering.end_stream()

    one.script = stream
    # With a name of its own, an attached server's answers are rewritten in every protocol.
    gateway.serve_routes("m", one.route() if server == "replica" else one.attached_route(model="theirs"))
    limit(gateway, tokens_per_minute=100_000)
    async with client.stream("POST", path, json=body) as answer:
        assert answer.headers["x-ratelimit-limit-tokens" if path != "/v1/messages" else LEFT] != "0"
        assert (await answer.aread()).endswith(last)
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    assert (meter.tokens, meter.day_tokens) == (100, 100)
    ending = "hold"
    async with client.stream("POST", path, json=body) as answer:
        parts = answer.aiter_raw()
        seen = b""
        while seen.count(b'"x"') < 50:
            seen += await anext(parts)
    await until(lambda: meter.open == 0, "the request is over")
    assert gateway.gateway.meters.find(KEY_ID) is meter
    prompt = meter.day_tokens - 150
    assert 0 < prompt < 50, "the prompt counts as estimated"
    assert meter.tokens == meter.day_tokens
    ending = "nothing"
    async with client.stream("POST", path, json=body) as answer:
        assert (await answer.aread()).endswith(last)
    assert gateway.gateway.meters.find(KEY_ID) is meter
    assert meter.day_tokens == 200 + 2 * prompt, "an engine that reports no usage"


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat"])
async def test_a_stream_of_anthropics_form_that_its_client_leaves_counts_what_it_sent(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str
) -> None:
    """Its first event tells the tokens of the prompt."""
    one = await replica("one")

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        message = {"content": [], "usage": {"input_tokens": 30, "output_tokens": 1}}
        await answering.event({"type": "message_start", "message": message})
        for _ in range(50):
            await answering.event(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
            )
        await answering.wait_for_hangup()

    one.script = stream
    gateway.serve_routes("m", one.attached_route(protocol=UpstreamProtocol.ANTHROPIC))
    limit(gateway, tokens_per_minute=100_000)
    async with client.stream("POST", path, json=STREAMED) as answer:
        parts = answer.aiter_raw()
        seen = b""
        while seen.count(b'"x"') < 50:
            seen += await anext(parts)
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    await until(lambda: meter.open == 0, "the request is over")
    assert gateway.gateway.meters.find(KEY_ID) is meter
    assert meter.day_tokens == 81


async def test_prompts_count_as_estimated_where_an_answer_does_not_tell_them_whatever_ends_with_it(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def answer(answering: Answering) -> None:
        body = answering.seen.json()
        if not body.get("stream"):
            told = {} if body.get("silent") else {"usage": {"prompt_tokens": 4, "completion_tokens": 2}}
            await answering.json({"choices": [], **told})
            return
        await answering.start_stream()
        for _ in range(10):
            await answering.event({"choices": [{"delta": {"content": "x"}}]})
        await answering.event("[DONE]")
        await answering.end_stream()

    one.script = answer
    gateway.serve("m", one)
    limit(gateway, tokens_per_minute=1_000_000, tokens_per_day=1_000_000)
    long = {**BODY, "messages": [{"role": "user", "content": "x" * 40_000}]}
    for _ in range(10):
        assert (await client.post(CHAT, json={**long, "stream": True})).status_code == 200
    assert (await client.post(CHAT, json=BODY)).status_code == 200
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    assert 100_106 < meter.tokens < 100_106 + 10 * 40
    assert meter.day_tokens == meter.tokens == meter.own_spent
    before = meter.day_tokens
    assert (await client.post(CHAT, json={**long, "silent": True})).status_code == 200
    assert gateway.gateway.meters.find(KEY_ID) is meter
    assert 10_000 < meter.day_tokens - before < 10_040
    gateway.gateway.accounting.fold()
    counted = dict(line.rsplit(" ", 1) for line in gateway.metrics().splitlines() if not line.startswith("#"))
    spent = sum(float(value) for name, value in counted.items() if name.startswith("corral_tokens_total"))
    assert spent == meter.day_tokens, "usage counts the same"


async def test_a_request_over_the_limit_reaches_no_replica_and_counts_nothing(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    limit(gateway, tokens_per_minute=300)
    assert (await client.post(CHAT, json=BODY)).status_code == 200
    refused = await client.post(CHAT, json={**BODY, "messages": [{"role": "user", "content": "x" * 4000}]})
    assert refused.json()["limit"]["name"] == "tokens_per_minute"
    assert refused.headers["x-ratelimit-remaining-tokens"] == "290"
    assert len(one.seen) == 1
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    assert (meter.requests, meter.tokens) == (1, 10)


async def test_concurrent_requests_are_limited_and_a_slot_is_free_when_one_ends_or_its_client_leaves(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    release = asyncio.Event()

    async def wait_then_answer(answering: Answering) -> None:
        await release.wait()
        await answering.json(completion("one"))

    one.script = wait_then_answer
    gateway.serve("m", one)
    limit(gateway, concurrent_requests=2)
    calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(2)]
    await until(lambda: one.open == 2, "both are at the replica")
    refused = await client.post(CHAT, json=BODY)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["limit"] == {
        "name": "concurrent_requests", "limit": 2, "used": 2, "remaining": 0, "resets_in_s": 1,
    }  # fmt: skip
    calls[0].cancel()
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    await until(lambda: meter.open == 1, "its client has left")
    calls.append(asyncio.ensure_future(client.post(CHAT, json=BODY)))
    await until(lambda: meter.open == 2, "another is admitted")
    release.set()
    assert [answer.status_code for answer in await asyncio.gather(*calls[1:])] == [200, 200]
    assert meter.open == 0


async def test_a_request_that_no_replica_answers_gives_its_tokens_back(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def refuse(answering: Answering) -> None:
        await answering.json({"error": {"message": "no"}}, status=400)

    one.script = refuse
    gateway.serve("m", one)
    limit(gateway, tokens_per_minute=1000)
    assert (await client.post(CHAT, json=BODY)).status_code == 400
    gateway.serve("empty")
    assert (await client.post(CHAT, json={**BODY, "model": "empty"})).status_code == 503
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    assert (meter.requests, meter.tokens, meter.day_tokens, meter.open) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    ("path", "headers", "body", "expected"),
    [
        pytest.param(
            "/v1/messages", {"anthropic-version": "2023-06-01"}, {"max_tokens": 5},
            lambda answer: (
                answer["type"] == "error" and answer["error"]["type"] == "rate_limit_error" and answer["limit"]
            ),
            id="anthropic",
        ),
        pytest.param(
            "/api/chat", {}, {"stream": False},
            lambda answer: "1 requests per minute" in answer["error"] and answer["limit"], id="ollama",
        ),
    ],
)  # fmt: skip
async def test_other_protocols_get_limits_in_their_own_form(
    gateway: RunningGateway,
    client: httpx.AsyncClient,
    replica: Start,
    path: str,
    headers: dict[str, str],
    body: dict[str, Any],
    expected: Callable[[Any], object],
) -> None:
    gateway.serve("m", await replica("one"))
    limit(gateway, requests_per_minute=1, tokens_per_minute=10_000)
    first = await client.post(path, json={**BODY, **body}, headers=headers)
    assert first.status_code == 200, first.text
    refused = await client.post(path, json={**BODY, **body}, headers=headers)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert expected(refused.json()), refused.text
    prefix = "anthropic-ratelimit-requests-" if headers else "x-ratelimit-"
    limits = {name for name in refused.headers if name.startswith(prefix)}
    own = {"anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining"}
    assert limits >= (own if headers else {"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"})
    if headers:
        assert refused.headers["anthropic-ratelimit-requests-reset"].endswith("Z")


async def test_a_key_over_its_daily_budget_is_told_not_to_retry(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    gateway.serve("m", await replica("one"))
    limit(gateway, tokens_per_day=200)
    gateway.gateway.meters.periods.day_ends_s = gateway.gateway.now_s() + 7200
    assert (await client.post(CHAT, json=BODY)).status_code == 200
    refused = await client.post(CHAT, json=BODY)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("7200", "false")


async def test_while_all_replicas_are_busy_a_high_priority_goes_first_and_a_low_one_still_gets_its_share(
    replica: Start,
) -> None:
    one = await replica("one")
    turns = asyncio.Semaphore(0)
    order: list[str] = []

    async def wait_then_answer(answering: Answering) -> None:
        await turns.acquire()
        order.append(answering.seen.json()["user"])
        await answering.json(completion("one"))

    one.script = wait_then_answer
    async with running_gateway() as gateway:
        gateway.serve("m", one, capacity=1)
        limit(gateway, KEY, priority=Priority.LOW)
        limit(gateway, OTHER_KEY, priority=Priority.HIGH)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:

            def call(key: str, who: str) -> asyncio.Task[httpx.Response]:
                headers = {"Authorization": f"Bearer {key}"}
                return asyncio.create_task(client.post(CHAT, json={**BODY, "user": who}, headers=headers))

            calls = [call(KEY, "low")]
            await until(lambda: one.open == 1, "the first is at the replica")
            calls += [call(KEY, "low") for _ in range(5)]
            await until(lambda: gateway.gateway.inflight.queue_depth("m") == 5, "five wait")
            calls += [call(OTHER_KEY, "high") for _ in range(20)]
            await until(lambda: gateway.gateway.inflight.queue_depth("m") == 25, "all wait")
            for _ in calls:
                turns.release()
            answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} == {200}
    assert order[1:].index("high") <= 1, order
    assert 1 <= order[1:18].count("low") <= 2, order


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_keys_that_wait_share_the_tokens_whatever_they_state_as_their_longest_answer(
    replica: Start, stream: bool
) -> None:
    """The long answers are of a key that states nothing, the short ones of one that states far more than it gets."""
    one = await replica("one")
    turns = asyncio.Semaphore(0)
    tokens = {"long": 4000, "short": 200}
    order: list[str] = []

    async def wait_then_answer(answering: Answering) -> None:
        body = answering.seen.json()
        who = body["user"]
        await turns.acquire()
        order.append(who)
        usage = {"prompt_tokens": 7, "completion_tokens": tokens[who]}
        if not body.get("stream"):
            await answering.json({**completion("one"), "usage": usage})
            return
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": "x"}}]})
        await answering.event({"choices": [], "usage": usage})
        await answering.event("[DONE]")
        await answering.end_stream()

    one.script = wait_then_answer
    async with running_gateway() as gateway:
        gateway.serve("m", one, capacity=2)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:

            def call(who: str) -> asyncio.Task[httpx.Response]:
                key, stated = (KEY, {}) if who == "long" else (OTHER_KEY, {"max_tokens": 32_000})
                headers = {"Authorization": f"Bearer {key}"}
                body = {**BODY, **stated, "user": who, "stream": stream}
                return asyncio.create_task(client.post(CHAT, json=body, headers=headers))

            calls = [call("long") for _ in range(2)]
            await until(lambda: one.open == 2, "they are at the replica")
            calls += [call(who) for who in ("long", "short") for _ in range(45)]
            await until(lambda: gateway.gateway.inflight.queue_depth("m") == 90, "all wait")
            for number in range(40):
                turns.release()
                await until(lambda: len(order) == number + 1 and one.open == 2, "the next is at the replica")  # noqa: B023
            turned = order[2:]
            assert turned.count("short") >= 30, order
            assert 1 <= turned.count("long") <= 5, order
            for _ in calls:
                turns.release()
            assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_a_client_that_leaves_before_the_first_byte_pays_for_its_prompt(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, stream: bool
) -> None:
    one = await replica("one")

    async def hold(answering: Answering) -> None:
        await answering.wait_for_hangup()

    one.script = hold
    gateway.serve("m", one)
    limit(gateway, tokens_per_day=20_500)
    body = {**BODY, "messages": [{"role": "user", "content": "x" * 40_000}], "max_tokens": 5, "stream": stream}
    for number in range(2):
        call = asyncio.create_task(client.post(CHAT, json=body))
        await until(lambda: len(one.seen) == number + 1, "it is at the replica")  # noqa: B023
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: one.open == 0, "its client has left")
    meter = gateway.gateway.meters.find(KEY_ID)
    assert meter is not None
    await until(lambda: meter.open == 0, "both have ended")
    assert 20_000 < meter.day_tokens < 20_100
    assert meter.own_spent == meter.day_tokens
    spent = f'corral_tokens_total{{model="m",node="node-one",direction="in"}} {meter.day_tokens}'
    assert spent in gateway.metrics(), "usage counts the same"
    refused = await client.post(CHAT, json=body)
    assert refused.json()["error"]["code"] == "insufficient_quota"


async def test_a_key_is_charged_for_a_prompt_that_a_replica_read_but_not_for_the_answer_that_it_did_not_get(
    replica: Start,
) -> None:
    one = await replica("one")

    async def hold(answering: Answering) -> None:
        await answering.wait_for_hangup()

    async with running_gateway() as gateway, calling(gateway) as client:
        one.script = hold
        gateway.serve("m", one, capacity=1)
        body = {**BODY, "messages": [{"role": "user", "content": "x" * 40_000}]}
        calls = [asyncio.create_task(client.post(CHAT, json=body)) for _ in range(2)]
        model = gateway.gateway.table.by_name["m"]
        await until(lambda: model.queue.length == 1, "one waits")
        charged: list[tuple[str, int, int]] = []
        correct = model.queue.correct

        class Watched(type(model.queue)):  # type: ignore[misc]  # the queue's own class, with its lines
            def correct(self, client: str, change: int, *, weight: int = 1) -> None:
                charged.append((client, change, weight))
                correct(client, change, weight=weight)

        model.queue.__class__ = Watched
        calls[0].cancel()
        await until(lambda: len(one.seen) == 2, "the other has its turn")
        calls[1].cancel()
        await until(lambda: bool(charged), "the turn is settled")
        assert charged == [(KEY_ID, -OUTPUT_TOKENS, 4)]
        await asyncio.gather(*calls, return_exceptions=True)


def test_a_key_that_is_used_again_goes_on_with_its_counts_until_nobody_needs_them() -> None:
    time = {"now_s": 1000.0}
    meters = KeyMeters(frontend="f", run="r", now_s=lambda: time["now_s"])
    limits = LimitsInForce(requests_per_minute=10)

    def use_and_prune() -> int:
        metered = meters.admit("k", limits, b"", None, False, time["now_s"])
        assert not isinstance(metered, Refusal)
        metered[METER].open -= 1
        meters.correct([metered], 0, 0)
        (message,) = meters.messages()
        time["now_s"] += 62
        meters.prune(time["now_s"])
        return message.keys["k"].requests

    assert [use_and_prune(), use_and_prune()] == [1, 2], "other processes know what was counted"
    time["now_s"] += 601
    meters.prune(time["now_s"])
    assert use_and_prune() == 1


class SumsAt:
    """A store that answers late, by its own clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.today: dict[str, int] = {}
        self.earlier: dict[str, int] = {}

    async def read_key_tokens(self, *, known_day: int | None = None) -> KeyTokens:
        return KeyTokens(self.now_ms, self.today, None if known_day == self.now_ms // DAY_MS else self.earlier)


LAST_OF_MONTH = 30  # 31 January 1970


@pytest.mark.parametrize(
    ("day", "month_tokens"), [(LAST_OF_MONTH - 5, 950), (LAST_OF_MONTH, 0)], ids=["a-day", "a-month"]
)
@pytest.mark.parametrize("faster_ms", [0, 400], ids=["as-fast", "faster"])
async def test_a_busy_key_begins_a_new_day_however_fast_the_store_answers_at_midnight(
    day: int, month_tokens: int, faster_ms: int
) -> None:
    time = {"now_s": 1000.0}
    meters, store = KeyMeters(frontend="f", run="r", now_s=lambda: time["now_s"]), SumsAt()
    limits = LimitsInForce(tokens_per_day=1000)
    midnight_ms = (day + 1) * DAY_MS
    store.now_ms, store.today, store.earlier = midnight_ms - 1000, {"k": 900}, {}
    await meters.read_sums(store)
    open_one = meters.admit("k", limits, b"", 50, False, time["now_s"])
    assert not isinstance(open_one, Refusal)
    assert open_one[METER].day_tokens == 950
    # The first answer took longer than this one, so midnight came earlier at the store than it seems here.
    time["now_s"] += 1.1 - faster_ms / 1000
    store.now_ms, store.today, store.earlier = midnight_ms + 100, {}, {"k": 900} if month_tokens else {}
    await meters.read_sums(store)
    assert (open_one[METER].day_tokens, open_one[METER].month_tokens) == (0, month_tokens)
    assert meters.periods.day == day + 1
    assert 86_399 < meters.periods.day_ends_s - time["now_s"] < 86_400
    assert not isinstance(meters.admit("k", limits, b"", 500, False, time["now_s"]), Refusal)


async def test_an_answer_of_the_store_from_before_midnight_does_not_bring_the_old_day_back() -> None:
    time = {"now_s": 1000.0}
    meters, store = KeyMeters(frontend="f", run="r", now_s=lambda: time["now_s"]), SumsAt()
    store.now_ms, store.today = DAY_MS - 1000, {"k": 900}
    await meters.read_sums(store)
    found = meters.admit("k", LimitsInForce(tokens_per_day=1000), b"", 50, False, time["now_s"])
    assert not isinstance(found, Refusal)
    time["now_s"] += 1.5
    store.now_ms = DAY_MS - 1
    await meters.read_sums(store)
    assert (meters.periods.day, found[METER].day_tokens) == (1, 0)


@pytest.mark.parametrize("is_loading", [False, True], ids=["busy", "being-loaded"])
async def test_a_key_that_fills_the_queue_makes_way_for_others(replica: Start, is_loading: bool) -> None:
    one = await replica("one")
    loads = HeldLoads()
    release = asyncio.Event()

    async def wait_then_answer(answering: Answering) -> None:
        await release.wait()
        await answering.json(completion("one"))

    one.script = wait_then_answer
    async with running_gateway(loads=loads) as gateway:
        served = [] if is_loading else [one]
        gateway.serve("m", *served, capacity=1)
        most = gateway.gateway.limits.queue
        others = [f"key-of-{number}" for number in range(10)]
        gateway.keys.known |= {key: ClientKey(key, key) for key in others}
        model = gateway.gateway.table.by_name["m"]
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=120, limits=unlimited) as client:

            def call(key: str, path: str = "/v1/messages", **fields: Any) -> asyncio.Task[httpx.Response]:
                body = {**BODY, "max_tokens": 8000, **fields}
                return asyncio.create_task(client.post(path, json=body, headers={"Authorization": f"Bearer {key}"}))

            def waiting() -> int:
                return model.loading.length if is_loading else model.queue.length

            flood = [call(KEY) for _ in range(most + 20)]
            await until(lambda: waiting() == most, "the queue is full")
            await until(lambda: sum(each.done() for each in flood) == 20 - (not is_loading), "the rest is refused")
            calls = [call(key, CHAT, max_tokens=5) for key in others]
            await until(lambda: sum(each.done() for each in flood) == 30 - (not is_loading), "as many make way")
            assert waiting() == most
            assert not any(each.done() for each in calls)
            refused = [each.result() for each in flood if each.done()]
            assert {answer.status_code for answer in refused} == {429}
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
            assert {answer.json()["error"]["type"] for answer in refused} == {"rate_limit_error"}
            assert {answer.json()["type"] for answer in refused} == {"error"}, "in Anthropic's form"
            release.set()
            if is_loading:
                gateway.serve("m", one, capacity=1)
                loads.done.set()
            answers = await asyncio.gather(*calls)
            assert {answer.status_code for answer in answers} == {200}
            for each in flood:
                each.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
            await until(lambda: waiting() == 0, "nothing is left behind")


async def test_two_processes_that_hear_each_other_hold_a_limit_together(replica: Start) -> None:
    one = await replica("one")
    async with running_gateway() as first, running_gateway(run="2") as second:
        for gateway in (first, second):
            gateway.serve("m", one)
            limit(gateway, requests_per_minute=10)
        async with (
            httpx.AsyncClient(base_url=first.url, headers={"Authorization": f"Bearer {KEY}"}) as here,
            httpx.AsyncClient(base_url=second.url, headers={"Authorization": f"Bearer {KEY}"}) as there,
        ):
            statuses = []
            for _ in range(8):
                for client in (here, there):
                    statuses.append((await client.post(CHAT, json=BODY)).status_code)
                    for sender, receiver in ((first, second), (second, first)):
                        for message in sender.gateway.meters.messages():
                            receiver.gateway.meters.receive(message)
                            receiver.gateway.meters.receive(message)  # repeated messages count once
    assert statuses == [200] * 10 + [429] * 6
