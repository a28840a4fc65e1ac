"""Which API keys are valid, among frontends: one that lost the store asks those that still read it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from corral.bus.client import Bus, BusMessage
from corral.bus.messages import KeysInForce, KeysRequest, decode, encode
from corral.bus.subjects import KEYS_IN_FORCE
from corral.store.nodes.frontends import FRONTEND_LIVE_WITHIN_S, FrontendStore

ASK_WITHIN_S = 3.0
KNOWS_NOTHING_AFTER_S = 1.0
"""A frontend that has lost the store too replies later: the first reply counts."""


class KeyPeers:
    def __init__(self, bus: Bus, frontends: FrontendStore, frontend_id: str) -> None:
        self._bus, self._frontends, self._id = bus, frontends, frontend_id

    @property
    def connected(self) -> bool:
        return self._bus.connected

    async def are_there(self) -> bool:
        rows = await self._frontends.read_live(within_s=FRONTEND_LIVE_WITHIN_S)
        return any(row.id != self._id for row in rows)

    async def request_keys(self, revoked: Sequence[str]) -> KeysInForce:
        question = encode(KeysRequest(frontend=self._id, revoked=list(revoked)))
        return decode(await self._bus.request(KEYS_IN_FORCE, question, within_s=ASK_WITHIN_S), KeysInForce)

    async def serve(
        self, read_keys: Callable[[], Awaitable[KeysInForce]], *, drop: Callable[[Sequence[str]], None]
    ) -> None:
        """`drop`: called with keys that another frontend knows to be revoked."""

        async def answer(message: BusMessage) -> bytes | None:
            question = decode(message.data, KeysRequest)
            if question.frontend == self._id:
                return None
            drop(question.revoked)
            # A frontend that has read the store answers first.
            later = asyncio.ensure_future(asyncio.sleep(KNOWS_NOTHING_AFTER_S))
            try:
                keys = await read_keys()
                if not keys.from_store:
                    await later
            finally:
                later.cancel()
            return encode(keys)

        await self._bus.serve(KEYS_IN_FORCE, answer, concurrency=8)
