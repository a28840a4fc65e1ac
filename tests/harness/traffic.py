"""Requests at a steady rate from a thread of their own, each one's fate written down."""

import asyncio
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

import httpx


class Traffic:
    def __init__(self, url: str, key: str, model: str, *, per_s: float) -> None:
        self._url, self._key, self._model, self._every_s = url, key, model, 1 / per_s
        self.fates: Counter[str] = Counter()
        self.slowest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(120)

    @property
    def errors(self) -> dict[str, int]:
        return {fate: count for fate, count in self.fates.items() if fate != "200"}

    async def _run(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client, asyncio.TaskGroup() as tasks:
            due_s = time.monotonic()
            while not self._stop.is_set():
                tasks.create_task(self._ask(client))
                due_s = max(due_s + self._every_s, time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _ask(self, client: httpx.AsyncClient) -> None:
        body = {"model": self._model, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
        began_s = time.monotonic()
        try:
            answer = await client.post(
                f"{self._url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {self._key}"}
            )
            fate = str(answer.status_code) if answer.status_code == 200 else f"{answer.status_code} {answer.text[:200]}"
        except httpx.HTTPError as error:
            fate = repr(error)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        self.fates[fate] += 1
