"""Keeps the audit log within bounds of age and size."""

import asyncio
from typing import Protocol

import structlog

from corral.store.engine.leases import Lease

log = structlog.get_logger()

LEASE = "audit"
LEASE_TTL_S = 120.0
EVERY_S = 600.0
# Small transactions: whoever writes events meanwhile hardly waits.
ROWS_AT_ONCE = 1000


class AuditLog(Protocol):
    async def trim(self, *, keep_s: float, most: int, at_once: int) -> int: ...


class Leases(Protocol):
    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None: ...


class AuditKeeper:
    def __init__(self, *, holder: str, events: AuditLog, leases: Leases, keep_s: float, most: int) -> None:
        self._holder = holder
        self._events = events
        self._leases = leases
        self._keep_s = keep_s
        self._most = most

    async def run(self) -> None:
        await self.trim()
        await asyncio.sleep(EVERY_S)

    async def trim(self) -> int:
        """The lease only spares work: what two frontends trim at once is trimmed once."""
        trimmed = 0
        while await self._leases.hold(LEASE, self._holder, ttl_s=LEASE_TTL_S):
            gone = await self._events.trim(keep_s=self._keep_s, most=self._most, at_once=ROWS_AT_ONCE)
            trimmed += gone
            if gone < ROWS_AT_ONCE:
                break
        if trimmed:
            log.info("audit.trimmed", entries=trimmed)
        return trimmed
