"""Routes: one name, several models, with weights and fallbacks (F-53)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import LoadFailed
from harness.gateway import (
    LIMITED_KEY,
    Answering,
    Replica,
    RunningGateway,
    calling,
    completion,
    running_gateway,
)
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


class RequestedLoads:
    """Loads that fail, and are remembered."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def ensure(self, model: str, *, within_s: float) -> None:
        self.requested.append(model)
        raise LoadFailed(f"no node can load {model!r}")

    def describe(self, model: str) -> str:
        return ""


@pytest.fixture
def loads() -> RequestedLoads:
    return RequestedLoads()


@pytest.fixture
async def gateway(loads: RequestedLoads) -> AsyncIterator[RunningGateway]:
    async with running_gateway(loads=loads, limits=GatewayLimits(queue_wait_s=5)) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(gateway) as client:
        yield client


def lead(gateway: RunningGateway, *tiers: dict[str, int], name: str = "chat", sticky: bool = False) -> None:
    route = PublicRoute(
        name=name,
        tiers=tuple(tuple(RouteTarget(model, weight) for model, weight in tier.items()) for tier in tiers),
        is_sticky=sticky,
    )
    gateway.routes.lead(route)
    gateway.gateway.table.apply(gateway.routes.snapshot)


async def refuse(answering: Answering) -> None:
    await answering.json({"error": {"message": "down"}}, status=503)


def why(gateway: RunningGateway, answer: httpx.Response) -> Any:
    found = gateway.gateway.explain(answer.headers["x-request-id"])
    assert found is not None
    return found


