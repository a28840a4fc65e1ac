"""Limits and fairness of keys, on a real frontend with a server attached to it.

    python benchmarks/key_limits.py [keys]

Overshoot: four frontend processes. All keys ask more often than their limit of requests per minute allows, first evenly
and then each on all connections at once; then the same with a limit of tokens per minute. Others send forty requests at
the same moment, where four may be open. At most processes x limit may be admitted (docs/limits.md).
Fairness: one key has more long requests than the queue has places, and ten keys send short ones. Their waiting time is
compared to what it is without the long ones: at most twice as long.

The exit code is 1 if a bound does not hold.
"""

import asyncio
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.cluster import Cluster
from harness.nats import Nats
from harness.programs import Admin
from harness.waiting import wait_until

PROCESSES = 4
RPM = 30
REQUEST_TOKENS = 6
"""What the engine reports for a request of the flood."""
CONCURRENT, AT_ONCE, CONCURRENT_KEYS = 4, 40, 20
HELD_TOKENS = 6000
"""Of requests that stay open for some seconds, until all of them have arrived."""
ASKED = 2.5
"""How often each key asks, as a multiple of its limit."""
CONNECTIONS = 64
WINDOW_S = 60.0
TOKEN_S = 0.0005
SLOTS = 4
LONG, LONG_TOKENS = 1100, 200
WAIT_RATIO_MAX = 2.0
SHORT_KEYS, SHORT_EACH, SHORT_TOKENS = 10, 25, 10


