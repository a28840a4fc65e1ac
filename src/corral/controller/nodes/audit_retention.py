"""Keeps the audit log within its limits of age and size."""

import structlog

from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.store.access.audit_events import AuditEventStore

log = structlog.get_logger()

EVERY_S = 600.0
LEASE_TTL_S = 120.0
ROWS_AT_ONCE = 1000
"""Small transactions: writers of events hardly wait for them."""


class AuditRetention:
    def __init__(self, runtime: ReconcileRuntime, events: AuditEventStore, *, keep_s: float, most: int) -> None:
        # The lease only saves work: entries that two frontends trim at the same time are trimmed once.
        self.loop = Reconciler("audit", self._reconcile, runtime, every_s=EVERY_S, lease_ttl_s=LEASE_TTL_S)
        self._events, self._keep_s, self._most = events, keep_s, most

    async def _reconcile(self, _run: ReconcileRun) -> float | None:
        trimmed = await self._events.trim(keep_s=self._keep_s, most=self._most, at_once=ROWS_AT_ONCE)
        if trimmed:
            log.info("audit.trimmed", entries=trimmed)
        return 0.0 if trimmed == ROWS_AT_ONCE else None
