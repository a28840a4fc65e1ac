"""The health pass: a bus round trip to every node, all at once, and a verdict on each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from corral.bus.messages import HealthAnswer, decode
from corral.bus.subjects import BACKEND_LIST, MODELS_RUNNING, node_subject
from corral.core.errors import CorralError, NoResponders
from corral.core.nodes.health import BusProbe, HealthRecord, any_live, pick_changed
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.presence import Limits, Presence
from corral.store.engine.leases import Lease
from corral.system import Clock
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

LEASE = "health"
LEASE_TTL_S = 15.0
PROBE_WITHIN_S = 2.0
# Few enough that a thousand nodes' probes leave room for requests in between; a node that does not answer
# holds its place for two seconds, so many enough that a rack without power does not hold up the others.
PROBES_AT_ONCE = 128
JUDGE_AT_ONCE = 100
RECORD_AT_ONCE = 100
# Hints come in bursts (a thousand machines joining); each look serves all that came before it.
LOOK_AT_MOST_EVERY_S = 0.05


class Verdicts(Protocol):
    async def read_health_records(self) -> tuple[int, list[HealthRecord]]: ...

    async def record(
        self,
        ids: Iterable[NodeId],
        probes: Iterable[BusProbe],
        *,
        lease: Lease,
        listened_s: float,
        limits: Limits,
        others_live: bool,
    ) -> list[tuple[Node, Node]]: ...


class Leases(Protocol):
    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None: ...

    async def release(self, lease: Lease) -> None: ...


class Requests(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class HealthController:
    def __init__(
        self,
        *,
        holder: str,
        verdicts: Verdicts,
        leases: Leases,
        bus: Requests,
        limits: Limits,
        every_s: float,
        clock: Clock,
        on_change: Callable[[], Awaitable[None]],
        also: Callable[[], Awaitable[None]],
    ) -> None:
        """`also` runs with every full pass of the holder: upkeep that must not depend on anyone asking."""
        self._holder = holder
        self._verdicts = verdicts
        self._leases = leases
        self._bus = bus
        self._limits = limits
        self._every_s = every_s
        self._clock = clock
        self._on_change = on_change
        self._also = also
        self._poked = asyncio.Event()
        self._lease: Lease | None = None
        self._started = False
        self._listening_since_s: float | None = None

    def notify(self) -> None:
        """Something about nodes changed: look at those that are not settled, now."""
        self._poked.set()

    async def run(self) -> None:
        try:
            next_full_s = self._clock.monotonic_s()
            while True:
                full = self._clock.monotonic_s() >= next_full_s
                if full:
                    next_full_s = self._clock.monotonic_s() + self._every_s
                await self._turn(full=full)
                await asyncio.sleep(LOOK_AT_MOST_EVERY_S)
                await wait_or_timeout(self._poked, within_s=max(0.0, next_full_s - self._clock.monotonic_s()))
        finally:
            # Silence while we were not listening is no one's fault: count from the next turn that works.
            self._listening_since_s = None

    async def release(self) -> None:
        if self._lease is not None:
            await self._leases.release(self._lease)

    async def _turn(self, *, full: bool) -> None:
        lease = await self._leases.hold(LEASE, self._holder, ttl_s=LEASE_TTL_S, fresh=not self._started)
        self._started = True
        if lease is None:
            self._lease, self._listening_since_s = None, None
            return
        if self._lease != lease or self._listening_since_s is None:
            self._listening_since_s = self._clock.monotonic_s()
        self._lease = lease
        now_ms, pulses = await self._verdicts.read_health_records()
        probes = await self._probe(
            [pulse for pulse in pulses if pulse.expected_on_bus and (full or pulse.presence is not Presence.LIVE)]
        )
        listened_s = self._clock.monotonic_s() - self._listening_since_s
        changes = await self._judge(pulses, probes, lease, now_ms=now_ms, listened_s=listened_s)
        for before, after in changes:
            log.info(
                "node.status_changed",
                node=after.name,
                was=before.status.value,
                status=after.status.value,
                reason=after.presence_reason,
            )
        if changes:
            await self._on_change()
        if full:
            await self._also()

    async def _judge(
        self, pulses: list[HealthRecord], probes: list[BusProbe], lease: Lease, *, now_ms: int, listened_s: float
    ) -> list[tuple[Node, Node]]:
        """A quiet herd costs the one read that has been made: only nodes about which there is news are written."""
        by_id = {probe.node_id: probe for probe in probes}
        limits, others_live = self._limits, any_live(pulses)
        news: list[NodeId] = []
        for start in range(0, len(pulses), JUDGE_AT_ONCE):
            part = pulses[start : start + JUDGE_AT_ONCE]
            news += pick_changed(
                part, by_id, now_ms=now_ms, listened_s=listened_s, limits=limits, others_live=others_live
            )
            await asyncio.sleep(0)  # a large herd must not delay requests
        changes = []
        for start in range(0, len(news), RECORD_AT_ONCE):
            ids = news[start : start + RECORD_AT_ONCE]
            seen = [by_id[node_id] for node_id in ids if node_id in by_id]
            changes += await self._verdicts.record(
                ids, seen, lease=lease, listened_s=listened_s, limits=limits, others_live=others_live
            )
        return changes

    async def _probe(self, pulses: list[HealthRecord]) -> list[BusProbe]:
        if not self._bus.connected:
            return []
        limit = asyncio.Semaphore(PROBES_AT_ONCE)

        async def probe(pulse: HealthRecord) -> BusProbe | None:
            async with limit:
                try:
                    return await self._ask(pulse)
                except NoResponders:
                    return BusProbe(pulse.node_id, answered=False, no_responders=True)
                except CorralError:
                    # When our own link broke meanwhile, the failure says nothing about the node.
                    return BusProbe(pulse.node_id, answered=False) if self._bus.connected else None

        results = await asyncio.gather(*(probe(pulse) for pulse in pulses))
        return [result for result in results if result is not None]

    async def _ask(self, pulse: HealthRecord) -> BusProbe:
        """LocalAI's workers have `models.running` since July 2026 only; every one of them can list its backends."""
        try:
            subject = node_subject(pulse.node_id, MODELS_RUNNING)
            answer = await self._bus.request(subject, b"{}", within_s=PROBE_WITHIN_S)
        except NoResponders:
            if pulse.reports_epoch:
                raise
            await self._bus.request(node_subject(pulse.node_id, BACKEND_LIST), b"{}", within_s=PROBE_WITHIN_S)
            return BusProbe(pulse.node_id, answered=True)
        return BusProbe(pulse.node_id, answered=True, epoch=decode(answer, HealthAnswer).epoch)
