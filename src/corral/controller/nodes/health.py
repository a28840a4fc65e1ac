"""The health reconciler: one bus round trip to every node, many at once, and a verdict on each."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from corral.bus.messages import HealthAnswer, decode
from corral.bus.subjects import BACKEND_LIST, MODELS_RUNNING, node_subject
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.errors import CorralError, NoResponders
from corral.core.nodes.health import BusProbe, HealthRecord, any_live, pick_changed
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.presence import Limits, Presence
from corral.store.engine.leases import Lease
from corral.store.nodes.health import HealthStore
from corral.system import Clock

log = structlog.get_logger()

LEASE_TTL_S = 15.0
PROBE_WITHIN_S = 2.0
PROBES_AT_ONCE = 128
"""Few enough to leave time for requests between a thousand probes. Many enough that a rack without power, whose nodes
take two seconds each, does not delay the others."""
JUDGE_AT_ONCE = 100
RECORD_AT_ONCE = 100
MIN_SPACING_S = 0.05
"""Notifications come in bursts, for example when a thousand nodes join; one run serves all that came before it."""


class ProbeBus(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class HealthController:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        store: HealthStore,
        bus: ProbeBus,
        limits: Limits,
        every_s: float,
        clock: Clock,
        on_change: Callable[[], Awaitable[None]],
        also: Callable[[], Awaitable[None]],
    ) -> None:
        """`also` runs with every full pass of the leader, for upkeep that nothing else triggers."""
        self.loop = Reconciler(
            "health",
            self._reconcile,
            runtime,
            every_s=every_s,
            min_spacing_s=MIN_SPACING_S,
            lease_ttl_s=LEASE_TTL_S,
            on_standby=self._stop_listening,
            on_failure=self._stop_listening,
        )
        self._store = store
        self._bus = bus
        self._limits = limits
        self._every_s = every_s
        self._clock = clock
        self._on_change = on_change
        self._also = also
        self._listening: tuple[Lease, float] | None = None
        """Under which lease this frontend listens to nodes, and since when."""
        self._full_due_s = 0.0

    def _stop_listening(self) -> None:
        """A node is not to blame for silence while nobody listened: the next run that works starts counting again."""
        self._listening, self._full_due_s = None, 0.0

    async def _reconcile(self, run: ReconcileRun) -> float:
        """Every `every_s` a full pass over all nodes; after a notification only the nodes that are not live."""
        now_s, lease = self._clock.monotonic_s(), run.lease
        full = now_s >= self._full_due_s
        if full:
            self._full_due_s = now_s + self._every_s
        if self._listening is None or self._listening[0] != lease:
            self._listening = (lease, now_s)
        since_s = self._listening[1]
        now_ms, records = await self._store.read_health_records()
        probes = await self._probe(
            [record for record in records if record.expected_on_bus and (full or record.presence is not Presence.LIVE)]
        )
        listened_s = self._clock.monotonic_s() - since_s
        changes = await self._judge(records, probes, lease, now_ms=now_ms, listened_s=listened_s)
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
        return max(0.0, self._full_due_s - self._clock.monotonic_s())

    async def _judge(
        self, records: list[HealthRecord], probes: list[BusProbe], lease: Lease, *, now_ms: int, listened_s: float
    ) -> list[tuple[Node, Node]]:
        """Writes only nodes whose verdict changed, so that a healthy fleet costs one read and no writes."""
        by_id = {probe.node_id: probe for probe in probes}
        limits, others_live = self._limits, any_live(records)
        changed: list[NodeId] = []
        for start in range(0, len(records), JUDGE_AT_ONCE):
            part = records[start : start + JUDGE_AT_ONCE]
            changed += pick_changed(
                part, by_id, now_ms=now_ms, listened_s=listened_s, limits=limits, others_live=others_live
            )
            await asyncio.sleep(0)  # a large fleet must not delay requests
        changes = []
        for start in range(0, len(changed), RECORD_AT_ONCE):
            ids = changed[start : start + RECORD_AT_ONCE]
            seen = [by_id[node_id] for node_id in ids if node_id in by_id]
            changes += await self._store.record(
                ids, seen, lease=lease, listened_s=listened_s, limits=limits, others_live=others_live
            )
        return changes

    async def _probe(self, records: list[HealthRecord]) -> list[BusProbe]:
        if not self._bus.connected:
            return []
        limit = asyncio.Semaphore(PROBES_AT_ONCE)

        async def probe(record: HealthRecord) -> BusProbe | None:
            async with limit:
                try:
                    return await self._ask(record)
                except NoResponders:
                    return BusProbe(record.node_id, answered=False, no_responders=True)
                except CorralError:
                    # If our own connection broke meanwhile, the failure is not the node's.
                    return BusProbe(record.node_id, answered=False) if self._bus.connected else None

        results = await asyncio.gather(*(probe(record) for record in records))
        return [result for result in results if result is not None]

    async def _ask(self, record: HealthRecord) -> BusProbe:
        """LocalAI's workers answer `models.running` only since July 2026; all of them can list their backends."""
        try:
            subject = node_subject(record.node_id, MODELS_RUNNING)
            answer = await self._bus.request(subject, b"{}", within_s=PROBE_WITHIN_S)
        except NoResponders:
            if record.reports_epoch:
                raise
            await self._bus.request(node_subject(record.node_id, BACKEND_LIST), b"{}", within_s=PROBE_WITHIN_S)
            return BusProbe(record.node_id, answered=True)
        return BusProbe(record.node_id, answered=True, epoch=decode(answer, HealthAnswer).epoch)
