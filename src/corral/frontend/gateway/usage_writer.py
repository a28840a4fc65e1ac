"""Counts requests and tokens in memory and writes them in batches, so that no request waits for the store."""

import asyncio

import structlog

from corral.core.errors import CorralError, InvalidInput
from corral.store.serving.usage import UsageKey, UsageStore, Used

log = structlog.get_logger()

WRITE_EVERY_S = 2.0
PRUNE_EVERY_S = 6 * 3600.0


class UsageCounter:
    """Adds up usage. `run` writes the sums; `finish` writes the rest at a stop."""

    def __init__(self, store: UsageStore, *, writer: str) -> None:
        """`writer`: unique to this run of this process."""
        self._store = store
        self._writer = writer
        self._batch = 0
        self._open: dict[UsageKey, Used] = {}
        self._sending: dict[UsageKey, Used] = {}
        """A batch whose write failed or has an unknown outcome. It is repeated unchanged, under the same number."""

    def count(
        self, *, key_id: str | None, model: str, node_id: str, requests: int = 1, tokens_in: int, tokens_out: int
    ) -> None:
        """Adds answered requests. It never waits: the gateway calls it while it serves."""
        key = UsageKey(key_id or "", model, node_id)
        self._open[key] = self._open.get(key, Used()) + Used(requests, tokens_in, tokens_out)

    async def run(self) -> None:
        pruned_s = -PRUNE_EVERY_S
        loop = asyncio.get_running_loop()
        while True:
            await self.write()
            if loop.time() - pruned_s > PRUNE_EVERY_S:
                await self._store.prune()
                pruned_s = loop.time()
            await asyncio.sleep(WRITE_EVERY_S)

    async def write(self) -> None:
        if not self._sending:
            if not self._open:
                return
            self._sending, self._open = self._open, {}
            self._batch += 1
        try:
            await self._store.add(self._writer, self._batch, self._sending)
        except InvalidInput:
            await self._write_each()
        self._sending = {}

    async def _write_each(self) -> None:
        """The store rejects the batch because one of its counts is invalid. Each count becomes its own batch, so that
        only the invalid one is dropped and a failure in between repeats none."""
        while self._sending:
            key, used = next(iter(self._sending.items()))
            self._batch += 1
            try:
                await self._store.add(self._writer, self._batch, {key: used})
            except InvalidInput as error:
                log.warning("usage.rejected", model=key.model, node=key.node_id, error=str(error))
            except BaseException:
                # Only this count is uncertain: it is repeated under its number. The others become a new batch.
                rest = {other: count for other, count in self._sending.items() if other != key}
                self._open = {**rest, **{k: self._open[k] + rest.get(k, Used()) for k in self._open}}
                self._sending = {key: used}
                raise
            del self._sending[key]

    async def finish(self) -> None:
        try:
            await self.write()
            await self.write()
        except CorralError as error:
            lost = sum((used.requests for used in (*self._sending.values(), *self._open.values())), 0)
            log.warning("usage.write_failed", requests=lost, error=str(error))
