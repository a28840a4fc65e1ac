"""Heartbeats, many in one transaction.

While one batch is being written the next one gathers; an idle frontend writes each beat at once."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from corral.core.errors import CorralError, InvalidInput, OutcomeUnknown, Unavailable
from corral.store.nodes.registration import Heartbeat, HeartbeatOutcome

BATCH_MOST = 128
WAITING_MOST = 10_000

Waiting = tuple[Heartbeat, asyncio.Future[HeartbeatOutcome]]


class BeatStore(Protocol):
    async def beat(self, beats: Sequence[Heartbeat]) -> list[HeartbeatOutcome]: ...


class BeatBatcher:
    def __init__(self, store: BeatStore) -> None:
        self._store = store
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()

    async def beat(self, beat: Heartbeat) -> HeartbeatOutcome:
        if len(self._waiting) >= WAITING_MOST:
            raise Unavailable("too many heartbeats are waiting for the store; send the next one later")
        answer: asyncio.Future[HeartbeatOutcome] = asyncio.get_running_loop().create_future()
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

    async def _write(self, batch: list[Waiting]) -> None:
        try:
            outcomes = await self._store.beat([beat for beat, _ in batch])
        except InvalidInput as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            for one in batch:  # nobody says which it was: the others must not suffer for it
                await self._write([one])
            return
        except CorralError as error:
            _fail(batch, error)
            return
        except BaseException:
            # A stop, or a mistake of ours: whoever waits must not wait for ever.
            _fail(batch, OutcomeUnknown("the frontend stopped while it was writing this heartbeat; send the next one"))
            raise
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)


def _fail(batch: list[Waiting], error: CorralError) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)
