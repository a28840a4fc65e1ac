"""Denied requests in the audit log: each one, or, in a flood, a sample with the number of the others."""

from collections import OrderedDict
from typing import Any

import structlog

from corral.core.errors import CorralError
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.store.access.audit_events import AuditEventStore
from corral.system import Clock

log = structlog.get_logger()

RECORDED = TokenBucket(capacity=20, per_s=1 / 60)
ACTORS_MAX = 1024
SUBJECT_MAX = 500


class DenialLog:
    def __init__(self, events: AuditEventStore, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._recorded = RateLimiter(RECORDED, max_keys=ACTORS_MAX)
        self._skipped: OrderedDict[str, int] = OrderedDict()

    async def record(self, actor: str, request: str, error: CorralError) -> None:
        if not self._recorded.take(actor, self._clock.monotonic_s()):
            self._skipped[actor] = self._skipped.pop(actor, 0) + 1
            if len(self._skipped) > ACTORS_MAX:
                self._skipped.popitem(last=False)
            return
        detail: dict[str, Any] = {"reason": str(error)}
        if skipped := self._skipped.pop(actor, 0):
            detail["skipped_before"] = skipped
        try:
            await self._events.append(actor=actor, action="access.denied", subject=_printable(request), detail=detail)
        except CorralError as problem:  # the denial itself does not depend on the log
            log.warning("denial.not_recorded", actor=actor, request=_printable(request), error=str(problem))


def _printable(text: str) -> str:
    """A request line from outside may have any characters and any length."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:SUBJECT_MAX])
