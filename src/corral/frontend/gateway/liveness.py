"""Probes replicas that have requests and send nothing.

An answer may take long, so silence alone proves nothing. A replica that has been silent for a while is probed on a
separate connection. If several probes in a row fail, and the replica sends nothing for any other request either, the
requests that it has not begun to answer go to other replicas, and it is avoided until a probe succeeds. Answers that it
has begun can only be broken off, so they wait much longer: a very busy process may fail its probes too.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import structlog

from corral.frontend.gateway.endpoints import Endpoint
from corral.frontend.gateway.limits import GatewayLimits
from corral.system import Clock

log = structlog.get_logger()

FAILURES_MAX = 3


class Liveness:
    def __init__(
        self,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        endpoints: Callable[[], Collection[Endpoint]],
        abandon: Callable[[Endpoint, str, float], None],
        clock: Clock,
        limits: GatewayLimits,
    ) -> None:
        """`abandon`: takes requests away from an endpoint, for a reason, after so many unresponsive seconds."""
        self._spawn = spawn
        self._endpoints = endpoints
        self._abandon = abandon
        self._clock = clock
        self._limits = limits
        self._watched: set[Endpoint] = set()

    def suspect(self, endpoint: Endpoint) -> None:
        if endpoint not in self._watched:
            self._watched.add(endpoint)
            self._spawn(self._watch(endpoint))

    async def _watch(self, endpoint: Endpoint) -> None:
        try:
            failures, began_s = 0, self._clock.monotonic_s()
            while endpoint in self._endpoints():
                if await self._probe(endpoint) or endpoint.heard_s > began_s:
                    if failures >= FAILURES_MAX:
                        log.info("replica.responds_again", replica=endpoint.replica.id)
                        endpoint.record_success()
                    await asyncio.sleep(self._limits.probe_after_s)
                    return
                failures += 1
                if failures == FAILURES_MAX:
                    log.warning("replica.unresponsive", replica=endpoint.replica.id, node=endpoint.replica.node_name)
                if failures >= FAILURES_MAX:
                    now_s = self._clock.monotonic_s()
                    endpoint.record_failure(now_s, for_s=self._limits.probe_within_s + 2 * self._limits.probe_every_s)
                    self._abandon(endpoint, f"{failures} health probes in a row failed", now_s - began_s)
                await asyncio.sleep(self._limits.probe_every_s)
        finally:
            self._watched.discard(endpoint)

    async def _probe(self, endpoint: Endpoint) -> bool:
        return await endpoint.link.probe(endpoint.health_probe, within_s=self._limits.probe_within_s)
