"""Refusals in the audit log: every one of a few, and of a flood how many there were."""

from collections import OrderedDict
from typing import Any, Protocol

from corral.core.allowance import Allowance, Allowances
from corral.core.errors import CorralError
from corral.system import Clock

NOTED = Allowance(most=20, per_s=1 / 60)
ACTORS_MOST = 1024


class Events(Protocol):
    async def append(self, *, actor: str, action: str, subject: str, detail: dict[str, Any]) -> None: ...


class Refusals:
    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._noted = Allowances(NOTED, keys_most=ACTORS_MOST)
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
        await self._events.append(actor=actor, action="access.refused", subject=what, detail=detail)
