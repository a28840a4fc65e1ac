"""Request traces: why a request went where it went, by the id in its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from corral.bus.request_trace import TracedRequest
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.request_trace import KEPT
from harness.gateway import KEY, Answering, NoLoads, Replica, RunningGateway, completion, running_gateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}


def caller(gateway: RunningGateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30)


def note_of(gateway: RunningGateway, answer: httpx.Response) -> TracedRequest:
    note = gateway.gateway.explain(answer.headers["x-request-id"])
    assert note is not None
    return note


async def test_a_trace_names_the_chosen_replica_and_the_one_it_was_compared_with(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")
    gateway.serve("m", one, two)
    answer = await client.post(CHAT, json=BODY)
    note = note_of(gateway, answer)
    assert (note.model, note.path, note.state, note.status, note.rule) == ("m", CHAT, "answered", 200, "two")
    assert note.chosen is not None
    assert note.against is not None
    assert note.chosen.node == f"node-{answer.json()['who']}"
    assert {note.chosen.node, note.against.node} == {"node-one", "node-two"}
    assert (note.chosen.open, note.against.open, len(note.candidates)) == (0, 0, 2)
    assert (note.load_waited_s, note.queued_s, note.failed) == (None, None, ())
    assert note.first_byte_s is not None
    assert 0 < note.first_byte_s <= note.took_s


async def test_a_streamed_answer_begins_with_its_first_token_and_not_with_its_head(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    has_read = asyncio.Event()

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        await answering.chunk(b":\n\n")
        await has_read.wait()
        for word in ("one", "two", "[DONE]"):
            await answering.event(word)
        await answering.end_stream()

    one.script = stream
    reading_s = 0.2
    async with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
        pieces = answer.aiter_bytes()
        assert await anext(pieces) == b":\n\n"
        await asyncio.sleep(reading_s)
        assert note_of(gateway, answer).first_byte_s is None
        has_read.set()
        assert b"".join([piece async for piece in pieces]).count(b"data: ") == 3
    note = note_of(gateway, answer)
    assert note.first_byte_s is not None
    assert reading_s <= note.first_byte_s <= note.took_s


async def test_traces_of_a_session_of_an_only_replica_and_of_a_rejection(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")
    gateway.serve("m", one, two)
    assert note_of(gateway, await client.post(CHAT, json=BODY, headers={"x-session-id": "s"})).rule == "session"
    gateway.serve("m", one)
    assert note_of(gateway, await client.post(CHAT, json=BODY)).rule == "only"
    gateway.serve("m")
    refused = await client.post(CHAT, json=BODY)
    note = note_of(gateway, refused)
    assert (note.state, note.status, note.chosen) == ("refused", 503, None)
    assert note.ending == refused.json()["error"]["message"]


async def test_a_trace_names_failed_replicas_and_open_requests(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    bad, good = await replica("bad"), await replica("good")
    gate = asyncio.Event()

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": []})
        await gate.wait()
        await answering.event("[DONE]")
        await answering.end_stream()

    good.script = stream
    gateway.serve("m", bad, good)
    await bad.kill()
    for _ in range(20):  # until chance has sent one to the dead replica first
        gate.clear()
        async with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            assert note_of(gateway, answer).state == "open"
            gate.set()
            await answer.aread()
        note = note_of(gateway, answer)
        if note.failed:
            break
    assert [failure.node for failure in note.failed] == ["node-bad"]
    assert note.chosen is not None
    assert note.chosen.node == "node-good"
    assert note.state == "answered"


async def test_a_trace_has_the_load_and_the_queue_whose_time_limit_begins_after_the_load(
    replica: Start,
) -> None:
    one = await replica("one")

    async def slowly(answering: Answering) -> None:
        await asyncio.sleep(0.05)
        await answering.json(completion("one"))

    one.script = slowly

    class Loads:
        async def ensure(self, model: str, *, within_s: float) -> None:
            await asyncio.sleep(3.2)
            gateway.serve("m", one, capacity=1)

        def describe(self, model: str) -> str:
            return ""

    limits = GatewayLimits(queue=3, queue_wait_s=3)
    async with running_gateway(limits=limits, loads=Loads()) as gateway, caller(gateway) as client:
        gateway.serve("m")
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(3)]
        await until(lambda: gateway.gateway.table.by_name["m"].loading.length == 3, "three wait for the load")
        too_many = await client.post(CHAT, json=BODY)
        assert (too_many.status_code, too_many.json()["error"]["code"]) == (429, "queue_full")
        answers = await asyncio.gather(*calls)
        assert [answer.status_code for answer in answers] == [200] * 3
        notes = sorted((note_of(gateway, answer) for answer in answers), key=lambda note: note.took_s)
        assert all(note.load_waited_s is not None and note.load_waited_s >= 3 for note in notes)
        assert [note.queue_position for note in notes] == [None, 1, 2]
        assert notes[2].queued_s is not None
        assert 0.04 < notes[2].queued_s < 3, "the load is no part of it"


async def test_only_the_latest_traces_are_kept_and_other_ids_are_unknown(replica: Start) -> None:
    one = await replica("one")
    async with running_gateway(loads=NoLoads()) as gateway, caller(gateway) as client:
        gateway.serve("m", one)
        first = await client.post(CHAT, json=BODY)
        entries = gateway.gateway.traces.entries
        gateway.gateway.accounting.fold()
        entries.extend([(10**6, *entries[0][1:])] * KEPT)
        assert len(entries) == KEPT
        request_id = first.headers["x-request-id"]
        for wrong in (request_id, "other-1", gateway.gateway.traces.prefix, gateway.gateway.traces.prefix + "zz", ""):
            assert gateway.gateway.explain(wrong) is None
