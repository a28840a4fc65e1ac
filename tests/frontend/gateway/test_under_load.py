"""Replicas die, ports change owners and frontends stop under load."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.gateway import KEY, Answering, Replica, RunningGateway, completion
from harness.ports import free_port
from harness.programs import call
from harness.streams import connect
from harness.waiting import until, wait_until

pytestmark = pytest.mark.processes

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
RATE_PER_S = 200
BODY = json.dumps({"model": "m", "messages": []}).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
    + KEY.encode()
    + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


class Caller:
    """Sends requests at a steady rate over a few connections, and keeps what came back.

    With several addresses it goes on to the next one when a connection fails, as clients of several frontends do."""

    def __init__(self, *ports: int) -> None:
        self._ports = ports
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.moved = 0

    async def _lend(self, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connect(self._ports[number % len(self._ports)])

    async def call(self, turns: "asyncio.Queue[int | None]") -> None:
        number = 0
        link = None
        while await turns.get() is not None:
            for _ in range(2 * len(self._ports)):
                try:
                    link = link or await self._lend(number)
                    reader, writer = link
                    writer.write(REQUEST)
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    body = json.loads(await reader.readexactly(length))
                    self.answers.append((int(head.split(b" ")[1]), body))
                    break
                except (ConnectionError, asyncio.IncompleteReadError):
                    link = None
                    number += 1
                    self.moved += 1
        if link is not None:
            link[1].close()

    @asynccontextmanager
    async def calling(self, connections: int = 20) -> AsyncIterator[None]:
        turns: asyncio.Queue[int | None] = asyncio.Queue()
        tasks = [asyncio.ensure_future(self.call(turns)) for _ in range(connections)]

        async def pace() -> None:
            while True:
                for _ in range(RATE_PER_S // 20):
                    turns.put_nowait(1)
                await asyncio.sleep(1 / 20)

        pacing = asyncio.ensure_future(pace())
        try:
            yield
        finally:
            pacing.cancel()
            for _ in tasks:
                turns.put_nowait(None)
            await asyncio.wait_for(asyncio.gather(*tasks), 60)

    async def wait_for(self, more: int) -> None:
        wanted = len(self.answers) + more
        await until(lambda: len(self.answers) >= wanted, f"{more} more answers", within_s=60)

    def whos(self, since: int = 0) -> Counter[str]:
        return Counter(body.get("who", "error") for _, body in self.answers[since:])

    def statuses(self) -> Counter[int]:
        return Counter(status for status, _ in self.answers)


async def slow_answer(answering: Answering, who: str) -> None:
    await asyncio.sleep(0.02)
    await answering.json(completion(who))


async def test_killing_one_of_three_replicas_under_load_costs_no_request(
    gateway: RunningGateway, replica: Start
) -> None:
    three = [await replica(name) for name in ("a", "b", "c")]
    for one in three:
        one.script = partial(slow_answer, who=one.name)
    gateway.serve("m", *three)
    caller = Caller(gateway.port)
    async with caller.calling():
        await caller.wait_for(200)
        await three[0].kill()
        after = len(caller.answers)
        await caller.wait_for(400)
    assert set(caller.statuses()) == {200}, caller.statuses()
    assert caller.moved == 0
    assert set(caller.whos(after + 50)) == {"b", "c"}
    assert gateway.open_requests() == 0


async def test_a_port_that_changes_hands_under_load_never_answers_for_the_wrong_model(
    gateway: RunningGateway, replica: Start
) -> None:
    a, b, wrong = await replica("a"), await replica("b"), Replica("wrong")
    gateway.serve("m", a, b)
    caller = Caller(gateway.port)
    async with caller.calling():
        await caller.wait_for(100)
        port = a.port
        await a.kill()
        await wrong.start(port)
        await caller.wait_for(400)
    await wrong.kill()
    assert set(caller.statuses()) == {200}
    assert set(caller.whos()) == {"a", "b"}
    assert not wrong.seen


async def test_streams_on_a_dead_replica_end_with_an_error_and_others_go_on(
    gateway: RunningGateway, replica: Start
) -> None:
    doomed, safe = await replica("doomed"), await replica("safe")
    go_on = asyncio.Event()

    async def script(answering: Answering) -> None:
        await answering.start_stream()
        await answering.event({"n": 0})
        await asyncio.wait_for(go_on.wait(), 30)
        await answering.event({"n": 1})
        await answering.event("[DONE]")
        await answering.end_stream()

    doomed.script = safe.script = script
    gateway.serve("m", doomed, safe)

    async def read(client: httpx.AsyncClient) -> str:
        answer = await client.post(gateway.url + CHAT, json={"model": "m", "stream": True})
        return answer.text

    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=60, limits=httpx.Limits(max_connections=100)) as client:
        reads = [asyncio.ensure_future(read(client)) for _ in range(40)]
        await until(lambda: doomed.open + safe.open == 40, "all streams run", within_s=30)
        victims = doomed.open
        await doomed.kill()
        await asyncio.sleep(0)
        go_on.set()
        texts = await asyncio.gather(*reads)
    broken = [text for text in texts if '"replica_failed"' in text]
    whole = [text for text in texts if text.endswith("data: [DONE]\n\n")]
    assert len(broken) == victims > 0
    assert len(whole) == 40 - victims
    assert all("[DONE]" not in text for text in broken)
    assert gateway.open_requests() == 0


LANE = Path(__file__).parents[3] / "benchmarks" / "serving_parts" / "corral_gateway.py"


async def start_process(addresses: str) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(LANE), str(port), addresses, KEY, "--model", "m"])  # noqa: ASYNC220

    def answers() -> bool:
        told = call("GET", f"http://127.0.0.1:{port}/v1/models", key=KEY, within_s=20)
        return [model["id"] for model in told.json()["data"]] == ["m"]

    await asyncio.to_thread(wait_until, answers, what="the gateway answers", within_s=60)
    return process, port


async def test_killing_a_frontend_under_load_loses_nothing_for_clients_that_know_another(replica: Start) -> None:
    three = [await replica(name, token="process-token") for name in ("a", "b", "c")]
    addresses = ",".join(f"127.0.0.1:{one.port}" for one in three)
    (doomed, doomed_port), (safe, safe_port) = await asyncio.gather(start_process(addresses), start_process(addresses))
    try:
        caller = Caller(doomed_port, safe_port)
        async with caller.calling():
            await caller.wait_for(200)
            doomed.kill()
            doomed.wait(60)
            await caller.wait_for(200)
        assert set(caller.statuses()) == {200}
        assert caller.moved > 0
        await until(lambda: not any(one.open for one in three), "no replica works for the dead", within_s=5)
    finally:
        for process in (doomed, safe):
            process.kill()
            process.wait(60)