class Engine:
    """Answers after a time that its tokens take, for any number of requests at the same time."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head)) if b"POST" in head[:5] else b""
                tokens = json.loads(body).get("max_tokens", 1) if body else 0
                await asyncio.sleep(tokens * TOKEN_S)
                writer.write(_answer(tokens) if body else _models())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _http(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _models() -> bytes:
    return _http({"object": "list", "data": [{"id": "m", "object": "model"}]})


def _answer(tokens: int) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "neigh"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    return _http(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    )


class Client:
    """One connection, which keeps to one frontend process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, key: str, tokens: int = 1) -> int:
        body = json.dumps(
            {"model": "m", "max_tokens": tokens, "messages": [{"role": "user", "content": "hi"}]}
        ).encode()
        self._writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (key.encode(), len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.readexactly(_length(head))
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        self._writer.close()


async def connect(admin: Admin) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", int(admin.url.rpartition(":")[2])))


def make_keys(admin: Admin, name: str, count: int, **limits: int) -> list[str]:
    made = []
    for number in range(count):
        answer = admin.call("POST", "/api/keys", body={"name": f"{name}-{number}", "limits": limits})
        assert answer.status == 201, answer.body
        made.append(answer.json()["key"])
    return made


async def flood(admin: Admin, order: Callable[[list[str]], list[str]], keys: list[str]) -> tuple[Counter[str], float]:
    """Answers by key, and the seconds that it took. Every connection takes the next request of the list."""
    asked = iter(order(keys))
    admitted: Counter[str] = Counter()

    async def work(client: Client) -> None:
        for key in asked:
            status = await client.ask(key)
            assert status in (200, 429), status
            admitted[key] += status == 200

    clients = [await connect(admin) for _ in range(CONNECTIONS)]
    began = time.monotonic()
    await asyncio.gather(*map(work, clients))
    took_s = time.monotonic() - began
    for client in clients:
        client.close()
    return admitted, took_s


def evenly(keys: list[str]) -> list[str]:
    found = keys * int(RPM * ASKED)
    random.Random(1).shuffle(found)
    return found


def one_by_one(keys: list[str]) -> list[str]:
    return [key for key in keys for _ in range(int(RPM * ASKED))]


async def measure_overshoot(admin: Admin, count: int) -> bool:
    """Whether the bounds hold."""
    holds = True
    for kind, limits in (
        ("requests per minute", {"requests_per_minute": RPM}),
        ("tokens per minute", {"tokens_per_minute": RPM * REQUEST_TOKENS}),
    ):
        for name, order in (("evenly", evenly), ("each at once", one_by_one)):
            keys = make_keys(admin, f"{kind} {name}".replace(" ", "-"), count, **limits)
            admitted, took_s = await flood(admin, order, keys)
            windows = math.ceil(took_s / WINDOW_S)
            tell_overshoot(f"{kind}, {count} keys, {name}", admitted, RPM, took_s)
            holds = holds and max(admitted.values()) <= PROCESSES * RPM * windows
    keys = make_keys(admin, "concurrent", CONCURRENT_KEYS, concurrent_requests=CONCURRENT)
    admitted, took_s = await hold_open(admin, keys)
    tell_overshoot(f"concurrent requests, {len(keys)} keys, each at once", admitted, CONCURRENT, took_s)
    return holds and max(admitted.values()) <= PROCESSES * CONCURRENT


def tell_overshoot(what: str, admitted: Counter[str], limit: int, took_s: float) -> None:
    over = [max(0, count - limit) / limit for count in admitted.values()]
    print(
        f"{what}, {PROCESSES} processes: {sum(admitted.values())} admitted in {took_s:.0f} s; over the limit by"
        f" {statistics.mean(over):.1%} on average, {max(over):.0%} at most (bound {PROCESSES - 1:.0%})"
        f"{'' if took_s < WINDOW_S else '; took longer than the window'}",
        flush=True,
    )


async def hold_open(admin: Admin, keys: list[str]) -> tuple[Counter[str], float]:
    """As `flood`, of requests that are all open at the same time."""
    admitted: Counter[str] = Counter()
    began = time.monotonic()
    for key in keys:
        clients = [await connect(admin) for _ in range(AT_ONCE)]
        statuses = await asyncio.gather(*(client.ask(key, HELD_TOKENS) for client in clients))
        admitted[key] = statuses.count(200)
        for client in clients:
            client.close()
    return admitted, time.monotonic() - began


async def wait_times(admin: Admin, keys: list[str]) -> list[float]:
    async def work(key: str) -> list[float]:
        client, found = await connect(admin), []
        for _ in range(SHORT_EACH):
            began = time.monotonic()
            status = await client.ask(key, SHORT_TOKENS)
            assert status == 200, status
            found.append(time.monotonic() - began - SHORT_TOKENS * TOKEN_S)
        client.close()
        return found

    return [one for times in await asyncio.gather(*map(work, keys)) for one in times]


async def measure_fairness(admin: Admin) -> bool:
    """Whether the bound holds."""
    short, (long,) = make_keys(admin, "short", SHORT_KEYS), make_keys(admin, "long", 1)
    alone = await wait_times(admin, short)
    clients = [await connect(admin) for _ in range(LONG)]
    asked = [asyncio.create_task(client.ask(long, LONG_TOKENS)) for client in clients]
    await asyncio.sleep(1)
    beside = await wait_times(admin, short)
    waiting = sum(not one.done() for one in asked)
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    for client in clients:
        client.close()
    holds = True
    for name, pick in (("median", statistics.median), ("mean", statistics.fmean)):
        before_ms, after_ms = pick(alone) * 1e3, pick(beside) * 1e3
        ratio = after_ms / before_ms
        print(
            f"short requests wait, {name}: {before_ms:.1f} ms alone, {after_ms:.1f} ms beside ({ratio:.2f} times; bound"
            f" {WAIT_RATIO_MAX:g})"
        )
        holds = holds and ratio <= WAIT_RATIO_MAX
    print(f"{waiting} of {LONG} long requests still waited at the end; the queue has 1,000 places")
    return holds


def listeners(port: int) -> int:
    found = psutil.net_connections("tcp")
    return len({one.pid for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == port})


@asynccontextmanager
async def running(directory: Path, nats: Nats, processes: int, limit: int) -> AsyncIterator[Admin]:
    engine = await asyncio.start_server(Engine().serve, "127.0.0.1", 0)
    port = engine.sockets[0].getsockname()[1]
    fleet = Cluster(directory, nats)
    try:
        admin = await asyncio.to_thread(fleet.start_frontend, "a", "--processes", str(processes))
        port_of = int(admin.url.rpartition(":")[2])
        await asyncio.to_thread(wait_until, lambda: listeners(port_of) == processes, what="all processes listen")
        body = {"url": f"http://127.0.0.1:{port}/v1", "limit": limit}
        answer = await asyncio.to_thread(admin.call, "POST", "/api/models/m/endpoints", body=body)
        assert answer.status == 201, answer.body
        yield admin
    finally:
        fleet.stop()
        engine.close()


async def run(directory: Path, nats: Nats, count: int) -> bool:
    """Whether all bounds hold."""
    async with running(directory / "overshoot", nats, PROCESSES, 1000) as admin:
        is_limited = await measure_overshoot(admin, count)
    async with running(directory / "fairness", nats, 1, SLOTS) as admin:
        is_fair = await measure_fairness(admin)
    return is_limited and is_fair


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR"), ignore_cleanup_errors=True) as name:
        nats = Nats(Path(name) / "nats")
        try:
            holds = asyncio.run(run(Path(name), nats, count))
        finally:
            nats.stop()
    if not holds:
        sys.exit("a bound does not hold")


if __name__ == "__main__":
    main()
