"""The gateway over real sockets: what a client sees, and what a replica sees."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.core.replicas.routing import ModelRoute, RoutePolicy
from corral.frontend.gateway.limits import GatewayLimits
from harness.gateway import (
    KEY,
    LIMITED_KEY,
    OTHER_KEY,
    Answering,
    Replica,
    RunningGateway,
    calling,
    completion,
    running_gateway,
)
from harness.machine_speed import promised
from harness.streams import connect
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"


def chat(model: str = "m", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}


async def test_a_chat_reaches_the_replica_and_its_answer_the_client(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    answer = await client.post(CHAT, json=chat())
    assert answer.status_code == 200
    assert answer.json() == completion("one")
    assert one.seen[0].json() == chat()
    assert one.seen[0].path == CHAT


@pytest.mark.parametrize(
    "path",
    ["completions", "embeddings", "rerank", "audio/speech", "audio/translations", "images/generations", "responses"],
)
async def test_every_endpoint_is_proxied(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str
) -> None:
    one = await replica("one")
    gateway.serve("m", one, endpoints=frozenset({f"/v1/{path}"}))
    assert (await client.post(f"/v1/{path}", json={"model": "m", "input": "x"})).status_code == 200
    assert one.seen[0].path == f"/v1/{path}"


async def test_a_transcription_is_routed_by_its_form_field(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("whisper", one, aliases=("whisper-1",))
    sound = bytes(range(256)) * 1000
    answer = await client.post(
        "/v1/audio/transcriptions", files={"file": ("a.wav", sound)}, data={"model": "whisper-1", "language": "en"}
    )
    assert answer.status_code == 200
    assert sound in one.seen[0].body
    assert b'name="model"\r\n\r\nwhisper\r\n' in one.seen[0].body


async def test_an_alias_becomes_the_models_own_name_and_nothing_else_changes(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("real", one, aliases=("gpt-4",))
    body = b'{"temperature": 0.10, "model":"gpt-4","big":123456789012345678901234567890, "n":{"model":"gpt-4"}}'
    assert (await client.post(CHAT, content=body)).status_code == 200
    sent = one.seen[0].body
    assert b'"model":"real"' in sent
    assert b"0.10" in sent
    assert b"123456789012345678901234567890" in sent
    assert b'"n":{"model":"gpt-4"}' in sent


async def test_a_replica_sees_its_token_and_never_the_clients_headers(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    await client.post(
        CHAT, json=chat(), headers={"Cookie": "a=b", "X-Forwarded-For": "1.2.3.4", "TE": "trailers", "Accept": "*/*"}
    )
    headers = one.seen[0].headers
    assert headers["authorization"] == f"Bearer {one.token}"
    assert headers["x-corral-replica"] == "replica-one"
    assert headers["x-corral-generation"] == "1"
    assert set(headers) == {
        "host", "authorization", "x-corral-replica", "x-corral-generation", "accept", "content-type", "content-length",
    }  # fmt: skip


async def test_connections_to_a_replica_are_kept(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    for _ in range(20):
        await client.post(CHAT, json=chat())
    assert one.connections == 1


async def test_a_connection_that_the_replica_closed_while_idle_costs_nothing(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def once(answering: Answering) -> None:
        await answering.json(completion("one"))
        answering.writer.close()

    one.script = once
    gateway.serve("m", one)
    for _ in range(5):
        assert (await client.post(CHAT, json=chat())).status_code == 200


async def test_a_stream_arrives_piece_by_piece(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    go_on = asyncio.Event()

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"n": 1})
        await asyncio.wait_for(go_on.wait(), 60)
        await answering.event({"n": 2})
        await answering.event("[DONE]")
        await answering.end_stream()

    one.script = script
    gateway.serve("m", one)
    async with client.stream("POST", CHAT, json=chat(stream=True)) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.aiter_lines()
        assert json.loads((await anext(lines)).removeprefix("data: ")) == {"n": 1}
        go_on.set()
        rest = [line async for line in lines]
    assert rest == ["", 'data: {"n": 2}', "", "data: [DONE]", ""]


async def test_one_connection_serves_gateway_and_app_in_turn(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    async with httpx.AsyncClient(
        base_url=gateway.url, headers=dict(client.headers), limits=httpx.Limits(max_connections=1)
    ) as single:
        for _ in range(3):
            assert (await single.get("/healthz")).text == "the app"
            assert (await single.post(CHAT, json=chat())).status_code == 200
            assert (await single.post("/elsewhere", content=b"x" * 100_000)).text == "the app"
            assert (await single.get("/v1/models")).status_code == 200


async def test_pipelined_requests_are_answered_in_order(gateway: RunningGateway, replica: Start) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    body = json.dumps(chat()).encode()
    request = b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (
        CHAT.encode(), KEY.encode(), len(body), body,
    )  # fmt: skip
    unknown = request.replace(b'"m"', b'"q"')
    reader, writer = await connect(gateway.port)
    last = b"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer %b\r\n\r\n" % KEY.encode()
    writer.write(request + unknown + request + last)
    data = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    statuses = re.findall(rb"HTTP/1.1 (\d+)", data)
    assert statuses == [b"200", b"404", b"200", b"200"]


async def test_an_old_client_gets_a_stream_without_chunks(gateway: RunningGateway, replica: Start) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"n": 1})
        await answering.end_stream()

    one.script = script
    gateway.serve("m", one)
    body = json.dumps(chat(stream=True)).encode()
    reader, writer = await connect(gateway.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.0\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
        % (KEY.encode(), len(body), body)
    )
    data = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert b"chunked" not in data
    assert data.endswith(b'\r\n\r\ndata: {"n": 1}\n\n')


async def test_a_connection_is_kept_after_a_stream_where_the_replica_keeps_it(
    replica: Start,
) -> None:
    keeps, closes = await replica("keeps"), await replica("closes")

    async def stream(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"n": 1})
        await answering.event("[DONE]")
        await answering.end_stream()

    async def stream_and_close(answering: Answering) -> None:
        await stream(answering)
        answering.writer.close()

    keeps.script, closes.script = stream, stream_and_close
    async with running_gateway(hold_back_s=0.1) as gateway, calling(gateway) as client:
        gateway.serve("keeps", keeps)
        gateway.serve("closes", closes)
        for model in ("keeps", "closes"):
            for number in range(6):
                text = (await client.post(CHAT, json={"model": model, "stream": True})).text
                assert text == 'data: {"n": 1}\n\ndata: [DONE]\n\n'
                if model == "keeps" and number == 2:
                    # The first ones are watched; from then on it is known.
                    link: Any = gateway.gateway.table.by_name[model].endpoints[0].link
                    await until(lambda: link.keeps_after_streams, "it is known that connections are kept")  # noqa: B023
    assert len(keeps.seen) == len(closes.seen) == 6
    assert keeps.connections <= 3
    assert closes.connections == 6


async def test_chunks_come_as_they_are_however_they_are_cut(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    events = [b"data: %b\n\n" % (b"x" * size) for size in (1, 8, 9, 248, 249, 4000, 9000)]
    whole = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    upper = [b"%X;ext=1\r\n%b\r\n" % (len(event), event) for event in events]
    bytewise = [b"".join(whole[:3])[at : at + 1] for at in range(len(b"".join(whole[:3])))]
    cuts = {
        "one each": whole,
        "all at once": [b"".join(whole)],
        "some at once": [whole[0], b"".join(whole[1:4]), b"".join(whole[4:])],
        "some and a half": [whole[0], b"".join(whole[1:4]) + whole[4][:100], whole[4][100:], b"".join(whole[5:])],
        "another spelling": upper,
        "two and a half": [b"".join(whole[:2]) + whole[2][:5], whole[2][5:], *whole[3:]],
        "size line alone": [piece for chunk in whole for piece in (chunk[:2], chunk[2:])],
        "one byte each": [*bytewise, *whole[3:]],
    }

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        for piece in cuts[answering.seen.json()["cut"]]:
            await answering.send(piece)
            await asyncio.sleep(0.001)
        await answering.end_stream()

    one.script = script
    gateway.serve("m", one)
    for cut in cuts:
        answer = await client.post(CHAT, json={"model": "m", "stream": True, "cut": cut})
        assert answer.content == b"".join(events), cut


async def test_the_model_list_holds_what_the_key_may_use(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("allowed", one, created_at_ms=1_700_000_000_500, aliases=("handy",))
    gateway.serve("secret", one, aliases=("hidden",))
    every = (await client.get("/v1/models")).json()
    assert [model["id"] for model in every["data"]] == ["allowed", "handy", "hidden", "secret"]
    assert [model.get("root") for model in every["data"]] == [None, "allowed", "secret", None]
    assert every["data"][0]["created"] == 1_700_000_000
    assert (await client.get("/v1/models/")).json() == every
    length = (await client.head("/v1/models")).headers["content-length"]
    assert int(length) == len((await client.get("/v1/models")).content)
    limited = {"Authorization": f"Bearer {LIMITED_KEY}"}
    some = (await client.get("/v1/models", headers=limited)).json()
    assert [model["id"] for model in some["data"]] == ["allowed", "handy"]
    assert (await client.get("/v1/models/secret", headers=limited)).status_code == 404
    assert (await client.get("/v1/models/allowed", headers=limited)).json()["id"] == "allowed"
    refused = await client.post(CHAT, json=chat("secret"), headers=limited)
    assert refused.status_code == 404
    assert not one.seen


async def test_load_is_shared_by_equal_replicas(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    many = [await replica(f"r{number}") for number in range(4)]
    gateway.serve("m", *many)
    for _ in range(20):
        answers = await asyncio.gather(*(client.post(CHAT, json=chat()) for _ in range(10)))
        assert {answer.status_code for answer in answers} == {200}
    counts = [len(one.seen) for one in many]
    assert sum(counts) == 200
    assert max(counts) <= 100, counts


async def test_a_session_stays_with_its_replica_while_that_is_not_too_busy(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    many = [await replica(f"r{number}") for number in range(4)]
    gateway.serve("m", *many)
    for session in ("a", "b", "c", "d", "e"):
        whos = {
            (await client.post(CHAT, json=chat(), headers={"X-Session-Id": session})).json()["who"] for _ in range(8)
        }
        assert len(whos) == 1


async def test_requests_that_begin_alike_go_to_one_replica_by_policy(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    many = [await replica(f"r{number}") for number in range(4)]
    gateway.serve("m", *many, policy=RoutePolicy(prefix_affinity=True))
    start = "You are a helpful assistant. " * 60
    bodies = [chat(messages=[{"role": "system", "content": start}, {"role": "user", "content": str(n)}]) for n in "abc"]
    whos = {(await client.post(CHAT, json=body)).json()["who"] for body in bodies}
    assert len(whos) == 1


async def test_a_changed_route_counts_at_the_next_pick(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")
    gateway.serve("m", one)
    await client.post(CHAT, json=chat())
    gateway.serve("m", two)
    for _ in range(5):
        assert (await client.post(CHAT, json=chat())).json()["who"] == "two"


@pytest.mark.processes
async def test_the_table_follows_its_source_within_a_second(gateway: RunningGateway, replica: Start) -> None:
    one = await replica("one")
    with promised("a route's way into the table", within_s=1):
        gateway.routes.put(ModelRoute(model="late", replicas=(one.route(),)))
        async with asyncio.timeout(30):
            while gateway.gateway.table.by_name.get("late") is None:
                await gateway.gateway.table.wait_for_change()


async def test_nodes_are_named_when_requested(replica: Start) -> None:
    one = await replica("one")
    async with running_gateway(limits=GatewayLimits(show_node=True)) as gateway:
        gateway.serve("m", one)
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as client:
            answer = await client.post(gateway.url + CHAT, json=chat())
    assert answer.headers["x-corral-node"] == "node-one"
    assert answer.headers["x-localai-node"] == "id-of-one"


async def test_only_an_administrators_client_sees_the_node(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    assert "x-corral-node" not in (await client.post(CHAT, json=chat())).headers
    answer = await client.post(CHAT, json=chat(), headers={"X-Corral-Client": "ui"})
    assert answer.headers["x-corral-node"] == "node-one"
    others = {"X-Corral-Client": "ui", "Authorization": f"Bearer {OTHER_KEY}"}
    assert "x-corral-node" not in (await client.post(CHAT, json=chat(), headers=others)).headers


async def test_metrics_count_requests_tokens_and_times_by_model_and_node(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    for _ in range(3):
        await client.post(CHAT, json=chat())
    await client.post(CHAT, json=chat("nope"))
    text = gateway.metrics()
    assert 'corral_requests_total{model="m",node="node-one",status="200"} 3' in text
    assert 'corral_tokens_total{model="m",node="node-one",direction="in"} 21' in text
    assert 'corral_tokens_total{model="m",node="node-one",direction="out"} 9' in text
    assert 'corral_request_seconds_count{model="m",node="node-one"} 3' in text
    assert 'corral_first_byte_seconds_bucket{model="m",node="node-one",le="+Inf"} 3' in text
    assert 'corral_in_flight{model="m",node="node-one"} 0' in text
    assert 'corral_rejected_requests_total{status="404",reason="model_not_found"} 1' in text


async def test_tokens_of_a_stream_are_counted(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        for number in range(4):
            await answering.event({"n": number})
        if b"include_usage" in answering.seen.body:
            await answering.event({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 60}})
        await answering.event("[DONE]")
        await answering.end_stream()

    one.script = script
    gateway.serve("m", one)
    await client.post(CHAT, json=chat(stream=True))
    assert 'direction="out"} 4' in gateway.metrics()
    await client.post(CHAT, json=chat(stream=True, stream_options={"include_usage": True}))
    assert 'direction="out"} 64' in gateway.metrics()
    estimated = len(one.seen[0].body) // 4
    assert f'direction="in"}} {50 + estimated}' in gateway.metrics()


async def test_tokens_of_a_stream_are_those_that_the_replica_reports_unasked(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"choices": [{"delta": {"content": '{"timings": {"predicted_n": 7}}'}}]})
        timings = {"cache_n": 24, "prompt_n": 10, "prompt_ms": 5.5, "predicted_n": 60, "predicted_per_second": 99.0}
        await answering.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": timings})
        await answering.event("[DONE]")
        await answering.end_stream()

    one.script = script
    gateway.serve("m", one)
    await client.post(CHAT, json=chat(stream=True))
    assert 'direction="in"} 34' in gateway.metrics()
    assert 'direction="out"} 60' in gateway.metrics()


async def test_heads_that_repeat_carry_bodies_of_every_length_both_ways(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        body = answering.seen.json()
        await answering.json({"echo": body["prompt"] * 2}, status=body.get("status", 200))

    one.script = script
    gateway.serve("m", one)
    for length in (1, 10, 100, 1000, 100, 10, 100_000, 1, 0):
        prompt = "x" * length
        assert (await client.post(CHAT, json=chat(prompt=prompt))).json() == {"echo": prompt * 2}
    assert (await client.post(CHAT, json=chat(prompt="y", status=422))).status_code == 422
    assert (await client.post(CHAT, json=chat(prompt="y"), headers={"X-Other": "1"})).json() == {"echo": "yy"}
    assert one.connections == 1


async def test_audio_of_every_length_arrives_complete(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        sound = b"s" * answering.seen.json()["length"]
        await answering.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: %d\r\n\r\n%b" % (len(sound), sound)
        )

    one.script = script
    gateway.serve("m", one)
    for length in (5, 500, 50, 500_000, 0, 7):
        answer = await client.post("/v1/audio/speech", json={"model": "m", "length": length})
        assert answer.content == b"s" * length
        assert answer.headers["content-type"] == "audio/wav"
