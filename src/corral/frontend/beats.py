"""Heartbeats, many in one transaction.

While one batch is being written the next one gathers; an idle frontend writes each beat at once."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from corral.core.errors import CorralError, Unavailable
from corral.store.registration import Beat, BeatOutcome

BATCH_MOST = 128
WAITING_MOST = 10_000


class BeatStore(Protocol):
    async def beat(self, beats: Sequence[Beat]) -> list[BeatOutcome]: ...


class BeatBatcher:
    def __init__(self, store: BeatStore) -> None:
        self._store = store
        self._waiting: list[tuple[Beat, asyncio.Future[BeatOutcome]]] = []
        self._wake = asyncio.Event()

    async def beat(self, beat: Beat) -> BeatOutcome:
        if len(self._waiting) >= WAITING_MOST:
            raise Unavailable("too many heartbeats are waiting for the store; send the next one later")
        answer: asyncio.Future[BeatOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, answer))
        self._wake.set()
        return await answer

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MOST], self._waiting[BATCH_MOST:]
                await self._write(batch)

    async def _write(self, batch: list[tuple[Beat, asyncio.Future[BeatOutcome]]]) -> None:
        try:
            outcomes = await self._store.beat([beat for beat, _ in batch])
        except CorralError as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)
