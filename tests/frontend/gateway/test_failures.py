"""Replicas that die, hang or were replaced by another process; clients that disconnect."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.core.errors import InvalidInput, Unavailable
from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.routing import ModelRoute, RouteReplica
from corral.frontend.gateway.drivers import DriverRequest, ResponseWriter
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import LoadFailed, ModelLoading
from corral.system.http_limits import HttpLimits
from harness.gateway import KEY, Answering, Replica, RunningGateway, completion, running_gateway
from harness.ports import free_port
from harness.streams import connect
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True}
AUTH = {"Authorization": f"Bearer {KEY}"}


async def die_at_once(answering: Answering) -> None:
    answering.die()


async def die_half_way(answering: Answering) -> None:
    await answering.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"half":')
    answering.die()


async def speak_nonsense(answering: Answering) -> None:
    await answering.send(b"SSH-2.0-nonsense\r\n\r\n")


async def refuse_for_now(answering: Answering) -> None:
    await answering.json({"error": "loading model"}, status=503)


@pytest.mark.parametrize("fault", [die_at_once, die_half_way, speak_nonsense, refuse_for_now])
async def test_before_the_first_byte_another_replica_takes_over(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, fault: Any
) -> None:
    bad, good = await replica("bad"), await replica("good")
    bad.script = fault
    gateway.serve("m", bad, good)
    for _ in range(12):
        answer = await client.post(CHAT, json=BODY)
        assert (answer.status_code, answer.json()["who"]) == (200, "good")
    # One that failed is left alone for a while: it does not get every other request again.
    assert 1 <= len(bad.seen) <= 3
    assert gateway.open_requests() == 0


async def test_an_unreachable_replica_is_skipped(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    gone, good = Replica("gone"), await replica("good")
    gone.port = free_port()
    gateway.serve("m", gone, good)
    for _ in range(10):
        assert (await client.post(CHAT, json=BODY)).json()["who"] == "good"


async def test_a_request_is_never_sent_again_to_the_replica_that_failed_it(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    bad = await replica("bad")
    bad.script = die_at_once
    gateway.serve("m", bad)
    answer = await client.post(CHAT, json=BODY)
    assert answer.status_code == 502
    error = answer.json()["error"]
    assert error["code"] == "replica_failed"
    assert "node-bad" in error["message"]
    assert answer.headers["retry-after"]
    assert len(bad.seen) == 1


async def test_a_request_waits_for_its_only_replica_to_start_again(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    assert (await client.post(CHAT, json=BODY)).status_code == 200
    port = one.port

    async def never_answer(answering: Answering) -> None:
        await answering.wait_for_hangup()

    one.script = never_answer
    asked = [asyncio.ensure_future(client.post(CHAT, json=BODY))]
    await until(lambda: one.open == 1, "it has a request when it dies")
    await one.kill()
    asked += [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(4)]
    served = gateway.gateway.table.by_name["m"]
    await until(lambda: len(served.queue) == 5, "all wait in line")
    again = Replica("one", token="token-of-a-new-process")
    await again.start(port)
    try:
        gateway.serve("m", again)
        answers = await asyncio.gather(*asked)
    finally:
        await again.kill()
    assert [answer.status_code for answer in answers] == [200] * 5
    assert gateway.open_requests() == 0


async def test_a_replica_that_still_takes_connections_while_it_dies_is_waited_for(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    port = one.port

    async def die_by_and_by(answering: Answering) -> None:
        answering.die()

    one.script = die_by_and_by
    asked = asyncio.ensure_future(client.post(CHAT, json=BODY))
    await until(lambda: one.connections == 2, "it is asked whether somebody listens")
    await one.kill()
    await until(lambda: bool(gateway.gateway.table.by_name["m"].queue), "the request waits in line")
    again = await replica("again", token=one.token, port=port)
    assert (await asked).json()["who"] == "again"
    assert len(again.seen) == 1


async def test_the_same_process_is_tried_again_after_a_while(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    gateway.serve("m", one)
    port = one.port
    await one.kill()
    asked = asyncio.ensure_future(client.post(CHAT, json=BODY))
    await until(lambda: bool(gateway.gateway.table.by_name["m"].queue), "it waits in line")
    await one.start(port)
    assert (await asked).json()["who"] == "one"


async def test_a_replica_that_does_not_return_gives_503(replica: Start) -> None:
    one = await replica("one")
    async with running_gateway(limits=GatewayLimits(queue_wait_s=0.5)) as gateway:
        gateway.serve("m", one)
        await one.kill()
        async with httpx.AsyncClient(headers=AUTH) as client:
            answer = await client.post(gateway.url + CHAT, json=BODY, timeout=60)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], answer.headers["retry-after"]) == (503, "replica_unreachable", "5")
        assert "node-one" in error["message"]
        assert not gateway.gateway.table.by_name["m"].queue
        assert gateway.open_requests() == 0


async def test_an_unresponsive_replica_loses_its_requests_to_others(replica: Start) -> None:
    hung, busy, good = await replica("hung"), await replica("busy"), await replica("good")

    async def hang(answering: Answering) -> None:
        await answering.wait_for_hangup()

    async def work_long(answering: Answering) -> None:
        if answering.seen.path == "/health":
            await answering.json({})
            return
        await asyncio.wait_for(go_on.wait(), 30)
        await answering.json(completion("busy"))

    go_on = asyncio.Event()
    hung.script, busy.script = hang, work_long
    async with (
        running_gateway(limits=GatewayLimits(probe_after_s=0.3, probe_within_s=0.2, probe_every_s=0.1)) as gateway,
        httpx.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=20) as client,
    ):
        gateway.serve("m", hung)
        gateway.serve("n", busy)
        stuck = asyncio.ensure_future(client.post(CHAT, json=BODY))
        long = asyncio.ensure_future(client.post(CHAT, json={**BODY, "model": "n"}))
        # Alone it keeps its request: nobody could do better.
        await until(lambda: [seen.path for seen in hung.seen].count("/health") >= 5, "it was asked for a sign of life")
        assert not stuck.done()
        gateway.serve("m", hung, good)
        gateway.serve("n", busy, good)
        assert (await stuck).json()["who"] == "good"
        for _ in range(6):
            assert (await client.post(CHAT, json=BODY)).json()["who"] == "good"
        # One that answers for its health may take its time.
        await until(lambda: [seen.path for seen in busy.seen].count("/health") >= 2, "it gave signs of life")
        assert not long.done()
        go_on.set()
        assert (await long).json()["who"] == "busy"
        assert gateway.open_requests() == 0


async def test_a_started_stream_ends_when_its_replica_is_unresponsive(replica: Start) -> None:
    hung, busy = await replica("hung"), await replica("busy")
    go_on = asyncio.Event()

    async def begin_and_hang(answering: Answering) -> None:
        if answering.seen.path != "/health":
            await answering.start_stream()
            await answering.event({"n": 1})
        await answering.wait_for_hangup()

    async def begin_and_work(answering: Answering) -> None:
        if answering.seen.path == "/health":
            await answering.json({})
            return
        await answering.start_stream()
        await answering.event({"n": 1})
        await asyncio.wait_for(go_on.wait(), 30)
        await answering.event({"n": 2})
        await answering.end_stream()

    hung.script, busy.script = begin_and_hang, begin_and_work

    async def lines(client: httpx.AsyncClient, model: str) -> list[str]:
        async with client.stream("POST", CHAT, json={**BODY, "model": model, "stream": True}) as answer:
            return [line async for line in answer.aiter_lines() if line]

    async with (
        running_gateway(
            limits=GatewayLimits(probe_after_s=0.3, probe_within_s=0.3, probe_every_s=0.1, unresponsive_s=2.0)
        ) as gateway,
        httpx.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=20) as client,
    ):
        gateway.serve("m", hung)
        gateway.serve("n", busy)
        working = asyncio.ensure_future(lines(client, "n"))
        first, last = await lines(client, "m")
        assert json.loads(first.removeprefix("data: ")) == {"n": 1}
        error = json.loads(last.removeprefix("data: "))["error"]
        assert (error["code"], "health probes in a row failed" in error["message"]) == ("replica_failed", True)
        # One that answers for its health may take its time.
        assert [seen.path for seen in busy.seen].count("/health") >= 2
        assert not working.done()
        go_on.set()
        assert [json.loads(line.removeprefix("data: ")) for line in (await working)[:2]] == [{"n": 1}, {"n": 2}]
        assert gateway.open_requests() == 0


async def test_the_last_replicas_own_error_reaches_the_client(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    only = await replica("only")
    only.script = refuse_for_now
    gateway.serve("m", only)
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()) == (503, {"error": "loading model"})


async def test_a_backends_own_error_is_relayed_and_not_retried(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")

    async def script(answering: Answering) -> None:
        await answering.json({"error": {"message": "context too long"}}, status=400)

    one.script = two.script = script
    gateway.serve("m", one, two)
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "context too long")
    assert len(one.seen) + len(two.seen) == 1


async def test_a_model_without_embeddings_gets_the_gateways_own_error(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        error = {"code": 501, "message": "Start it with `--embeddings`", "type": "not_supported_error"}
        await answering.json({"error": error}, status=501)

    one.script = script
    gateway.serve("m", one)
    answer = await client.post("/v1/embeddings", json={"model": "m", "input": "hi"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "embeddings_not_supported", "model")
    assert "embeddings: true" in error["message"]
    assert gateway.open_requests() == 0


async def test_a_stream_that_breaks_ends_with_an_error_event_and_a_proper_end(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one, two = await replica("one"), await replica("two")

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"n": 1})
        # Half a chunk, and gone.
        await answering.send(b"40\r\ndata: half")
        answering.die()

    one.script = two.script = script
    gateway.serve("m", one, two)
    async with client.stream("POST", CHAT, json=STREAM) as answer:
        text = (await answer.aread()).decode()
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert events[0] == {"n": 1}
    [error] = events[1:]  # not the half event
    assert error["error"]["code"] == "replica_failed"
    assert len(one.seen) + len(two.seen) == 1
    counted = gateway.metrics()
    assert re.search(r'corral_requests_total\{model="m",node="node-(one|two)",status="200"\} 1', counted)
    assert re.search(r'corral_tokens_total\{model="m",node="node-(one|two)",direction="out"\} 1', counted)
    # The connection is still good for another request.
    one.script = two.script = one._answer
    assert (await client.post(CHAT, json=BODY)).status_code == 200
    assert gateway.open_requests() == 0


async def test_a_port_that_another_process_took_over_never_answers(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    """INV-21."""
    one, other = await replica("one"), await replica("other")
    gateway.serve("m", one, other)
    gateway.serve("n", other)
    for _ in range(4):
        await client.post(CHAT, json=BODY)
    port = one.port
    await one.kill()
    usurper = Replica("usurper")
    await usurper.start(port)
    try:
        for _ in range(20):
            answer = await client.post(CHAT, json=BODY)
            assert (answer.status_code, answer.json()["who"]) == (200, "other")
        assert not usurper.seen
    finally:
        await usurper.kill()


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_client_that_leaves_frees_replica_socket_and_lease(
    gateway: RunningGateway, replica: Start, body: dict[str, Any]
) -> None:
    """INV-24, INV-37."""
    one = await replica("one")
    hung_up = asyncio.Event()

    async def script(answering: Answering) -> None:
        if body.get("stream"):
            await answering.start_stream()
            await answering.event({"n": 1})
        await answering.wait_for_hangup()
        hung_up.set()

    one.script = script
    gateway.serve("m", one)
    content = json.dumps(body).encode()
    reader, writer = await connect(gateway.port)
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
        % (CHAT.encode(), KEY.encode(), len(content), content)
    )
    await until(lambda: one.open == 1, "the replica has the request")
    if body.get("stream"):
        async with asyncio.timeout(30):
            await reader.readuntil(b'data: {"n": 1}')
    assert gateway.open_requests() == 1
    writer.close()
    async with asyncio.timeout(30):
        await hung_up.wait()
    await until(lambda: gateway.open_requests() == 0, "no lease is left")
    counted = gateway.metrics()
    assert 'corral_client_disconnects_total{model="m"} 1' in counted
    # What was worked for is counted, though nobody waited for its end.
    assert ('corral_requests_total{model="m",node="node-one",status="200"} 1' in counted) == ("stream" in body)
    assert ('corral_tokens_total{model="m",node="node-one",direction="out"} 1' in counted) == ("stream" in body)


async def test_a_client_that_does_not_read_slows_its_replica_down_and_nobody_else(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    sent = 0

    async def script(answering: Answering) -> None:
        nonlocal sent
        if not json.loads(answering.seen.body).get("stream"):
            await answering.json(completion("one"))
            return
        await answering.start_stream("application/octet-stream")
        for _ in range(2000):
            await answering.chunk(b"x" * 32768)
            sent += 32768

    one.script = script
    gateway.serve("m", one)
    content = json.dumps(STREAM).encode()
    reader, writer = await connect(gateway.port, limit=1024)
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
        % (CHAT.encode(), KEY.encode(), len(content), content)
    )
    last = -1
    while last != sent or sent == 0:
        last = sent
        for _ in range(5):
            assert (await client.post(CHAT, json=BODY)).status_code == 200
    assert sent < 30 << 20, "the gateway takes in what its client does not read"
    total = 0
    async with asyncio.timeout(60):
        while total < 2000 * 32768:
            piece = await reader.read(1 << 20)
            assert piece
            total += len(piece)
    writer.close()


async def test_a_client_that_never_reads_is_disconnected(replica: Start) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        await answering.start_stream("application/octet-stream")
        while True:
            await answering.chunk(b"x" * 65536)

    one.script = script
    async with running_gateway(http=HttpLimits(stall_s=0.5)) as gateway:
        gateway.serve("m", one)
        content = json.dumps(STREAM).encode()
        _, writer = await connect(gateway.port, limit=1024)
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
            % (CHAT.encode(), KEY.encode(), len(content), content)
        )
        await until(lambda: one.open == 1, "the stream runs")
        await until(lambda: one.open == 0, "the replica is free again", within_s=10)
        assert gateway.open_requests() == 0
        writer.close()


async def test_a_request_to_a_silent_replica_fails(replica: Start) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        await answering.wait_for_hangup()

    one.script = script
    async with running_gateway(limits=GatewayLimits(silence_s=0.5)) as gateway:
        gateway.serve("m", one)
        async with httpx.AsyncClient(headers=AUTH) as client:
            answer = await client.post(gateway.url + CHAT, json=BODY, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "replica_silent")
        await until(lambda: one.open == 0, "the replica was told")


class ScriptedLoads:
    def __init__(self, act: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self.act = act

    async def ensure(self, model: str, *, within_s: float) -> None:
        await self.act(model)

    def describe(self, model: str) -> str:
        return ""


async def test_a_model_on_demand_is_loaded_and_then_answers(replica: Start) -> None:
    one = await replica("one")

    async def load(model: str) -> None:
        gateway.routes.put(ModelRoute(model=model, replicas=(one.route(),)))

    async with running_gateway(loads=ScriptedLoads(load)) as gateway:
        gateway.serve("m")
        async with httpx.AsyncClient(headers=AUTH) as client:
            answers = await asyncio.gather(*(client.post(gateway.url + CHAT, json=BODY) for _ in range(5)))
    assert [answer.status_code for answer in answers] == [200] * 5


async def test_a_load_that_takes_longer_reports_its_progress() -> None:
    async def load(model: str) -> None:
        status = LoadProgress(
            model=model,
            state=LoadState.STAGING,
            node="n1",
            bytes_sent=40,
            total_bytes=100,
            file_index=2,
            total_files=5,
            eta_s=30.0,
        )
        raise ModelLoading("m is being loaded", loading=status, retry_after_s=30)

    async with running_gateway(loads=ScriptedLoads(load)) as gateway:
        gateway.serve("m")
        async with httpx.AsyncClient(headers=AUTH) as client:
            answer = await client.post(gateway.url + CHAT, json=BODY)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "30"
    assert answer.json()["error"]["code"] == answer.json()["error"]["type"] == "model_loading"
    assert answer.json()["loading"] == {
        "model": "m", "state": "staging", "node": "n1", "progress": 40.0, "bytes_sent": 40, "total_bytes": 100,
        "file_index": 2, "total_files": 5, "eta_seconds": 30,
    }  # fmt: skip


async def test_an_internal_error_during_a_load_leaves_no_request_waiting() -> None:
    class Broken:
        async def ensure(self, model: str, *, within_s: float) -> None:
            raise ZeroDivisionError

        def describe(self, model: str) -> str:
            return ""

    async with running_gateway(loads=Broken()) as gateway, httpx.AsyncClient(headers=AUTH) as client:
        gateway.serve("m")
        answer = await client.post(gateway.url + CHAT, json=BODY, timeout=60)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")


async def test_a_failed_load_reports_the_cause() -> None:
    async def load(model: str) -> None:
        raise LoadFailed("no node has 40 GiB of memory free")

    async with running_gateway(loads=ScriptedLoads(load)) as gateway:
        gateway.serve("m")
        async with httpx.AsyncClient(headers=AUTH) as client:
            answer = await client.post(gateway.url + CHAT, json=BODY)
    assert answer.status_code == 503
    assert "40 GiB" in answer.json()["error"]["message"]


class ScriptedDriver:
    def __init__(self, act: Callable[[DriverRequest, RouteReplica, ResponseWriter], Coroutine[Any, Any, None]]) -> None:
        self.handle = act

    async def close(self) -> None:
        pass


async def test_a_driver_answers_as_a_replica_would(replica: Start) -> None:
    tried: list[str] = []

    async def act(request: DriverRequest, where: RouteReplica, send: ResponseWriter) -> None:
        tried.append(where.id)
        if where.id == "replica-one":
            raise Unavailable("the channel is closed")
        if b"bad" in request.body:
            raise InvalidInput("temperature must be a number")
        send.count_tokens(prompt=5, completion=2)
        send.start(200, {"Content-Type": "text/event-stream" if request.stream else "application/json"})
        await send.write(b'data: {"a":1}\n\n' if request.stream else b'{"ok":true}')
        if b"break" in request.body:
            raise Unavailable("the backend died")

    one, two = Replica("one"), Replica("two")
    async with running_gateway(drivers={"localai-grpc": ScriptedDriver(act)}) as gateway:
        replicas = tuple(each.route(protocol="localai-grpc") for each in (one, two))
        gateway.routes.put(ModelRoute(model="m", replicas=replicas))
        gateway.gateway.table.apply(gateway.routes.snapshot)
        async with httpx.AsyncClient(base_url=gateway.url, headers=AUTH) as client:
            for _ in range(4):
                assert (await client.post(CHAT, json=BODY)).json() == {"ok": True}
            assert tried.count("replica-one") <= 2
            refused = await client.post(CHAT, json={**BODY, "bad": 1})
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
            assert 'corral_tokens_total{model="m",node="node-two",direction="in"} 20' in gateway.metrics()
            broken = (await client.post(CHAT, json={**STREAM, "break": 1})).text
            assert broken.startswith('data: {"a":1}\n\ndata: {"error"')
            assert "the backend died" in broken
        assert gateway.open_requests() == 0


async def test_a_driver_request_moves_from_a_lost_node_to_another(replica: Start) -> None:
    gone, busy, good = Replica("gone"), await replica("busy"), await replica("good")
    go_on = asyncio.Event()

    async def act(request: DriverRequest, where: RouteReplica, send: ResponseWriter) -> None:
        if where.id == "replica-gone":
            await asyncio.Event().wait()
        if where.id == "replica-busy":
            await asyncio.wait_for(go_on.wait(), 30)
        send.start(200, {"Content-Type": "application/json"})
        await send.write(json.dumps({"who": where.id}).encode())

    def put(gateway: RunningGateway, **models: tuple[Replica, ...]) -> None:
        routes = [
            ModelRoute(model=name, replicas=tuple(each.route(protocol="localai-grpc") for each in replicas))
            for name, replicas in models.items()
        ]
        gateway.routes.put(*routes)
        gateway.gateway.table.apply(gateway.routes.snapshot)

    async with (
        running_gateway(
            limits=GatewayLimits(probe_after_s=0.3, probe_every_s=0.1), drivers={"localai-grpc": ScriptedDriver(act)}
        ) as gateway,
        httpx.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=20) as client,
    ):
        put(gateway, m=(gone,), n=(busy,))
        stuck = asyncio.ensure_future(client.post(CHAT, json=BODY))
        long = asyncio.ensure_future(client.post(CHAT, json={**BODY, "model": "n"}))
        await until(lambda: gateway.open_requests() == 2, "both are under way")
        put(gateway, m=(gone, good), n=(busy, good))
        assert (await stuck).json() == {"who": "replica-good"}
        await until(lambda: busy.connections >= 2, "it was asked whether somebody listens")
        assert not long.done(), "one whose machine is there may take its time"
        go_on.set()
        assert (await long).json() == {"who": "replica-busy"}


async def test_a_stopping_frontend_ends_streams_with_an_explicit_error(replica: Start) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"n": 1})
        await answering.wait_for_hangup()

    one.script = script
    async with running_gateway() as gateway, httpx.AsyncClient(headers=AUTH) as client:
        gateway.serve("m", one)
        async with client.stream("POST", gateway.url + CHAT, json=STREAM) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == 'data: {"n": 1}'
            gateway.gateway.end()
            rest = [line async for line in lines]
    assert any("this frontend is stopping" in line for line in rest)
