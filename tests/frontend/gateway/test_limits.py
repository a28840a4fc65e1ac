"""Busy replicas, and requests that wait for them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import httpx
import pytest

from corral.bus.messages import OpenRequests
from corral.core.access.key_limits import Priority
from corral.core.replicas.routing import ModelRoute
from corral.frontend.gateway.endpoints import ServedModel
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.proxied_request import ProxiedRequest
from corral.frontend.gateway.queueing import join_queue
from corral.frontend.gateway.request_trace import RequestTrace
from harness.gateway import KEY, OTHER_KEY, Answering, Replica, completion, running_gateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}


class Gated:
    """Answers one request after the other, as a test opens the gate."""

    def __init__(self, replica: Replica) -> None:
        self.gate = asyncio.Semaphore(0)
        self.most = 0
        self._replica = replica
        replica.script = self._script

    async def _script(self, answering: Answering) -> None:
        self.most = max(self.most, self._replica.open)
        await asyncio.wait_for(self.gate.acquire(), 30)
        await answering.json(completion(self._replica.name))


def caller(url: str, key: str = KEY) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30)


async def test_a_replica_never_gets_more_than_its_limit(replica: Start) -> None:
    one = await replica("one")
    gated = Gated(one)
    async with running_gateway() as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, capacity=2)
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(8)]
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 6, "six wait")
        assert 'corral_queue_length{model="m"} 6' in gateway.metrics()
        assert 'corral_in_flight{model="m",node="node-one"} 2' in gateway.metrics()
        for _ in range(8):
            gated.gate.release()
        answers = await asyncio.gather(*calls)
        assert [answer.status_code for answer in answers] == [200] * 8
        assert gated.most == 2
        positions = sorted(int(answer.headers.get("x-corral-queue-position", 0)) for answer in answers)
        assert positions == [0, 0, 1, 2, 3, 4, 5, 6]
        assert gateway.open_requests() == 0


@pytest.mark.parametrize(("had_its_turn", "order"), [(True, ["again", "other"]), (False, ["other", "again"])])
def test_a_request_that_found_no_capacity_when_its_turn_came_does_not_pay_twice(
    had_its_turn: bool, order: list[str]
) -> None:
    class Owner(ProxiedRequest):
        def __init__(self, name: str) -> None:
            self.name = name

    served = ServedModel(ModelRoute(model="m", replicas=()))
    for name, tokens in (("again", 5000), ("other", 100)):
        trace = RequestTrace()
        trace.has_turn = had_its_turn and name == "again"
        join_queue(
            served, Owner(name), key_id=name, priority=Priority.NORMAL, body=b"x" * 4 * tokens, is_form=False,
            stated=None, trace=trace, limits=GatewayLimits(), now_s=0.0,
        )  # fmt: skip
    taken = [waiter.owner for waiter in iter(served.queue.take, None)]
    assert [owner.name for owner in taken if isinstance(owner, Owner)] == order


def has_length(values: list[str], length: int) -> bool:
    return len(values) == length


async def test_requests_wait_until_the_engine_takes_more(replica: Start) -> None:
    one = await replica("one")
    gated = Gated(one)
    async with running_gateway() as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, capacity=1)
        [before] = gateway.gateway.table.endpoints()
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(6)]
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 5, "five wait")
        gateway.serve("m", one, capacity=4)
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 2, "it takes four")
        gateway.serve("m", one, capacity=2)
        gated.gate.release()
        await until(lambda: gateway.open_requests() == 3, "one has ended")
        assert gateway.gateway.inflight.queue_depth("m") == 2, "it takes no more until it has fewer than two"
        gateway.serve("m", one)
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 0, "it has no limit of its own")
        [after] = gateway.gateway.table.endpoints()
        assert after is before, "its connections stay"
        for _ in range(5):
            gated.gate.release()
        assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200] * 6


async def test_the_queue_is_fair_between_keys(replica: Start) -> None:
    one = await replica("one")
    gated = Gated(one)
    order: list[str] = []

    async def call(client: httpx.AsyncClient, who: str) -> None:
        assert (await client.post(CHAT, json=BODY)).status_code == 200
        order.append(who)

    async with running_gateway() as gateway, caller(gateway.url) as greedy, caller(gateway.url, OTHER_KEY) as modest:
        gateway.serve("m", one, capacity=1)
        calls = [asyncio.ensure_future(call(greedy, "greedy")) for _ in range(10)]
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 9, "nine wait")
        calls.append(asyncio.ensure_future(call(modest, "modest")))
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 10, "ten wait")
        for number in range(11):
            gated.gate.release()
            await until(partial(has_length, order, number + 1), "the next answer")
        await asyncio.gather(*calls)
    assert order.index("modest") <= 2, order


@pytest.mark.parametrize("told_s", [None, 42])
async def test_a_full_queue_answers_429_and_a_long_wait_503(replica: Start, told_s: int | None) -> None:
    """`told_s`: `limits.retry_after_seconds` of the model."""
    one = await replica("one")
    gated = Gated(one)
    limits = GatewayLimits(queue=2, queue_wait_s=1.0)
    async with running_gateway(limits=limits) as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, capacity=1, retry_after_s=told_s)
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(3)]
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 2, "two wait")
        full = await client.post(CHAT, json=BODY)
        assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
        assert full.json()["error"]["type"] == "rate_limit_error"
        assert full.headers["retry-after"] == str(told_s or 1)
        await until(lambda: sum(call.done() for call in calls) == 2, "two were published that it takes too long")
        assert 'corral_queue_wait_seconds_count{model="m"} 2' in gateway.metrics()
        gated.gate.release()
        answers = await asyncio.gather(*calls)
    assert sorted(answer.status_code for answer in answers) == [200, 503, 503]
    late = next(answer for answer in answers if answer.status_code == 503)
    assert late.json()["error"]["code"] == "queue_wait_exceeded"
    assert "initial queue position: " in late.json()["error"]["message"]
    assert late.headers["retry-after"] == str(told_s or 5)


async def test_a_client_that_disconnects_leaves_the_queue(replica: Start) -> None:
    one = await replica("one")
    gated = Gated(one)
    async with running_gateway() as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, capacity=1)
        first = asyncio.ensure_future(client.post(CHAT, json=BODY))
        await until(lambda: one.open == 1, "the first is worked on")
        second = asyncio.ensure_future(client.post(CHAT, json=BODY))
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 1, "the second waits")
        second.cancel()
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 0, "the queue is empty")
        gated.gate.release()
        assert (await first).status_code == 200
        assert len(one.seen) == 1


async def test_queued_requests_go_to_a_new_replica(replica: Start) -> None:
    one, two = await replica("one"), await replica("two")
    gated = Gated(one)
    async with running_gateway() as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, capacity=1)
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(4)]
        await until(lambda: gateway.gateway.inflight.queue_depth("m") == 3, "three wait")
        gateway.serve("m", one, two, capacity=1)
        await until(lambda: len(two.seen) == 3, "the new one has taken them")
        gated.gate.release()
        assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


async def test_what_other_frontends_work_on_counts_and_is_forgotten_when_they_die(replica: Start) -> None:
    """INV-24."""
    one, two = await replica("one"), await replica("two")
    async with running_gateway() as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, two, capacity=4)
        inflight = gateway.gateway.inflight
        published = OpenRequests(frontend="other", run="a", sequence=2, replicas={"replica-one": 4}, queues={"m": 3})
        inflight.receive(published)
        inflight.receive(OpenRequests(frontend="other", run="a", sequence=1, replicas={}))
        assert inflight.total(one.route().id) == 4
        assert inflight.queue_depth("m") == 3
        for _ in range(6):
            assert (await client.post(CHAT, json=BODY)).json()["who"] == "two"
        inflight._others["other"].at_s -= 10
        inflight.forget_silent()
        assert inflight.total(one.route().id) == 0
        whos = {(await client.post(CHAT, json=BODY)).json()["who"] for _ in range(20)}
        assert whos == {"one", "two"}
        assert inflight.idle_s(one.route().id) is not None
        assert inflight.snapshot().replicas == {}


async def test_other_frontends_learn_at_once_that_a_full_replica_has_capacity_again(
    replica: Start,
) -> None:
    one = await replica("one")
    gated = Gated(one)
    published: list[dict[str, int]] = []

    async def publish(message: OpenRequests) -> None:
        published.append(dict(message.replicas))

    async with running_gateway() as gateway, caller(gateway.url) as client:
        gateway.serve("m", one, capacity=2)
        publishing = asyncio.ensure_future(gateway.gateway.inflight.keep_publishing(publish, every_s=600.0))
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(2)]
        await until(lambda: published[-1:] == [{"replica-one": 2}], "others learn that it is full")
        gated.gate.release()
        await until(lambda: published[-1:] == [{"replica-one": 1}], "others learn that it has capacity")
        gated.gate.release()
        await asyncio.gather(*calls)
        publishing.cancel()
