"""Messages that were rejected, counted for the node that sent them.

A message that cannot be read or stored is dropped alone. The node is shown with the count and the latest reason. The
log gets one line for each node and minute, so that no node can flood it.
"""

import structlog

from corral.core.errors import InvalidInput
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.store.nodes.nodes import NodeStore
from corral.system import Clock
from corral.telemetry.metrics import MetricRegistry

log = structlog.get_logger()

SAVE_EVERY_S = 2.0
SENDERS_MOST = 1024
REASON_MOST = 300
OTHERS = "others"
_LOGGED = TokenBucket(capacity=1, per_s=1 / 60)


class RefusedMessages:
    def __init__(self, store: NodeStore, clock: Clock, registry: MetricRegistry) -> None:
        self._store, self._clock = store, clock
        self._family = registry.counter(
            "corral_messages_refused_total", "Messages of nodes that could not be read or stored.", "node", "kind"
        )
        self._senders: set[str] = set()
        self._logged = RateLimiter(_LOGGED, max_keys=SENDERS_MOST)
        self._unsaved: dict[str, tuple[int, str]] = {}
        self._unlogged: dict[str, int] = {}

    def note(self, sender: str, kind: str, error: InvalidInput) -> None:
        """`sender`: the id of the node, from the subject or the connection, not from the message."""
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

    async def save(self) -> None:
        """Counts that cannot be written are dropped. Senders that are not nodes are forgotten: on a bus without
        credentials anybody can invent ids."""
        counts, self._unsaved = self._unsaved, {}
        if counts:
            unknown = counts.keys() - await self._store.add_refused(counts) - {OTHERS}
            self._senders -= unknown
            self._family.forget(lambda labels: labels[0] in unknown)
            for sender in unknown:
                self._unlogged.pop(sender, None)
