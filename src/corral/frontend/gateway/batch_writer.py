"""Writes sums that were counted in memory in numbered batches, so that no request waits for the store."""

import asyncio
from collections.abc import Mapping
from typing import Generic, Protocol, Self, TypeVar

import structlog

from corral.core.errors import CorralError, InvalidInput

log = structlog.get_logger()

WRITE_EVERY_S = 2.0
PRUNE_EVERY_S = 6 * 3600.0


class BatchKey(Protocol):
    @property
    def model(self) -> str: ...

    @property
    def node_id(self) -> str: ...


class Sums(Protocol):
    @property
    def requests(self) -> int: ...

    def __add__(self, other: Self, /) -> Self: ...


K = TypeVar("K", bound=BatchKey)
V = TypeVar("V", bound=Sums)
Written = TypeVar("Written", bound=Sums, contravariant=True)


class BatchStore(Protocol[K, Written]):
    async def add(self, writer: str, batch: int, counts: Mapping[K, Written]) -> None:
        """Adds a batch once, however often it is sent under its number."""
        ...

    async def prune(self) -> None: ...


class BatchWriter(Generic[K, V]):
    """`run` writes the sums; `finish` writes the rest at a stop."""

    subject = "batch"
    """The first word of its log events."""

    def __init__(self, store: BatchStore[K, V], *, writer: str) -> None:
        """`writer`: unique to this run of this process, and to this kind of sums."""
        self._store = store
        self._writer = writer
        self._batch = 0
        self._open: dict[K, V] = {}
        self._sending: dict[K, V] = {}
        """A batch whose write failed or has an unknown outcome. It is repeated unchanged, under the same number."""

    def _add(self, key: K, sums: V) -> None:
        """It never waits: the gateway counts while it serves."""
        known = self._open.get(key)
        self._open[key] = sums if known is None else known + sums

    def _collect(self) -> None:
        """Adds what is not among the open sums yet."""

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
        self._collect()
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
            key, sums = next(iter(self._sending.items()))
            self._batch += 1
            try:
                await self._store.add(self._writer, self._batch, {key: sums})
            except InvalidInput as error:
                log.warning(f"{self.subject}.rejected", model=key.model, node=key.node_id, error=str(error))
            except BaseException:
                # Only this count is uncertain: it is repeated under its number. The others become a new batch.
                for other, count in self._sending.items():
                    if other != key:
                        self._add(other, count)
                self._sending = {key: sums}
                raise
            del self._sending[key]

    async def finish(self) -> None:
        try:
            await self.write()
            await self.write()
        except CorralError as error:
            lost = sum(sums.requests for sums in (*self._sending.values(), *self._open.values()))
            log.warning(f"{self.subject}.write_failed", requests=lost, error=str(error))
