"""Requests of well-behaved clients at a fixed rate: each is sent when it is due, however long the ones before it take.

Latency counts from the moment a request was due, so a server (or a sender) that falls behind shows in the figures."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

ANSWER_WITHIN_S = 30.0
KEPT_AT_MOST_S = 2.0
"""A connection idle for longer is not used again: whoever keeps one cannot tell when the server closes it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One kind of request. `share`: how many of every hundred."""

    name: str
    share: int
    head: str
    body: bytes = b""
    keeps: bool = True
    ends_with: bytes = b""


def chat_requests(model: str) -> tuple[Wanted, ...]:
    """Nine of ten are inference: most on connections that are kept, some on new ones, some streamed."""
    return (
        Wanted("chat", 65, "POST /v1/chat/completions", _chat(model)),
        Wanted("chat, new connection", 15, "POST /v1/chat/completions", _chat(model), keeps=False),
        Wanted("chat, streamed", 10, "POST /v1/chat/completions", _chat(model, stream=True), ends_with=b"[DONE]\n\n"),
        Wanted("list of models", 5, "GET /v1/models"),
        Wanted("list of nodes", 5, "GET /api/nodes", keeps=False),
    )


def _chat(model: str, *, stream: bool = False) -> bytes:
    messages = [{"role": "user", "content": "hello"}]
    return json.dumps({"model": model, "max_tokens": 2, "messages": messages, "stream": stream}).encode()


def plan_order(wanted: Sequence[Wanted]) -> list[Wanted]:
    """A hundred requests in which every kind comes evenly."""
    places = [(at / one.share, one) for one in wanted for at in range(one.share)]
    return [one for _, one in sorted(places, key=lambda place: place[0])]


@dataclass
class Answers:
    """What became of one kind of request."""

    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class OpenLoop:
    def __init__(self, url: str, key: str, wanted: Sequence[Wanted], *, per_s: float) -> None:
        address = urlsplit(url)
        self._host, self._port, self._key, self._per_s = address.hostname, address.port, key, per_s
        self._order = plan_order(wanted)
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.by_kind = {one.name: Answers() for one in wanted}
        self.sent = 0
        self.sent_for_s = 0.0
        self.latest_send_s = 0.0
        """How late the sender itself was at worst: not the server's doing."""

    @property
    def failures(self) -> list[str]:
        return [f"{name}: {text}" for name, one in self.by_kind.items() for text in one.failures]

    @property
    def sent_per_s(self) -> float:
        return self.sent / max(0.001, self.sent_for_s)

    def told(self) -> str:
        lines = [
            f"{self.sent} requests, {self.sent_per_s:.1f}/s, {len(self.failures)} failed; sent at most"
            f" {self.latest_send_s * 1000:.0f} ms late; latency in ms from when each was due:",
            f"  {'':22}{'answered':>9}{'p50':>8}{'p95':>8}{'p99':>8}{'longest':>9}",
        ]
        everything = sorted(one for answers in self.by_kind.values() for one in answers.latencies_s)
        for name, found in (
            *((name, sorted(one.latencies_s)) for name, one in self.by_kind.items()),
            ("all", everything),
        ):
            figures = "".join(f"{_percentile(found, part) * 1000:8.1f}" for part in (0.5, 0.95, 0.99))
            lines.append(f"  {name:22}{len(found):9}{figures}{_percentile(found, 1.0) * 1000:9.1f}")
        return "\n".join(lines)

    async def run(self, for_s: float) -> None:
        """Returns when everything sent has its answer, or has waited for it in vain."""
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(round(for_s * self._per_s)):
                due_s = began_s + number / self._per_s
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                self.latest_send_s = max(self.latest_send_s, time.monotonic() - due_s)
                self.sent += 1
                tasks.create_task(self._ask(self._order[number % len(self._order)], due_s))
            self.sent_for_s = time.monotonic() - began_s
        for _, _, writer in self._idle:
            writer.close()

    async def _ask(self, wanted: Wanted, due_s: float) -> None:
        answers = self.by_kind[wanted.name]
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                status, body = await self._exchange(wanted)
        except (OSError, TimeoutError, EOFError) as error:
            answers.failures.append(repr(error))
            return
        answers.latencies_s.append(time.monotonic() - due_s)
        if status != 200 or not body.endswith(wanted.ends_with):
            answers.failures.append(f"{status} {body[-300:].decode(errors='replace')}")

    async def _exchange(self, wanted: Wanted) -> tuple[int, bytes]:
        reader, writer = await self._connection(fresh=not wanted.keeps)
        try:
            writer.write(self._as_bytes(wanted))
            head = await reader.readuntil(b"\r\n\r\n")
            body = await _read_body(reader, head)
        except BaseException:
            writer.transport.abort()
            raise
        if wanted.keeps:
            self._idle.append((time.monotonic(), reader, writer))
        else:
            writer.close()
        return int(head.split(b" ")[1]), body

    async def _connection(self, *, fresh: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle and not fresh:
            since_s, reader, writer = self._idle.pop()
            if time.monotonic() - since_s < KEPT_AT_MOST_S and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)

    def _as_bytes(self, wanted: Wanted) -> bytes:
        lines = [f"{wanted.head} HTTP/1.1", f"Host: {self._host}:{self._port}", f"Authorization: Bearer {self._key}"]
        if wanted.body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(wanted.body)}"]
        if not wanted.keeps:
            lines.append("Connection: close")
        return "\r\n".join((*lines, "", "")).encode() + wanted.body


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    fields = head.lower()
    if b"content-length: " in fields:
        return await reader.readexactly(int(fields.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    if b"transfer-encoding: chunked" not in fields:
        return await reader.read()
    parts: list[bytes] = []
    while True:
        size = int((await reader.readuntil(b"\r\n")).strip(), 16)
        part = (await reader.readexactly(size + 2))[:-2]
        if not size:
            return b"".join(parts)
        parts.append(part)


def _percentile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")
