"""A line to the bus that loses messages, doubles them, and lets them come late and out of order."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

from harness.proxy import Proxy

_WITH_BODY = (b"MSG", b"HMSG", b"PUB", b"HPUB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often each happens, of one."""

    lose: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    longest_s: float = 0.5


class UnrulyBus(Proxy):
    """Only messages are treated so; what client and server agree on otherwise passes untouched."""

    def __init__(self, target_port: int, habits: Habits, *, seed: int) -> None:
        super().__init__(target_port)
        self._habits, self._chance = habits, random.Random(seed)
        self.counts = {"passed": 0, "lost": 0, "doubled": 0, "late": 0}

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: asyncio.StreamReader
    ) -> None:
        await self._pass_on(reader, writer)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        async for frame, is_message in _frames(reader):
            fate = self._decide() if is_message else "passed"
            if fate == "late":
                loop.call_later(self._chance.random() * self._habits.longest_s, _write, writer, frame)
            elif fate != "lost":
                writer.write(frame * (2 if fate == "doubled" else 1))
                await writer.drain()
        raise EOFError

    def _decide(self) -> str:
        draw, habits = self._chance.random(), self._habits
        fate = "passed"
        for name, share in (("lost", habits.lose), ("doubled", habits.double), ("late", habits.delay)):
            if draw < share:
                fate = name
                break
            draw -= share
        self.counts[fate] += 1
        return fate


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    if not writer.is_closing():
        writer.write(frame)


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bool]]:
    """Every frame of the bus's protocol, and whether it is a message."""
    while line := await reader.readline():
        if line.split(b" ", 1)[0].upper() in _WITH_BODY:
            yield line + await reader.readexactly(int(line.split()[-1]) + 2), True
        else:
            yield line, False
