"""Messages that were refused, counted against the machine that sent them.

One that cannot be read or stored is dropped alone. A machine that sends such things is shown with the count and the
latest reason; the log gets one line per machine and minute, so that nobody can wash other lines away.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog

from corral.core.errors import InvalidInput
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.system import Clock
from corral.telemetry.metrics import MetricRegistry

log = structlog.get_logger()

SAVE_EVERY_S = 2.0
SENDERS_MOST = 1024
REASON_MOST = 300
OTHERS = "others"
_LOGGED = TokenBucket(capacity=1, per_s=1 / 60)


class Marks(Protocol):
    async def add_refused(self, counts: Mapping[str, tuple[int, str]]) -> set[str]:
        """By node: how many, and why the latest. Answers which of them are nodes."""
        ...


class RefusedMessages:
    def __init__(self, store: Marks, clock: Clock, registry: MetricRegistry) -> None:
        self._store, self._clock = store, clock
        self._family = registry.counter(
            "corral_messages_refused_total", "Messages of nodes that could not be read or stored.", "node", "kind"
        )
        self._senders: set[str] = set()
        self._logged = RateLimiter(_LOGGED, max_keys=SENDERS_MOST)
        self._unsaved: dict[str, tuple[int, str]] = {}
        self._unlogged: dict[str, int] = {}

    def note(self, sender: str, kind: str, error: InvalidInput) -> None:
        """`sender`: the id of a node, as the subject or the connection says, not the message."""
        sender = sender[:64]
        if len(self._senders) < SENDERS_MOST:
            self._senders.add(sender)
        if sender not in self._senders:
            sender = OTHERS
        self._family.child(sender, kind).value += 1
        reason = f"{kind}: {error}"[:REASON_MOST].replace("\0", "\ufffd")
        self._unsaved[sender] = (1 + self._unsaved.get(sender, (0, ""))[0], reason)
        if self._logged.take(sender, self._clock.monotonic_s()):
            log.warning("message.refused", node=sender, error=reason, more=self._unlogged.pop(sender, 0))
        else:
            self._unlogged[sender] = self._unlogged.get(sender, 0) + 1

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            await self.save()

    async def save(self) -> None:
        """What could not be written is only a mark: it is not kept for later. Senders that are no nodes lose their
        place: on a bus without credentials anybody can make up ids."""
        counts, self._unsaved = self._unsaved, {}
        if counts:
            strangers = counts.keys() - await self._store.add_refused(counts) - {OTHERS}
            self._senders -= strangers
            self._family.forget(lambda labels: labels[0] in strangers)
            for stranger in strangers:
                self._unlogged.pop(stranger, None)
