"""Requests that wait for a model that is deleted or disabled meanwhile (F-55)."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.bus.messages import OpenRequests
from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from corral.core.replicas.routing import ASSISTANT_PREFILL
from harness.gateway import Answering, Replica, RunningGateway, calling, running_gateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True}


class HeldLoads:
    """Each load ends when the test says so."""

    def __init__(self) -> None:
        self.done: set[str] = set()

    async def ensure(self, model: str, *, within_s: float) -> None:
        await until(lambda: model in self.done, f"{model} is loaded")

    def describe(self, model: str) -> str:
        return ""


async def hold_until_hangup(answering: Answering) -> None:
    await answering.wait_for_hangup()


def remove(gateway: RunningGateway, model: str) -> None:
    routes = gateway.routes.snapshot.routes
    gateway.routes.put(*(route for route in routes if route.model != model))
    gateway.gateway.table.apply(gateway.routes.snapshot)


async def test_requests_that_wait_for_a_deleted_model_are_answered_at_once(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    """Another process holds all slots of the replica, so nothing that ends here takes a request from the queue."""
    gateway.serve("m", await replica("one"), capacity=1)
    elsewhere = OpenRequests(frontend="other", run="2", sequence=1, replicas={"replica-one": 1}, idle_ms={}, queues={})
    gateway.gateway.inflight.receive(elsewhere)
    asking = [asyncio.create_task(client.post(CHAT, json=body, timeout=5)) for body in (BODY, STREAM)]
    await until(lambda: gateway.gateway.table.by_name["m"].queue.length == 2, "both wait")
    remove(gateway, "m")
    for answer in await asyncio.gather(*asking):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert "deleted or disabled" in answer.json()["error"]["message"]
    assert gateway.open_requests() == 0


async def test_a_request_that_waits_for_a_crashed_replica_of_a_deleted_model_is_answered_at_once(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    await one.kill()
    gateway.serve("m", one)
    asking = asyncio.create_task(client.post(CHAT, json=BODY, timeout=5))
    await until(lambda: gateway.gateway.table.by_name["m"].queue.length == 1, "it waits for the process")
    remove(gateway, "m")
    assert (await asking).status_code == 404


async def test_a_request_that_waits_for_a_load_of_a_deleted_model_is_answered_at_once() -> None:
    loads = HeldLoads()
    async with running_gateway(loads=loads) as gateway, calling(gateway) as client:
        gateway.serve("m")
        asking = asyncio.create_task(client.post(CHAT, json=BODY))
        await until(lambda: gateway.gateway.table.by_name["m"].loading.length == 1, "it waits for the load")
        remove(gateway, "m")
        assert (await asking).status_code == 404


@pytest.mark.parametrize("is_loading", [False, True])
async def test_a_request_on_a_route_that_waits_for_a_deleted_model_goes_to_another_one(
    replica: Start, is_loading: bool
) -> None:
    busy, good = await replica("busy"), await replica("good")
    busy.script = hold_until_hangup
    loads = HeldLoads()
    async with running_gateway(loads=loads) as gateway, calling(gateway) as client:
        gateway.serve("first", *([] if is_loading else [busy]), capacity=1)
        gateway.serve("second")
        gateway.routes.lead(PublicRoute(name="m", tiers=((RouteTarget("first"),), (RouteTarget("second"),))))
        gateway.gateway.table.apply(gateway.routes.snapshot)
        table = gateway.gateway.table.by_name
        held = asyncio.create_task(client.post(CHAT, json={**BODY, "model": "first"}))
        await until(lambda: table["first"].loading.length == 1 if is_loading else busy.open == 1, "it is taken")
        asking = asyncio.create_task(client.post(CHAT, json=BODY))
        await until(lambda: table["first"].queue.length + table["first"].loading.length == 1 + is_loading, "it waits")
        remove(gateway, "first")
        await until(lambda: table["second"].loading.length == 1, "it waits for the other one")
        gateway.serve("second", good)
        loads.done.add("second")
        assert (await asking).json()["who"] == "good"
        held.cancel()


async def test_an_answer_that_waits_to_be_continued_by_a_deleted_model_ends_with_the_reason(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    begins, busy = await replica("begins"), await replica("busy")
    dies = asyncio.Event()

    async def begin(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
        await dies.wait()
        answering.die()

    begins.script, busy.script = begin, hold_until_hangup
    gateway.serve("m", begins, continuation=ASSISTANT_PREFILL)
    asking = asyncio.create_task(client.post(CHAT, json=STREAM))
    await until(lambda: begins.open == 1, "it has begun")
    gateway.serve("m", begins, busy, continuation=ASSISTANT_PREFILL, capacity=1)
    held = asyncio.create_task(client.post(CHAT, json=BODY))
    await until(lambda: busy.open == 1, "the other one is busy")
    dies.set()
    await until(lambda: gateway.gateway.table.by_name["m"].queue.length == 1, "the answer waits")
    remove(gateway, "m")
    last = [line for line in (await asking).text.splitlines() if line][-1]
    assert "its model was deleted or disabled" in json.loads(last.removeprefix("data: "))["error"]["message"]
    held.cancel()
