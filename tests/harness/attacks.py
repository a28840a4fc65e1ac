"""Attacks on a frontend, each a process of its own: `python -m harness.attacks KIND PORT SECONDS COUNT ADDRESS`."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from pathlib import Path
from typing import Any

PER_PROCESS = 2500
"""Connections of one attacking process: descriptors are limited for attackers too."""
_HALVES = (b"", b"GET /api/nodes HTTP/1.1\r\nA: b\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nA: b\r\n", b"PO")


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
    words = ("-m", "harness.attacks", kind, str(port), str(for_s), str(connections), address)
    return subprocess.Popen([sys.executable, *words], env={**os.environ, "PYTHONPATH": root}, stdin=subprocess.DEVNULL)


def start_attackers(port: int, for_s: float, idle: int) -> list[subprocess.Popen[bytes]]:
    """`idle`: connections that say nothing, or half of something. Wrong keys come from where good ones do."""
    return [
        start_attack(kind, port, for_s, connections, address)
        for kind, connections, address in (
            *(("hold", min(PER_PROCESS, idle - at), f"127.0.1.{at // 100}") for at in range(0, idle, PER_PROCESS)),
            ("flood", 8, "127.0.2.1"), ("keys", 10, "127.0.0.1"), ("beats", 8, "127.0.2.2"), ("bodies", 4, "127.0.2.3"),
        )
    ]  # fmt: skip


if __name__ == "__main__":
    asyncio.run(attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
