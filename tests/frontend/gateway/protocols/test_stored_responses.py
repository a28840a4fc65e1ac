"""Responses that an engine has stored, read with OpenAI's own client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from corral.core.access.key_limits import LimitsInForce
from corral.frontend.gateway.stored_responses import names_stored_response
from harness.gateway import KEY, LIMITED_KEY, Answering, Replica, RunningGateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
HAS_RESPONSES = frozenset({"/v1/responses"})
STORED = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": [],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
}  # fmt: skip


@pytest.fixture
async def asking(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


async def knows(answering: Answering) -> None:
    await answering.json(STORED)


async def knows_nothing(answering: Answering) -> None:
    await answering.json({"error": {"message": "Response with id 'resp_1' not found."}}, status=404)


async def dies(answering: Answering) -> None:
    answering.die()


async def test_the_replica_that_stored_a_response_is_found(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    first, second, third, translated = [await replica(name) for name in "abcd"]
    first.script, second.script, third.script = knows_nothing, dies, knows
    gateway.serve("n", first, endpoints=HAS_RESPONSES)
    gateway.serve("m", second, third, endpoints=HAS_RESPONSES)
    gateway.serve("o", translated)
    assert (await asking.responses.retrieve("resp_1")).id == "resp_1"
    assert (await asking.responses.cancel("resp_1")).id == "resp_1"
    await asking.responses.delete("resp_1")
    assert {seen.path for seen in third.seen} == {"/v1/responses/resp_1", "/v1/responses/resp_1/cancel"}
    assert not translated.seen
    assert gateway.open_requests() == 0
    counted = [line for line in gateway.metrics().splitlines() if line.startswith("corral_tokens_total{")]
    assert all(line.endswith(" 0") for line in counted), "tokens were counted when the response was given"
    assert any(line.startswith("corral_requests_total{") for line in gateway.metrics().splitlines())


async def test_a_response_that_an_attached_server_stored_is_found_there(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, client: httpx.AsyncClient, replica: Start
) -> None:
    hosted, translated = await replica("hosted"), await replica("translated")
    hosted.script = knows
    gateway.serve_routes("m", hosted.attached_route(path="/api/v1", model="theirs", endpoints=HAS_RESPONSES))
    gateway.serve_routes("n", translated.attached_route())
    given = await asking.responses.create(model="m", input="hi", previous_response_id="resp_0")
    assert given.id == "resp_1"
    sent = hosted.seen[0].json()
    assert (sent["model"], sent["previous_response_id"]) == ("theirs", "resp_0")
    assert (await asking.responses.retrieve("resp_1")).id == "resp_1"
    assert (await asking.responses.cancel("resp_1")).id == "resp_1"
    await asking.responses.delete("resp_1")
    where = "/api/v1/responses/resp_1"
    assert [(seen.method, seen.path) for seen in hosted.seen[1:]] == [
        ("GET", where), ("POST", f"{where}/cancel"), ("DELETE", where),
    ]  # fmt: skip
    assert not translated.seen
    hops = {"x-corral-hops": hosted.seen[-1].headers["x-corral-hops"]}
    assert (await client.get("/v1/responses/resp_1", headers=hops)).status_code == 404
    assert len(hosted.seen) == 4, "a request that comes back does not go round"


async def test_an_unknown_response_is_not_found(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    served.script = knows_nothing
    gateway.serve("m", served, endpoints=HAS_RESPONSES)
    with pytest.raises(openai.NotFoundError, match="no replica has a stored response 'resp_1'"):
        await asking.responses.retrieve("resp_1")
    assert len(served.seen) == 1
    assert gateway.open_requests() == 0


async def test_a_key_reads_responses_only_of_its_models(gateway: RunningGateway, replica: Start) -> None:
    served = await replica("a")
    served.script = knows
    gateway.serve("m", served, endpoints=HAS_RESPONSES)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as client:
        for key, status in ((KEY, 200), (LIMITED_KEY, 404), ("wrong", 401)):
            found = await client.get("/v1/responses/resp_1", headers={"Authorization": f"Bearer {key}"})
            assert found.status_code == status
        for _ in range(3):  # the same head again on one connection
            again = await client.get("/v1/responses/resp_1", headers={"Authorization": f"Bearer {KEY}"})
            assert again.status_code == 200


async def test_reading_a_response_counts_as_a_request_of_the_key(
    gateway: RunningGateway, asking: openai.AsyncOpenAI, replica: Start
) -> None:
    served = await replica("a")
    served.script = knows
    gateway.serve("m", served, endpoints=HAS_RESPONSES)
    limits = LimitsInForce(requests_per_minute=3, tokens_per_minute=1000)
    gateway.keys.known[KEY] = replace(gateway.keys.known[KEY], limits=limits)
    await asking.responses.retrieve("resp_1")
    await asking.responses.delete("resp_1")
    served.script = knows_nothing
    with pytest.raises(openai.NotFoundError):
        await asking.responses.retrieve("resp_1")
    with pytest.raises(openai.RateLimitError, match="3 requests per minute"):
        await asking.responses.retrieve("resp_1")
    assert len(served.seen) == 3
    meter = gateway.gateway.meters.find("key-1")
    assert meter is not None
    assert (meter.day_tokens, meter.open) == (0, 0)


async def test_a_client_that_leaves_frees_the_replica(gateway: RunningGateway, replica: Start) -> None:
    served, reached = await replica("a"), asyncio.Event()

    async def hangs(answering: Answering) -> None:
        reached.set()
        await answering.wait_for_hangup()

    served.script = hangs
    gateway.serve("m", served, endpoints=HAS_RESPONSES)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as client:
        asked = asyncio.create_task(client.get("/v1/responses/r", headers={"Authorization": f"Bearer {KEY}"}))
        await reached.wait()
        asked.cancel()
    await until(lambda: not gateway.open_requests(), "the replica is free")


@pytest.mark.parametrize(
    ("method", "path", "is_one"),
    [
        (b"GET", b"/v1/responses/resp_1", True),
        (b"DELETE", b"/v1/responses/resp_1", True),
        (b"POST", b"/v1/responses/resp_1/cancel", True),
        (b"GET", b"/v1/responses/resp_1/input_items", True),
        (b"POST", b"/v1/responses", False),
        (b"POST", b"/v1/responses/resp_1", False),
        (b"GET", b"/v1/responses/resp_1/cancel", False),
        (b"GET", b"/v1/responses/a/../b", False),
        (b"GET", b"/v1/responses/" + b"a" * 129, False),
    ],
)
def test_which_paths_name_a_stored_response(method: bytes, path: bytes, is_one: bool) -> None:
    assert names_stored_response(method, path) is is_one
