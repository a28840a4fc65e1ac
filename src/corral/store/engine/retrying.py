"""A database that retries while the store is unavailable, for work that must not end because of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from corral.core.backoff import Backoff
from corral.core.errors import CorralError, OutcomeUnknown, Unavailable
from corral.store.engine.database import AfterMigration, Body, Database, StoreConflict

T = TypeVar("T")
log = structlog.get_logger()

RETRIES = Backoff(base_s=0.1, cap_s=1.0)
MOST_CONFLICTS = 10
"""Rows that others keep changing are waited for as well, but not for ever: it may be a mistake of ours."""


class RetryingDatabase:
    """Retries what was definitely not done until it is. If the outcome of a write is unknown, the caller gets the
    error: only the caller knows whether the write may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def dialect(self) -> str:
        return self._database.dialect

    @property
    def location(self) -> str:
        return self._database.location

    async def read(self, body: Body[T]) -> T:
        return await self._until_done(lambda: self._database.read(body), (Unavailable, OutcomeUnknown))

    async def read_large(self, body: Body[T]) -> T:
        return await self._until_done(lambda: self._database.read_large(body), (Unavailable, OutcomeUnknown))

    async def write(self, body: Body[T]) -> T:
        return await self._until_done(lambda: self._database.write(body), (Unavailable,))

    async def migrate(self, then: AfterMigration | None = None) -> None:
        await self._database.migrate(then)

    async def close(self) -> None:
        await self._database.close()

    async def _until_done(self, work: Callable[[], Awaitable[T]], away: tuple[type[CorralError], ...]) -> T:
        conflicts = attempt = 0
        while True:
            attempt += 1
            try:
                return await work()
            except StoreConflict:
                conflicts += 1
                if conflicts == MOST_CONFLICTS:
                    raise
            except away as error:
                if attempt == 1:
                    log.warning("store.waited_for", error=str(error))
            await asyncio.sleep(RETRIES.delay_s(attempt))
