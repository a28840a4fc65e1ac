"""Why a request went where it went, asked by the id of its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from corral.bus.request_trace import TracedRequest
from corral.frontend.gateway.limits import LaneLimits
from corral.frontend.gateway.loads import NoLoads
from corral.frontend.gateway.trace import KEPT
from harness.lane import KEY, Answering, Replica, RunningLane, completion, running_lane
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}


def caller(lane: RunningLane) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=lane.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30)


def note_of(lane: RunningLane, answer: httpx.Response) -> TracedRequest:
    note = lane.lane.explain(answer.headers["x-request-id"])
    assert note is not None
    return note


async def test_of_two_the_less_busy_one_and_who_it_was_weighed_against(
    lane: RunningLane, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")
    lane.serve("m", one, two)
    answer = await client.post(CHAT, json=BODY)
    note = note_of(lane, answer)
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
    lane: RunningLane, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    lane.serve("m", one)
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
        assert note_of(lane, answer).first_byte_s is None
        has_read.set()
        assert b"".join([piece async for piece in pieces]).count(b"data: ") == 3
    note = note_of(lane, answer)
    assert note.first_byte_s is not None
    assert reading_s <= note.first_byte_s <= note.took_s


async def test_a_session_an_only_one_and_a_refusal(
    lane: RunningLane, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")
    lane.serve("m", one, two)
    assert note_of(lane, await client.post(CHAT, json=BODY, headers={"x-session-id": "s"})).rule == "session"
    lane.serve("m", one)
    assert note_of(lane, await client.post(CHAT, json=BODY)).rule == "only"
    lane.serve("m")
    refused = await client.post(CHAT, json=BODY)
    note = note_of(lane, refused)
    assert (note.state, note.status, note.chosen) == ("refused", 503, None)
    assert note.ending == refused.json()["error"]["message"]


async def test_who_failed_it_before_and_that_it_is_under_way(
    lane: RunningLane, client: httpx.AsyncClient, replica: Start
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
    lane.serve("m", bad, good)
    await bad.kill()
    for _ in range(20):  # until chance has sent one to the dead replica first
        gate.clear()
        async with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            assert note_of(lane, answer).state == "open"
            gate.set()
            await answer.aread()
        note = note_of(lane, answer)
        if note.failed:
            break
    assert [failure.node for failure in note.failed] == ["node-bad"]
    assert note.chosen is not None
    assert note.chosen.node == "node-good"
    assert note.state == "answered"


async def test_a_load_and_a_place_in_line_are_told_and_the_queues_limit_begins_when_the_load_is_over(
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
            lane.serve("m", one, capacity=1)

    limits = LaneLimits(queue=3, queue_wait_s=3)
    async with running_lane(limits=limits, loads=Loads()) as lane, caller(lane) as client:
        lane.serve("m")
        calls = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(3)]
        await until(lambda: lane.lane.table.by_name["m"].waiting_for_load == 3, "three wait for the load")
        too_many = await client.post(CHAT, json=BODY)
        assert (too_many.status_code, too_many.json()["error"]["code"]) == (429, "queue_full")
        answers = await asyncio.gather(*calls)
        assert [answer.status_code for answer in answers] == [200] * 3
        notes = sorted((note_of(lane, answer) for answer in answers), key=lambda note: note.took_s)
        assert all(note.load_waited_s is not None and note.load_waited_s >= 3 for note in notes)
        assert [note.queue_position for note in notes] == [None, 1, 2]
        assert notes[2].queued_s is not None
        assert 0.04 < notes[2].queued_s < 3, "the load is no part of it"


async def test_only_the_latest_are_kept_and_others_ids_are_not_ours(replica: Start) -> None:
    one = await replica("one")
    async with running_lane(loads=NoLoads()) as lane, caller(lane) as client:
        lane.serve("m", one)
        first = await client.post(CHAT, json=BODY)
        entries = lane.lane.notes.entries
        lane.lane.ledger.fold()
        entries.extend([(10**6, *entries[0][1:])] * KEPT)
        assert len(entries) == KEPT
        request_id = first.headers["x-request-id"]
        for wrong in (request_id, "other-1", lane.lane.notes.prefix, lane.lane.notes.prefix + "zz", ""):
            assert lane.lane.explain(wrong) is None
