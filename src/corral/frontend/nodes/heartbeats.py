"""Writes many heartbeats in one transaction.

While one batch is being written, the next one fills; an idle frontend writes each heartbeat immediately."""

import asyncio

from corral.core.errors import CorralError, InvalidInput, OutcomeUnknown, Unavailable
from corral.store.nodes.registration import Heartbeat, HeartbeatOutcome, RegistrationStore

BATCH_MAX = 128
WAITING_MAX = 10_000

Waiting = tuple[Heartbeat, asyncio.Future[HeartbeatOutcome]]


class HeartbeatBatcher:
    def __init__(self, store: RegistrationStore) -> None:
        self._store = store
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()

    async def write(self, heartbeat: Heartbeat) -> HeartbeatOutcome:
        if len(self._waiting) >= WAITING_MAX:
            raise Unavailable("too many heartbeats are waiting for the store; retry later")
        answer: asyncio.Future[HeartbeatOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((heartbeat, answer))
        self._wake.set()
        return await answer

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._write(batch)

    async def _write(self, batch: list[Waiting]) -> None:
        try:
            outcomes = await self._store.record_heartbeats([heartbeat for heartbeat, _ in batch])
        except InvalidInput as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            for one in batch:  # the error does not name the wrong one: write each alone, so that the others succeed
                await self._write([one])
            return
        except CorralError as error:
            _fail(batch, error)
            return
        except BaseException:
            # The frontend stops, or has a bug: nobody must wait for ever.
            _fail(batch, OutcomeUnknown("the frontend stopped while it wrote this heartbeat; send the next one"))
            raise
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)


def _fail(batch: list[Waiting], error: CorralError) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)
