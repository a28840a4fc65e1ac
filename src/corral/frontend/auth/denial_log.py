"""Refusals in the audit log: every one of a few, and of a flood how many there were."""

from collections import OrderedDict
from typing import Any, Protocol

import structlog

from corral.core.errors import CorralError
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.system import Clock

log = structlog.get_logger()

NOTED = TokenBucket(capacity=20, per_s=1 / 60)
ACTORS_MOST = 1024
SUBJECT_MOST = 500


class Events(Protocol):
    async def append(self, *, actor: str, action: str, subject: str, detail: dict[str, Any]) -> None: ...


class DenialLog:
    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._noted = RateLimiter(NOTED, max_keys=ACTORS_MOST)
        self._unnoted: OrderedDict[str, int] = OrderedDict()

    async def note(self, actor: str, what: str, error: CorralError) -> None:
        if not self._noted.take(actor, self._clock.monotonic_s()):
            self._unnoted[actor] = self._unnoted.pop(actor, 0) + 1
            if len(self._unnoted) > ACTORS_MOST:
                self._unnoted.popitem(last=False)
            return
        detail: dict[str, Any] = {"reason": str(error)}
        if more := self._unnoted.pop(actor, 0):
            detail["not_noted_before"] = more
        try:
            await self._events.append(actor=actor, action="access.refused", subject=_shown(what), detail=detail)
        except CorralError as problem:  # the answer does not depend on it
            log.warning("refusal.not_noted", actor=actor, request=_shown(what), error=str(problem))


def _shown(text: str) -> str:
    """What was asked for may hold anything, and be of any length."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:SUBJECT_MOST])
