"""Requests at a steady rate from a thread of their own, each one's fate written down."""

import asyncio
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Posted:
    status: int
    body: str
    first_byte_s: float
    """By the monotonic clock."""


async def post_chat(url: str, key: str, model: str, *, within_s: float = 120.0, **more: Any) -> Posted:
    """One request on a connection of its own. Raises OSError, TimeoutError or EOFError."""
    address = urlsplit(url)
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}], **more}
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(head.encode() + content)
            first = await reader.readuntil(b"\r\n")
            first_byte_s = time.monotonic()
            rest = await reader.read()
            return Posted(int(first.split(b" ")[1]), rest.decode(errors="replace"), first_byte_s)
        finally:
            writer.close()


class Traffic:
    def __init__(self, url: str, key: str, model: str, *, per_s: float) -> None:
        self._url, self._key, self._model, self._every_s = url, key, model, 1 / per_s
        self.fates: Counter[str] = Counter()
        self.sent = 0
        self._began_s = self._ended_s = 0.0
        self.slowest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended_s = time.monotonic()
        self._stop.set()
        self._thread.join(120)

    @property
    def sent_per_s(self) -> float:
        """So far; afterwards, while it ran."""
        return self.sent / max(0.001, (self._ended_s or time.monotonic()) - self._began_s)

    @property
    def errors(self) -> dict[str, int]:
        return {fate: count for fate, count in self.fates.items() if fate != "200"}

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            due_s = self._began_s = time.monotonic()
            while not self._stop.is_set():
                tasks.create_task(self._ask())
                self.sent += 1
                due_s = max(due_s + self._every_s, time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _ask(self) -> None:
        began_s = time.monotonic()
        try:
            posted = await post_chat(self._url, self._key, self._model)
            fate = "200" if posted.status == 200 else f"{posted.status} {posted.body[-300:]}"
        except (OSError, TimeoutError, EOFError) as error:
            fate = repr(error)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        self.fates[fate] += 1
