"""A bug in the gateway (F-54): the client gets an answer or its connection ends, and nothing stays taken."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from corral.core.access.key_limits import LimitsInForce
from corral.core.replicas.routing import ModelRoute, RouteReplica
from corral.frontend.gateway.accounting import RequestAccounting
from corral.frontend.gateway.drivers import DriverRequest, ResponseWriter
from corral.frontend.gateway.limits import GatewayLimits
from harness.gateway import KEY, Answering, Replica, RunningGateway, calling, completion, running_gateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True}


class InjectedCrash(Exception):
    pass


class FaultyClock:
    """Crashes where the functions with these names ask for the time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.crash_in: set[str] = set()

    def __call__(self) -> float:
        caller = sys._getframe(1).f_code.co_name
        if caller in self.crash_in:
            raise InjectedCrash(caller)
        return self._now_s()


def make_faulty(gateway: RunningGateway) -> FaultyClock:
    clock = FaultyClock(gateway.gateway.now_s)
    gateway.gateway.now_s = clock
    return clock


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    """Its key may have one request at a time."""
    async with running_gateway() as running:
        limits = LimitsInForce(concurrent_requests=1)
        running.keys.known[KEY] = replace(running.keys.known[KEY], limits=limits)
        yield running


async def begin_stream(answering: Answering) -> None:
    await answering.start_stream()
    await answering.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})


async def stream(answering: Answering) -> None:
    await begin_stream(answering)
    await answering.event("[DONE]")
    await answering.end_stream()


class InTwoParts:
    """The second part of an answer comes when the gateway has the first."""

    def __init__(self, first: bytes, second: bytes) -> None:
        self._first, self._second = first, second
        self.has_first = lambda: True

    async def __call__(self, answering: Answering) -> None:
        await answering.send(self._first)
        await until(self.has_first, "the gateway has the first part")
        await answering.send(self._second)