async def test_the_first_choice_gets_requests_while_it_can_and_the_fallback_stays_idle(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local, hosted = await replica("local"), await replica("hosted")
    gateway.serve("qwen", local)
    gateway.serve_routes("gpt", hosted.attached_route(model="gpt-theirs"))
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    for _ in range(5):
        answer = await client.post(CHAT, json=BODY)
        assert (answer.json()["who"], answer.headers["x-corral-model"]) == ("local", "qwen")
        assert "x-corral-fallback" not in answer.headers
    assert local.seen[0].json()["model"] == "qwen"
    assert hosted.seen == []
    told = why(gateway, answer)
    assert (told.route, told.model, told.skipped) == ("chat", "qwen", ())
    assert 'corral_route_requests_total{route="chat",model="qwen",fallback=""} 5' in gateway.metrics()


async def test_the_fallback_answers_while_every_replica_is_busy_and_it_is_visible(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local, hosted = await replica("local"), await replica("hosted")
    held = asyncio.Event()

    async def hold(answering: Answering) -> None:
        await held.wait()
        await answering.json(completion("local"))

    local.script = hold
    gateway.serve("qwen", local, capacity=1)
    gateway.serve_routes("gpt", hosted.attached_route(model="gpt-theirs"))
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    first = asyncio.ensure_future(client.post(CHAT, json=BODY))
    await until(lambda: local.open == 1, "the replica is busy")
    answer = await client.post(CHAT, json=BODY)
    assert (answer.json()["who"], answer.json()["model"]) == ("hosted", "chat")
    assert (answer.headers["x-corral-model"], answer.headers["x-corral-fallback"]) == ("gpt", "busy")
    assert hosted.seen[0].json()["model"] == "gpt-theirs"
    told = why(gateway, answer)
    assert (told.route, told.model) == ("chat", "gpt")
    assert [(one.model, one.reason) for one in told.skipped] == [("qwen", "busy")]
    held.set()
    assert (await first).json()["who"] == "local"
    assert 'corral_route_requests_total{route="chat",model="gpt",fallback="busy"} 1' in gateway.metrics()


async def test_the_fallback_answers_for_a_model_that_is_away_which_is_loaded_meanwhile(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, loads: RequestedLoads
) -> None:
    hosted = await replica("hosted")
    gateway.serve("qwen")
    gateway.serve_routes("gpt", hosted.attached_route())
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    for _ in range(3):
        answer = await client.post(CHAT, json=BODY)
        assert (answer.json()["who"], answer.headers["x-corral-fallback"]) == ("hosted", "away")
    await until(lambda: loads.requested, "a load is requested")
    assert loads.requested == ["qwen"]  # once, not for every request


async def test_the_fallback_answers_after_the_first_choice_failed(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local, hosted = await replica("local"), await replica("hosted")
    gateway.serve("qwen", local)
    gateway.serve_routes("gpt", hosted.attached_route())
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    local.script = refuse
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["who"]) == (200, "hosted")
    assert answer.headers["x-corral-fallback"] == "failed"
    assert [failed.error for failed in why(gateway, answer).failed] == ["it answered with status 503"]
    await local.kill()
    for endpoint in gateway.gateway.table.endpoints():
        endpoint.avoid_until_s = 0.0
    answer = await client.post(CHAT, json={**BODY, "stream": False})
    assert answer.json()["who"] == "hosted"
    assert gateway.open_requests() == 0


async def test_a_fallback_that_is_last_shows_its_own_error(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local, hosted = await replica("local"), await replica("hosted")
    local.script = hosted.script = refuse
    gateway.serve("qwen", local)
    gateway.serve_routes("gpt", hosted.attached_route())
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "down")
    assert (len(local.seen), len(hosted.seen)) == (1, 1)


async def test_while_all_are_busy_a_request_waits_at_the_first_and_moves_to_whichever_is_free(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local, hosted = await replica("local"), await replica("hosted")
    held, gone = asyncio.Event(), asyncio.Event()

    async def hold(answering: Answering) -> None:
        await held.wait()
        await answering.json(completion("local"))

    async def hold_once(answering: Answering) -> None:
        await gone.wait()
        await answering.json(completion("hosted"))

    local.script, hosted.script = hold, hold_once
    gateway.serve("qwen", local, capacity=1)
    gateway.serve_routes("gpt", hosted.attached_route(capacity=1))
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    asking = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(3)]
    table = gateway.gateway.table
    await until(lambda: table.by_name["qwen"].queue.length == 1, "one waits at the first choice")
    gone.set()
    await until(lambda: sum(one.done() for one in asking) == 2, "the fallback answers two")
    held.set()
    answers = await asyncio.gather(*asking)
    assert sorted(answer.json()["who"] for answer in answers) == ["hosted", "hosted", "local"]
    assert gateway.open_requests() == 0


async def test_models_of_one_tier_share_requests_by_weight_and_stand_in_for_one_another_without_a_fallback(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")
    gateway.serve("a", one)
    gateway.serve("b", two)
    lead(gateway, {"a": 4, "b": 1})
    for _ in range(200):
        await client.post(CHAT, json=BODY)
    assert 135 <= len(one.seen) <= 185
    gateway.serve("a")
    answer = await client.post(CHAT, json=BODY)
    assert (answer.json()["who"], "x-corral-fallback" in answer.headers) == ("two", False)


async def test_a_sticky_route_keeps_a_session_at_its_model(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    servers = {name: await replica(name) for name in ("a", "b", "c")}
    for name, server in servers.items():
        gateway.serve(name, server)
    lead(gateway, dict.fromkeys(servers, 1), sticky=True)
    found = {}
    for session in (f"s{number}" for number in range(12)):
        answers = [await client.post(CHAT, json=BODY, headers={"X-Corral-Session": session}) for _ in range(3)]
        who = {answer.json()["who"] for answer in answers}
        assert len(who) == 1
        found[session] = who.pop()
    assert len(set(found.values())) > 1
    lost = found["s0"]
    gateway.serve(lost)
    answer = await client.post(CHAT, json=BODY, headers={"X-Corral-Session": "s0"})
    assert answer.json()["who"] != lost


async def test_a_key_may_use_a_route_without_its_models_and_lists_show_it(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local = await replica("local")
    gateway.serve("qwen", local)
    lead(gateway, {"qwen": 1}, name="allowed")
    limited = {"Authorization": f"Bearer {LIMITED_KEY}"}
    answer = await client.post(CHAT, json={**BODY, "model": "allowed"}, headers=limited)
    assert answer.status_code == 200
    refused = await client.post(CHAT, json={**BODY, "model": "qwen"}, headers=limited)
    assert refused.status_code == 404
    listed = (await client.get("/v1/models", headers=limited)).json()["data"]
    assert [one["id"] for one in listed] == ["allowed"]
    assert (await client.get("/v1/models/allowed", headers=limited)).json()["id"] == "allowed"
    assert [one["id"] for one in (await client.get("/v1/models")).json()["data"]] == ["allowed", "qwen"]


async def test_a_route_with_the_name_of_a_model_gives_its_clients_the_fallback(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    local, hosted = await replica("local"), await replica("hosted")
    gateway.serve("qwen", local)
    gateway.serve_routes("gpt", hosted.attached_route())
    lead(gateway, {"qwen": 1}, {"gpt": 1}, name="qwen")
    assert (await client.post(CHAT, json={**BODY, "model": "qwen"})).json()["who"] == "local"
    gateway.serve("qwen")
    assert (await client.post(CHAT, json={**BODY, "model": "qwen"})).json()["who"] == "hosted"
    assert [one["id"] for one in (await client.get("/v1/models")).json()["data"]] == ["gpt", "qwen"]


async def test_a_load_that_fails_leads_on_to_the_next_model(
    gateway: RunningGateway, client: httpx.AsyncClient, loads: RequestedLoads
) -> None:
    gateway.serve("qwen")
    gateway.serve("gpt")
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, "gpt" in answer.json()["error"]["message"]) == (503, True)
    assert loads.requested == ["qwen", "gpt"]


async def test_streams_and_other_client_apis_follow_routes_too(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    hosted = await replica("hosted")

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"model": "gpt", "choices": [{"index": 0, "delta": {"content": "hello"}}]})
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await answering.event({"model": "gpt", "choices": [end]})
        await answering.event("[DONE]")
        await answering.end_stream()

    hosted.script = stream
    gateway.serve("qwen")
    gateway.serve_routes("gpt", hosted.attached_route())
    lead(gateway, {"qwen": 1}, {"gpt": 1})
    answer = await client.post(CHAT, json={**BODY, "stream": True})
    assert ("hello" in answer.text, answer.headers["x-corral-fallback"]) == (True, "away")
    body = {"model": "chat", "max_tokens": 5, "messages": BODY["messages"], "stream": True}
    answer = await client.post("/v1/messages", json=body)
    assert ("hello" in answer.text, answer.headers["x-corral-fallback"]) == (True, "away")
    answer = await client.post("/api/chat", json={"model": "chat", "messages": BODY["messages"]})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == "hello"
