"""The health pass: a bus round trip to every node, all at once, and a verdict on each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from corral.bus.subjects import MODELS_RUNNING, node_subject
from corral.core.errors import CorralError, NoResponders
from corral.core.health import BusProbe, should_probe
from corral.core.nodes import Node
from corral.core.presence import Limits, Presence
from corral.store.leases import Lease
from corral.system import Clock

log = structlog.get_logger()

LEASE = "health"
LEASE_TTL_S = 15.0
PROBE_WITHIN_S = 2.0
PROBES_AT_ONCE = 256
# Hints come in bursts (a thousand machines joining); each look serves all that came before it.
LOOK_AT_MOST_EVERY_S = 0.05


class Nodes(Protocol):
    async def read_all(self) -> list[Node]: ...


class Verdicts(Protocol):
    async def record(
        self, probes: Iterable[BusProbe], *, lease: Lease, listened_s: float, limits: Limits
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
        nodes: Nodes,
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
        self._nodes = nodes
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

    def poke(self) -> None:
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
                try:
                    async with asyncio.timeout(max(0.0, next_full_s - self._clock.monotonic_s())):
                        await self._poked.wait()
                except TimeoutError:
                    pass
                self._poked.clear()
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
        nodes = await self._nodes.read_all()
        probes = await self._probe(
            [node for node in nodes if should_probe(node) and (full or node.presence is not Presence.LIVE)]
        )
        changes = await self._verdicts.record(
            probes,
            lease=lease,
            listened_s=self._clock.monotonic_s() - self._listening_since_s,
            limits=self._limits,
        )
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

    async def _probe(self, nodes: list[Node]) -> list[BusProbe]:
        if not self._bus.connected:
            return []
        limit = asyncio.Semaphore(PROBES_AT_ONCE)

        async def probe(node: Node) -> BusProbe | None:
            async with limit:
                try:
                    await self._bus.request(node_subject(node.id, MODELS_RUNNING), b"{}", within_s=PROBE_WITHIN_S)
                except NoResponders:
                    return BusProbe(node.id, answered=False, no_responders=True)
                except CorralError:
                    # When our own link broke meanwhile, the failure says nothing about the node.
                    return BusProbe(node.id, answered=False) if self._bus.connected else None
                return BusProbe(node.id, answered=True)

        return [result for result in await asyncio.gather(*map(probe, nodes)) if result is not None]