def in_two_parts(kind: str, *parts: bytes, ends: bool = True) -> InTwoParts:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    first, second = (b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return InTwoParts(head + first, second + (b"0\r\n\r\n" if ends else b""))


async def whole(answering: Answering) -> None:
    await answering.json(completion("one"))


async def die(answering: Answering) -> None:
    answering.die()


async def die_later(answering: Answering) -> None:
    await begin_stream(answering)
    answering.die()


async def ask(client: httpx.AsyncClient, body: dict[str, Any], path: str = CHAT) -> tuple[int, str]:
    """The status and the body; 0 for a connection that ended."""
    text, status = b"", 0
    try:
        async with client.stream("POST", path, json=body, timeout=5) as answer:
            status = answer.status_code
            async for part in answer.aiter_raw():
                text += part
    except httpx.RemoteProtocolError:
        return 0, text.decode()
    return status, text.decode()


@pytest.mark.parametrize(
    ("name", "body", "script", "status", "end"),
    [
        pytest.param("on_answer", BODY, whole, 500, "internal error", id="answer"),
        pytest.param("on_answer", STREAM, stream, 500, "internal error", id="head-of-a-stream"),
        pytest.param(
            "on_data", STREAM, in_two_parts("text/event-stream", b": ping\n\n", b"data: {}\n\ndata: ", ends=False), 200,
            "internal error", id="first-event",
        ),
        pytest.param("on_data", BODY, in_two_parts("application/json", b"{", b"}"), 200, "{}", id="end-of-an-answer"),
        pytest.param("_fail", BODY, die, 500, "internal error", id="failure"),
        pytest.param("_fail", STREAM, die_later, 200, "internal error", id="failure-of-a-stream"),
    ],
)  # fmt: skip
async def test_a_crash_in_a_callback_of_a_replica_ends_the_request(
    gateway: RunningGateway,
    client: httpx.AsyncClient,
    replica: Start,
    name: str,
    body: dict[str, Any],
    script: Callable[[Answering], Coroutine[Any, Any, None]],
    status: int,
    end: str,
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    clock = make_faulty(gateway)
    one.script = script
    clock.crash_in = {name}
    if isinstance(script, InTwoParts):
        [endpoint] = gateway.gateway.table.by_name["m"].endpoints
        script.has_first = lambda: endpoint.heard_s > 0
    with capture_logs() as logs:
        found, text = await ask(client, body)
    assert (found, end in text) == (status, True), text
    crashes = [entry for entry in logs if entry["event"] == "gateway.request_crashed"]
    assert [str(entry["exc_info"]) for entry in crashes] == [name]
    await until(lambda: gateway.open_requests() == 0, "the replica is free")
    clock.crash_in.clear()
    one.script = whole
    for _ in range(2):  # the key's only request is free too
        await until(lambda: gateway.open_requests() == 0, "the replica is free")
        gateway.gateway.table.by_name["m"].endpoints[0].record_success()
        assert (await ask(client, BODY))[0] == 200


async def test_a_crash_after_a_failed_connection_ends_neither_the_request_nor_the_gateway_without_an_answer(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    dead, good = Replica("dead"), await replica("good")
    await dead.start()
    await dead.kill()
    gateway.serve("m", dead)
    gateway.serve("n", good)
    clock = make_faulty(gateway)
    clock.crash_in = {"_fail"}
    assert (await ask(client, BODY))[0] == 500
    clock.crash_in.clear()
    assert (await ask(client, {**BODY, "model": "n"}))[0] == 200
    assert gateway.open_requests() == 0


class FaultyEntries(deque[Any]):
    def append(self, item: Any) -> None:
        raise InjectedCrash("append")


async def test_a_crash_while_an_error_is_told_closes_the_connection_and_leaves_nothing_taken(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    clock, entries = make_faulty(gateway), gateway.gateway.traces.entries
    clock.crash_in = {"on_answer"}
    gateway.gateway.traces.entries = FaultyEntries()
    assert (await ask(client, BODY))[0] in (0, 500)
    assert gateway.open_requests() == 0
    clock.crash_in = {"_fail", "_count_part"}
    gateway.gateway.traces.entries = entries
    one.script = die_later
    assert (await ask(client, STREAM))[0] == 0
    assert gateway.open_requests() == 0
    clock.crash_in.clear()
    one.script = whole
    gateway.gateway.table.by_name["m"].endpoints[0].record_success()
    assert (await ask(client, BODY))[0] == 200


class FaultyAccounting(RequestAccounting):
    def add(self, *_: Any) -> None:
        raise InjectedCrash("add")


@pytest.mark.parametrize(
    ("body", "script"), [(BODY, whole), (STREAM, stream), (BODY, in_two_parts("application/json", b"{", b"}"))]
)
async def test_a_crash_while_a_request_is_counted_is_not_the_clients_concern(
    gateway: RunningGateway,
    client: httpx.AsyncClient,
    replica: Start,
    body: dict[str, Any],
    script: Callable[[Answering], Coroutine[Any, Any, None]],
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    one.script = script
    gateway.gateway.accounting = FaultyAccounting(gateway.gateway.traces, gateway.gateway.meters, None)
    with capture_logs() as logs:
        for _ in range(3):
            assert (await ask(client, body))[0] == 200
            assert gateway.open_requests() == 0
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["gateway.request_crashed"] * 3


@pytest.mark.parametrize("name", ["_leave_queue", "_place"])
async def test_a_crash_of_a_request_that_leaves_the_queue_is_its_own(replica: Start, name: str) -> None:
    one, holds = await replica("one"), asyncio.Event()

    async def hold(answering: Answering) -> None:
        await holds.wait()
        await answering.json(completion("one"))

    one.script = hold
    async with running_gateway(limits=GatewayLimits(queue_wait_s=1.5)) as gateway, calling(gateway) as client:
        gateway.serve("m", one, capacity=1)
        clock = make_faulty(gateway)
        asking = [asyncio.create_task(ask(client, BODY)) for _ in range(3)]
        await until(lambda: gateway.gateway.table.by_name["m"].queue.length == 2, "two wait")
        clock.crash_in = {name}
        if name == "_place":
            holds.set()  # they get their turn; otherwise their time is over
        found = sorted([status for status, _ in await asyncio.gather(asking[1], asking[2])])
        assert found == [500, 500]
        holds.set()
        assert (await asking[0])[0] == 200
        assert gateway.open_requests() == 0


async def test_a_crash_of_one_request_at_an_unresponsive_replica_keeps_no_other_one_there(replica: Start) -> None:
    hung = await replica("hung")

    async def hang(answering: Answering) -> None:
        await answering.wait_for_hangup()

    hung.script = hang
    limits = GatewayLimits(probe_after_s=0.3, probe_within_s=0.2, probe_every_s=0.1)
    async with running_gateway(limits=limits) as gateway, calling(gateway) as client:
        gateway.serve("m", hung)
        clock = make_faulty(gateway)
        asking = [asyncio.create_task(ask(client, BODY)) for _ in range(3)]
        await until(lambda: hung.open >= 3, "all are at the replica")
        clock.crash_in = {"abandon"}
        assert [status for status, _ in await asyncio.gather(*asking)] == [500] * 3
        assert gateway.open_requests() == 0


class ScriptedDriver:
    async def handle(self, request: DriverRequest, where: RouteReplica, send: ResponseWriter) -> None:
        send.start(200, {"Content-Type": "text/event-stream"})
        await send.write(b'data: {"a":1}\n\n')

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("name", "status"), [("on_answer", 500), ("on_data", 200)])
async def test_a_crash_in_a_callback_of_a_driver_ends_the_request(name: str, status: int) -> None:
    async with (
        running_gateway(drivers={"localai-grpc": ScriptedDriver()}) as gateway,
        calling(gateway) as client,
    ):
        gateway.routes.put(ModelRoute(model="m", replicas=(Replica("a").route(protocol="localai-grpc"),)))
        gateway.gateway.table.apply(gateway.routes.snapshot)
        clock = make_faulty(gateway)
        clock.crash_in = {name}
        found, text = await ask(client, STREAM)
        assert (found, "internal error" in text) == (status, True), text
        assert gateway.open_requests() == 0
