"""Replicas that have requests and say nothing: do they still live?

An answer may take long, so silence alone proves nothing. A replica that has been silent for a while is asked for a sign
of life on a connection of its own. One that gives none, several times in a row, and says nothing to anyone else either,
loses the requests that it has not begun to answer to others, and is avoided until it does. Answers that it has begun
can only be broken off, so they wait much longer: a process that is very busy gives no sign of life either.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import structlog

from corral.frontend.gateway.targets import Endpoint
from corral.system import Clock

log = structlog.get_logger()

PROBE_WITHIN_S = 3.0
PROBE_EVERY_S = 1.0
FAILURES_MOST = 3


class Liveness:
    def __init__(
        self,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        targets: Callable[[], Collection[Endpoint]],
        give_up: Callable[[Endpoint, str, float], None],
        clock: Clock,
        believed_s: float,
    ) -> None:
        """`give_up`: takes away what this one has not begun to answer, and after so many seconds without a sign of
        life the rest too; `believed_s`: how long a sign of life counts."""
        self._spawn = spawn
        self._targets = targets
        self._give_up = give_up
        self._clock = clock
        self._believed_s = believed_s
        self._asked: set[Endpoint] = set()

    def doubt(self, target: Endpoint) -> None:
        if target not in self._asked:
            self._asked.add(target)
            self._spawn(self._watch(target))

    async def _watch(self, target: Endpoint) -> None:
        try:
            failures, began_s = 0, self._clock.monotonic_s()
            while target in self._targets():
                if await self._lives(target) or target.heard_s > began_s:
                    if failures >= FAILURES_MOST:
                        log.info("replica.lives_again", replica=target.replica.id)
                        target.note_success()
                    await asyncio.sleep(self._believed_s)
                    return
                failures += 1
                if failures == FAILURES_MOST:
                    log.warning("replica.no_sign_of_life", replica=target.replica.id, node=target.replica.node_name)
                if failures >= FAILURES_MOST:
                    now_s = self._clock.monotonic_s()
                    target.note_failure(now_s, for_s=PROBE_WITHIN_S + 2 * PROBE_EVERY_S)
                    self._give_up(target, f"it gave no sign of life {failures} times in a row", now_s - began_s)
                await asyncio.sleep(PROBE_EVERY_S)
        finally:
            self._asked.discard(target)

    async def _lives(self, target: Endpoint) -> bool:
        """Of what speaks gRPC only the machine can be asked: a backend that works may answer nothing else meanwhile."""
        request = b"" if target.driven else b"GET /health HTTP/1.1\r\n%bConnection: close\r\n\r\n" % target.head
        return await target.link.probe(request, within_s=PROBE_WITHIN_S)
