"""A minute that a frontend does not deserve, and what became of everybody else meanwhile.

Each attack is a process of its own: `python -m harness.hostile_traffic KIND PORT SECONDS COUNT ADDRESS`.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from corral.bus.client import connect_bus
from corral.bus.subjects import REPORT, node_subject
from harness.fleet import OperationFleet
from harness.localai_backend import localai_files
from harness.programs import Admin

HEALTHY_WITHIN_S = 60.0
SAMPLE_EVERY_S = 0.25
PER_PROCESS = 2500
"""Connections of one attacking process: descriptors are limited for attackers too."""
_HALVES = (b"", b"GET /api/nodes HTTP/1.1\r\nA: b\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nA: b\r\n", b"PO")


# The attackers


async def _hold(port: int, address: str, until_s: float, number: int) -> None:
    """One connection that says nothing, or half of something, and comes again when it is closed."""
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            writer.write(_HALVES[number % len(_HALVES)])
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(max(0.1, until_s - time.monotonic())):
                    await reader.read()
            writer.close()
        await asyncio.sleep(1.0)


async def _flood(port: int, address: str, until_s: float, number: int) -> None:
    """Header lines, or one header, without end."""
    starts = (b"GET /api/x HTTP/1.1\r\n", b"GET /v1/models HTTP/1.1\r\nA: ", b"GET /", b"GET /v1/")
    line = b"x-abc: defghijklmnop\r\n" * 1000 if number % 4 == 0 else b"x" * 20_000
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            writer.write(starts[number % 4])
            with contextlib.suppress(OSError, TimeoutError):
                for _ in range(500):
                    writer.write(line)
                    async with asyncio.timeout(5):
                        await writer.drain()
            writer.transport.abort()
        await asyncio.sleep(0.05)


def _ask_wrongly(request: Callable[[int], bytes], every_s: float) -> "Attack":
    async def ask(port: int, address: str, until_s: float, number: int) -> None:
        for attempt in count():
            if time.monotonic() > until_s:
                return
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                writer.write(request(number * 1_000_000 + attempt))
                async with asyncio.timeout(5):
                    await reader.read(65_536)
                writer.close()
            await asyncio.sleep(every_s)

    return ask


def _wrong_key(number: int) -> bytes:
    path = (b"/v1/models", b"/api/nodes", b"/api/keys")[number % 3]
    return b"GET %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong-%d\r\nConnection: close\r\n\r\n" % (path, number)


def _poisoned_beat(number: int) -> bytes:
    node = (b"%00", b"%ff", b"a%00b", b"00000000-0000-4000-8000-%012d" % number)[number % 4]
    body = (b'{"gpu_vendor":"\\u0000"}', b'{"available_ram":9999999999999999999999}', b"[" * 5000, b"{}")[
        number // 4 % 4
    ]
    return (
        b"POST /api/node/%b/heartbeat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%b" % (node, len(body), body)
    )


def _large_body(_number: int) -> bytes:
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 31000000\r\n\r\n" + b"x" * 1_000_000


Attack = Callable[[int, str, float, int], Coroutine[Any, Any, None]]
ATTACKS: Mapping[str, Attack] = {
    "hold": _hold,
    "flood": _flood,
    "keys": _ask_wrongly(_wrong_key, 0.05),
    "beats": _ask_wrongly(_poisoned_beat, 0.02),
    "bodies": _ask_wrongly(_large_body, 0.2),
}


async def attack(kind: str, port: int, for_s: float, connections: int, address: str) -> None:
    until_s = time.monotonic() + for_s
    tasks = []
    for number in range(connections):
        tasks.append(asyncio.ensure_future(ATTACKS[kind](port, address, until_s, number)))
        if number % 50 == 49:
            await asyncio.sleep(0.02)
    await asyncio.gather(*tasks)


def start_attack(kind: str, port: int, for_s: float, connections: int, address: str) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parent.parent)
    words = ("-m", "harness.hostile_traffic", kind, str(port), str(for_s), str(connections), address)
    return subprocess.Popen([sys.executable, *words], env={**os.environ, "PYTHONPATH": root}, stdin=subprocess.DEVNULL)


# Everybody else


@dataclass
class Witness:
    """What happened to those who did nothing wrong."""

    requests: int = 0
    failures: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    rss_before: int = 0
    rss_most: int = 0
    unhealthy: list[str] = field(default_factory=list)
    connections_most: int = 0
    reports_sent: int = 0

    @property
    def grown_mb(self) -> float:
        return (self.rss_most - self.rss_before) / 1e6

    def told(self) -> str:
        return (
            f"{self.requests} requests, {len(self.failures)} failed, longest {self.longest_s * 1000:.0f} ms; memory"
            f" +{self.grown_mb:.0f} MB; up to {self.connections_most} descriptors; {self.reports_sent} poisoned"
            f" reports; unhealthy {self.unhealthy[:3]}"
        )


class _Caller:
    """Asks now and then, on a connection it keeps or on a new one each time."""

    def __init__(self, admin: Admin, path: str, witness: Witness, *, keeps: bool, every_s: float) -> None:
        self._port = int(admin.url.rpartition(":")[2])
        closing = "" if keeps else "Connection: close\r\n"
        self._request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {admin.key}\r\n{closing}\r\n".encode()
        self._witness, self._keeps, self._every_s = witness, keeps, every_s
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, until_s: float) -> None:
        next_s = time.monotonic()
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            self._witness.requests += 1
            try:
                async with asyncio.timeout(30):
                    status = await self._ask()
                if status != 200:
                    self._witness.failures.append(f"{self._request[:30]!r}: {status}")
            except (OSError, TimeoutError, EOFError) as error:
                self._stream = None
                self._witness.failures.append(f"{self._request[:30]!r}: {error!r}")
            self._witness.longest_s = max(self._witness.longest_s, time.monotonic() - began_s)
            next_s = max(next_s + self._every_s, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        if self._stream is not None:
            self._stream[1].close()

    async def _ask(self) -> int:
        reader, writer = self._stream or await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if self._keeps:
            self._stream = reader, writer
        else:
            writer.close()
        return int(head.split(b" ")[1])


async def _watch(fleet: OperationFleet, admin: Admin, witness: Witness, until_s: float) -> None:
    process = psutil.Process(fleet.frontends["a"].pid)
    while time.monotonic() < until_s:
        witness.rss_most = max(witness.rss_most, process.memory_info().rss)
        witness.connections_most = max(witness.connections_most, process.num_fds())
        nodes = await asyncio.to_thread(admin.nodes)
        witness.unhealthy += [
            f"{name}: {node['status']}" for name, node in nodes.items() if node["status"] != "healthy"
        ]
        await asyncio.sleep(SAMPLE_EVERY_S)


async def _poison_reports(fleet: OperationFleet, node: str, witness: Witness, until_s: float) -> None:
    """As one worker that went mad would send them."""
    credentials = fleet.nats.credentials(None)
    bad = (
        b'{"node":"%b","instance":"x","epoch":9223372036854775808,"sequence":1,"backends":[],"processes":[]}',
        b'{"node":"%b","instance":"x","epoch":1,"sequence":10000000000000000000000000,"backends":[],"processes":[]}',
        b'{"node":"%b","instance":"a\\u0000b","epoch":1,"sequence":1,"backends":[],"processes":[]}',
        b"[" * 100_000,
        b"%b\xff",
    )
    async with connect_bus(fleet.nats.options(credentials, inbox="_INBOX.hostile")) as bus:
        for number in count():
            if time.monotonic() > until_s:
                return
            text = bad[number % len(bad)]
            await bus.publish(node_subject(node, REPORT), text.replace(b"%b", node.encode()))
            witness.reports_sent += 1
            await asyncio.sleep(0.01)


async def _everybody_else(fleet: OperationFleet, admin: Admin, witness: Witness, *, for_s: float, per_s: int) -> None:
    until_s = time.monotonic() + for_s
    callers = [
        _Caller(admin, path, witness, keeps=number % 4 != 0, every_s=20 / per_s)
        for number, path in zip(
            range(20), ["/v1/models", "/v1/models", "/v1/models", "/v1/models", "/api/nodes"] * 4, strict=True
        )
    ]
    mad = next(iter(admin.nodes().values()))["id"]
    await asyncio.gather(
        *(caller.run(until_s) for caller in callers),
        _watch(fleet, admin, witness, until_s),
        _poison_reports(fleet, mad, witness, until_s),
    )


def withstand(fleet: OperationFleet, *, for_s: float, idle: int, per_s: int = 200, nodes: int = 5) -> Witness:
    """An install on all nodes under attack."""
    fleet.offer_image("echo", localai_files("1"), version="1.0")
    admin = fleet.start_frontend("a", "--auto-approve", "--suspect-after", "10", "--offline-after", "20")
    names = [f"node-{number}" for number in range(nodes)]
    for name in names:
        fleet.start_worker(name)
    for name in names:
        admin.wait_for_status(name, "healthy", within_s=HEALTHY_WITHIN_S)
    port, witness = int(admin.url.rpartition(":")[2]), Witness()
    for _ in range(50):
        assert admin.call("GET", "/api/nodes").status == 200
    witness.rss_before = psutil.Process(fleet.frontends["a"].pid).memory_info().rss
    attackers = [
        start_attack(kind, port, for_s, connections, address)
        for kind, connections, address in (
            *(("hold", min(PER_PROCESS, idle - at), f"127.0.1.{at // 100}") for at in range(0, idle, PER_PROCESS)),
            ("flood", 8, "127.0.2.1"), ("keys", 10, "127.0.0.1"), ("beats", 8, "127.0.2.2"), ("bodies", 4, "127.0.2.3"),
        )
    ]  # fmt: skip
    try:
        job = fleet.begin("/api/backends/install/echo")
        asyncio.run(_everybody_else(fleet, admin, witness, for_s=for_s, per_s=per_s))
        fleet.wait_for_operation(job, within_s=60)
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.wait(30)
    assert set(fleet.statuses(job).values()) == {"success"}
    return witness


if __name__ == "__main__":
    asyncio.run(attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
